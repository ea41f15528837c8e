"""Candidates of ``tune``: sensible values of the options of a strategy, and what it concludes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dace_redist import Distribution, schedule
from dace_redist.mpi.topology import Topology
from dace_redist.strategies import DEFAULT_STRATEGY, STRATEGIES, gpu_strategies
from dace_redist.timing import tune
from dace_redist.timing.comparison import Candidate, Comparison, strategies_for
from dace_redist.timing.measure import Figure
from dace_redist.timing.memories import PlacedSchedule


def moved(length: int, memory: str = "ordinary") -> PlacedSchedule:
    """Return a redistribution of messages of ``length ** 2 / 2`` bytes."""
    grids = [Distribution((length, length), grid) for grid in ([4], [1, 4])]
    return PlacedSchedule(schedule(*grids), memory)


@pytest.fixture
def varied(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tune, "topology_of", lambda comm: Topology((0, 0, 0, 0)))
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    return lambda strategy, placed: [
        one.options for one in tune._varied(strategy, SimpleNamespace(placed=placed, comm=None))
    ]


def test_every_strategy_that_moves_such_arrays_is_tried():
    assert strategies_for(None, moved(8)) == [*STRATEGIES]
    assert strategies_for(None, moved(8, "gpu")) == [*gpu_strategies()]
    assert strategies_for(["Pack", "RMA", "Pack"], moved(8)) == ["Pack", "RMA"]
    said = "strategy Datatype cannot be measured with gpu-source arrays; choose from Hierarchical"
    with pytest.raises(ValueError, match=said):
        strategies_for(["Datatype"], moved(8, "gpu-source"))
    with pytest.raises(ValueError, match="unknown strategy 'NCCL'"):
        strategies_for(["NCCL"], moved(8, "gpu"))


def test_values_that_do_the_same_are_tried_once(varied, monkeypatch: pytest.MonkeyPatch):
    assert varied("Pack", moved(256)) == [{"threads": 2}]  # two cores a rank
    assert varied("Threaded", moved(256)) == [{"threads": 1}, {"threads": 2}]
    small, large = (
        [one["chunk_bytes"] for one in varied("Pipelined", case) if "chunk_bytes" in one]
        for case in (moved(256), moved(8192, "gpu"))
    )
    assert small == []  # every chunk holds the message, as the default does
    assert large == [512 << 10, 2 << 20, 8 << 20]
    assert {"threads": 2} not in varied("Pipelined", moved(8192, "gpu"))  # a GPU copies without
    between_nodes = {"chunk_bytes", "growth", "join_bytes"}
    tried = {name for options in varied("Hierarchical", moved(8192)) for name in options}
    assert tried == {"slot_bytes", "depth", "threads"}
    monkeypatch.setattr(tune, "topology_of", lambda comm: Topology((0, 0, 1, 1)))
    assert {name for options in varied("Hierarchical", moved(8192)) for name in options} == tried | between_nodes


def compared(*phases: dict[str, float]) -> Comparison:
    """Return times with intervals from 0.8 to 1.3 times the median."""
    figures = [{name: Figure((s,), s, 0.8 * s, 1.3 * s) for name, s in phase.items()} for phase in phases]
    every = {name: Candidate(name.partition("(")[0], {"depth": 4} if "(" in name else {}) for p in phases for name in p}
    return Comparison(moved(8), every, figures)


H, D = DEFAULT_STRATEGY, f"{DEFAULT_STRATEGY}(depth=4)"


@pytest.mark.parametrize(
    ("phases", "best", "verdict"),
    [
        ([{"Pack": 1, "RMA": 3, "MPI_Alltoallw": 4}], "Pack", "Pack is the fastest strategy: 4.00 times as"),
        ([{"Pack": 1, "RMA": 1.4, "MPI_Alltoallw": 4}], "Pack", "of Pack and RMA overlap; Pack is 4.00 times"),
        ([{"Pack": 1, "MPI_Alltoallw": 1.1}], "Pack", "not decided: the intervals of Pack and MPI_Alltoallw"),
        ([{"Pack": 1, "RMA": 3}], "Pack", "Pack is the fastest strategy"),
        ([{H: 2, "Pack": 1}, {H: 2, "Pack": 1, "RMA": 1.1}], "Pack", f"Pack is 2.00 times as fast as {H}"),
        ([{H: 1.2, "Pack": 1}], "Auto", f"the intervals of Pack and {H} overlap"),
        ([{H: 3}, {H: 3, D: 1}], D, f"{D} is the fastest strategy: 3.00 times as fast as {H}"),
        ([{H: 1, "Pack": 2}], "Auto", f"{H} is the fastest strategy"),
        ([{H: 1, "Pack": 1}, {H: 2, "Pack": 1}], "Auto", f"not decided (machine busy?): the two intervals of {H}"),
    ],
)
def test_verdict(phases: list[dict[str, float]], best: str, verdict: str):
    found = compared(*phases)
    assert found.best == ({"strategy": H, "depth": 4} if best == D else {"strategy": best})
    assert verdict in str(found).splitlines()[-1]
