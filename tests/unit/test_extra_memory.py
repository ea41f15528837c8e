"""Buffers of the strategies: bounded by options where they should be, and printed."""

from __future__ import annotations

import json

import pytest

from dace_redist import Distribution, schedule
from dace_redist.report import text as explain
from dace_redist.strategies import all_extra_memory, extra_memory


def rows_to_columns(n: int):
    return schedule(Distribution((n, n), (4, 1)), Distribution((n, n), (1, 4)), dtype="float64")


@pytest.mark.parametrize("strategy", ["Pipelined", "Shared", "Hierarchical", "Aggregated"])
def test_does_not_grow_with_the_tensor(strategy):
    options = {"slot_bytes": 1024} if strategy == "Shared" else {"chunk_bytes": 1024}
    small, large = (extra_memory(rows_to_columns(n), strategy, depth=2, **options) for n in (400, 40_000))
    assert small == large


def test_sizes():
    the_schedule = rows_to_columns(400)  # three messages of 100 x 100 doubles each way
    assert extra_memory(the_schedule, "Pack") == extra_memory(the_schedule, "RMA") == 2 * 3 * 80_000
    assert extra_memory(the_schedule, "Pipelined") == 2 * 3 * 80_000
    assert extra_memory(the_schedule, "Pipelined", chunk_bytes=1000, depth=3) == 2 * 3000
    assert extra_memory(the_schedule, "Shared", slot_bytes=1500, depth=3) == 4096 + 3 * 8192
    head = 2 * 3 * 256 + 4096
    assert extra_memory(the_schedule, "Aggregated", chunk_bytes=1000) == (
        extra_memory(the_schedule, "Hierarchical", chunk_bytes=1000) + 2 * 3 * 1000 + head
    )
    assert extra_memory(the_schedule, "Datatype") is None


def test_printed():
    the_schedule = rows_to_columns(400)
    line = next(line for line in explain.text(the_schedule).splitlines() if line.startswith("memory"))
    assert "Pack 469 KiB" in line and "Shared" in line and "Datatype" not in line
    assert json.loads(json.dumps(the_schedule.to_json()))["extra_bytes"] == all_extra_memory(the_schedule)


def test_wrong():
    with pytest.raises(ValueError, match="unknown strategy"):
        extra_memory(rows_to_columns(8), "Quick")
    with pytest.raises(ValueError, match="does not take option"):
        extra_memory(rows_to_columns(8), "Shared", chunk_bytes=3)
