"""What examples/demo.py makes of measurements: verdicts, the table, the pictures."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("demo", Path(__file__).parents[2] / "examples" / "demo.py")
assert SPEC is not None and SPEC.loader is not None
demo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(demo)


def record(strategy: str, seconds: list[float]) -> dict:
    samples = {"local 1": seconds, "redistribute 1": seconds, "redistribute 2": seconds, "total": seconds}
    case = {"size": 24, "rank": 12, "ranks": 4, "grids": {"ijklme": [1, 1, 2, 2, 1, 1], "ijklde": [1, 2, 2, 1, 1, 1]}}
    return case | {"strategy": strategy, "samples": samples, "seconds": {"total": max(seconds)}}


STOCK = record("MPI", [0.010, 0.011, 0.012, 0.013])
FASTER = record("Datatype", [0.005, 0.006, 0.006, 0.007])
SLOWER = record("Pack", [0.020, 0.021, 0.024, 0.023])
UNCLEAR = record("RMA", [0.012, 0.008, 0.014, 0.011])


@pytest.mark.parametrize(
    ("other", "verdict"), [(FASTER, "faster"), (SLOWER, "slower"), (UNCLEAR, "no clear difference")]
)
def test_verdict(other: dict, verdict: str) -> None:
    assert demo.compared(other, STOCK)[1] == verdict


def test_table_says_who_is_slower() -> None:
    lines = demo.table([STOCK, FASTER, SLOWER, UNCLEAR], threads=1).splitlines()
    assert any(line.startswith("MPI (stock DaCe)") and "23.00" in line for line in lines)
    assert any(line.startswith("Datatype") and "1.92x  faster" in line for line in lines)
    assert any(line.endswith("machine: Pack.") for line in lines)


def test_pictures(tmp_path: Path) -> None:
    demo.draw([STOCK, FASTER, SLOWER, UNCLEAR], tmp_path / "times.png")
    moves = demo.largest(STOCK)
    moves.plot(tmp_path / "plan.png")
    assert (moves.shape, moves.ranks) == ((24, 24, 24, 24, 12), 4)
    assert (tmp_path / "times.png").stat().st_size > 5000


def test_no_program_of_other_sources_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "describe_mpi", lambda: "an MPI")
    before = demo.built_from()
    assert demo.built_from() == before
    monkeypatch.setattr(demo, "describe_mpi", lambda: "another MPI")
    assert demo.built_from() != before
