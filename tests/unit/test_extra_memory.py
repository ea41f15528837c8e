"""Buffers of the strategies: bounded by options where they should be, and printed."""

from __future__ import annotations

import pytest

from dace_redist import Distribution, schedule
from dace_redist.strategy_memory import extra_memory


def rows_to_columns(n: int):
    return schedule(Distribution((n, n), (4, 1)), Distribution((n, n), (1, 4)), dtype="float64")


@pytest.mark.parametrize(
    ("strategy", "options"), [("Pipelined", {}), ("Hierarchical", {}), ("Hierarchical", {"join_bytes": 1000})]
)
def test_does_not_grow_with_the_tensor(strategy, options):
    options = {"chunk_bytes": 1024, **options}
    small, large = (extra_memory(rows_to_columns(n), strategy, depth=2, **options) for n in (4_000, 40_000))
    assert small == large


def test_sizes():
    the_schedule = rows_to_columns(400)  # three messages of 100 x 100 doubles each way
    assert extra_memory(the_schedule, "Pack") == extra_memory(the_schedule, "RMA") == 2 * 3 * 80_000
    assert extra_memory(the_schedule, "Pipelined") == 2 * 3 * 80_000
    assert extra_memory(the_schedule, "Pipelined", chunk_bytes=1000, depth=3) == 2 * 3000
    ring = 3 * (3 * 8192 + 1024)  # three slots for each receiver
    rings, short = 4096 + -(-ring // 4096) * 4096, {"slot_bytes": 8150, "depth": 3, "chunk_bytes": 1000}
    assert extra_memory(the_schedule, "Hierarchical", **short) == rings + 2 * 3000
    head = 2 * 3 * 256 + 4096
    for join_bytes, joined in ((0, 0), (900, 2 * 3 * 900 + head), (4096, 2 * 3 * 1000 + head)):  # a chunk at most
        nbytes = extra_memory(the_schedule, "Hierarchical", join_bytes=join_bytes, **short)
        assert nbytes == rings + 2 * 3000 + joined
    assert extra_memory(the_schedule, "Datatype") is None


def test_partial_results_share_a_ring_of_chunks_and_all_lie_in_whole_messages():
    parts, whole = Distribution((64, 64), (4, 1), dims=(None, None)), Distribution((64, 64), (4,))
    summed = schedule(parts, whole, dtype="float64", op="sum")
    block = 16 * 64 * 8
    assert extra_memory(summed, "Pack") == 2 * 3 * block + block  # its own, too
    assert extra_memory(summed, "Pipelined", chunk_bytes=1000, depth=2) == 2 * 2 * 1000 + block
    alone = schedule(parts, whole, dtype="float64")
    with_sums, without = (extra_memory(one, "Hierarchical", chunk_bytes=1000) for one in (summed, alone))
    assert with_sums >= without + 64 * 64 * 8  # those of a node, like the source


def test_sums_of_a_tree_and_results_in_another_type_have_buffers():
    parts, whole = Distribution((64, 64), (4,), dims=(None, None)), Distribution((64, 64), (4,))
    plain = extra_memory(schedule(parts, whole, "f4", op="sum"), "Pack")
    assert extra_memory(schedule(parts, whole, "f4", op="sum", reproducible=True), "Pack") == plain + 64 * 64 * 4
    assert extra_memory(schedule(parts, whole, "f4", op="sum", accumulate="f8"), "Pack") == plain + 16 * 64 * 8


def test_wrong():
    with pytest.raises(ValueError, match="unknown strategy"):
        extra_memory(rows_to_columns(8), "Quick")
    with pytest.raises(ValueError, match="does not take option"):
        extra_memory(rows_to_columns(8), "Pack", chunk_bytes=3)
