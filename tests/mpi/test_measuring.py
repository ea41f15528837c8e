"""What is measured is the same on all ranks, and what the tuner makes of it, on a simulated clock."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import dace_redist
from dace_redist import Distribution, RedistributionError, schedule
from dace_redist.mpi.topology import topology_of
from dace_redist.timing import comparison
from dace_redist.timing.measure import measure
from dace_redist.timing.memories import PlacedSchedule


class Clock:
    """A clock that goes on only while a method works."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float):
        def method() -> None:
            self.now += seconds

        return method


@pytest.mark.mpi(ranks=[3], full=[1])
def test_all_ranks_get_the_same_figures_and_turns(comm):
    turns, seen, clock = [], [], Clock()

    def method(name, seconds):
        def run():
            turns.append(name)
            clock.now += seconds

        return run

    methods = {name: method(name, seconds) for name, seconds in (("a", 0.002), ("b", 0.004), ("hopeless", 0.05))}
    figures = measure(
        methods, comm, warmup=1, least=7, most=8, precision=1e-9, drop_slower_than=4, progress=seen.append, clock=clock
    )
    assert comm.allgather(figures) == [figures] * comm.size
    assert comm.allgather(turns) == [turns] * comm.size
    assert list(figures) == list(methods)
    assert [len(figure.seconds) for figure in figures.values()] == [7, 7, 3]
    assert turns[:3] == ["a", "b", "hopeless"]  # the warm-up
    orders = {tuple(turns[first : first + 3]) for first in (3, 6, 9)}
    orders |= {tuple(turns[first : first + 2]) for first in (12, 14, 16, 18)}
    assert len(orders) > 2
    assert seen == ([] if comm.rank else turns[3:])
    assert figures["a"].median == pytest.approx(0.002) and figures["hopeless"].median == pytest.approx(0.05)


@pytest.mark.mpi(ranks=2)
def test_a_repetition_lasts_from_the_first_start_to_the_last_end(comm):
    assert topology_of(comm).node_count == 1
    clock = Clock()
    clock.now = 1.0 * comm.rank  # rank 1 starts a second later
    late = measure({"m": clock.work(0.25)}, comm, warmup=0, least=1, most=1, clock=clock)
    assert late["m"].median == pytest.approx(1.25)


@pytest.mark.mpi(ranks=2)
def test_a_failure_on_one_rank_is_an_error_on_all(comm):
    def fails():
        if comm.rank == 1:
            raise OSError("no more of it")

    with pytest.raises(RuntimeError, match=r"'bad' failed on rank 1: OSError: no more of it"):
        measure({"good": Clock().work(0), "bad": fails}, comm)
    assert comm.allreduce(1) == 2


@pytest.mark.mpi(ranks=2)
def test_ranks_that_differ_are_told(comm):
    with pytest.raises(ValueError, match=r"the ranks differ in the methods: \['m0'\] on rank 0 and \['m1'\] on rank 1"):
        measure({f"m{comm.rank}": Clock().work(0)}, comm)
    ranges = "measure: need most >= least >= 1, got least=0, most=200"
    with pytest.raises(ValueError, match=ranges):
        measure({"m": Clock().work(0)}, comm, least=1 - comm.rank)
    with pytest.raises(ValueError, match="drop_slower_than must be at least 1"):
        measure({"m": Clock().work(0)}, comm, drop_slower_than=0.5)


class Bench:
    """Plans whose time depends on strategy and options; their clock goes on only while they run."""

    def __init__(self, seconds: dict[str, float], faster: dict[str, int]) -> None:
        self.seconds, self.faster, self.now, self.alive = seconds, faster, 0.0, 0

    def clock(self) -> float:
        return self.now

    def plan(self, placed: PlacedSchedule, strategy: str, options: Any, arrays: Any, comm: Any) -> Any:
        if strategy not in self.seconds:
            raise RedistributionError("plan: not here")
        bench, self.alive = self, self.alive + 1
        factor = 0.5 if options and options.items() <= self.faster.items() else 1.0

        class Plan:
            def __call__(self) -> None:
                bench.now += bench.seconds[strategy] * factor

            def free(self) -> None:
                bench.alive -= 1

        return Plan()


@pytest.mark.mpi(ranks=2)
def test_the_best_options_of_a_strategy_win(comm, monkeypatch: pytest.MonkeyPatch):
    """Pipelined starts 1.25 times as slow as Pack, and gets twice as fast by its chunks."""
    bench = Bench({"Pack": 1.0, "Pipelined": 1.25, "Hierarchical": 3.0}, {"chunk_bytes": 2 << 20})
    monkeypatch.setattr(comparison, "TimedPlan", bench.plan)
    monkeypatch.setattr(comparison, "measure", functools.partial(measure, clock=bench.clock))
    moved = schedule(Distribution((4096, 512), (2, 1)), Distribution((4096, 512), (1, 2)))
    found = dace_redist.tune(moved, comm=comm, limit_seconds=1e6, progress=False)
    assert found.best == {"strategy": "Pipelined", "chunk_bytes": 2 << 20} and bench.alive == 0
    first, last = found.phases
    assert first["Pack"].median == pytest.approx(1.0) and found.refused["RMA"] == "not here"
    assert {"Pack", "Pipelined", "Pipelined(chunk_bytes=2097152)", "Hierarchical"} <= {
        *last
    }  # the default, though slow
    assert not any(name.startswith("Hierarchical(") for name in last)
