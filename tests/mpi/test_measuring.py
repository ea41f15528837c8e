"""What is measured is the same on all ranks, and what the tuner makes of it, on a simulated clock."""

from __future__ import annotations

from typing import Any

import pytest

from dace_redist import Distribution, RedistributionError, schedule
from dace_redist.measuring import search
from dace_redist.measuring.measure import measure
from dace_redist.measuring.search import space
from dace_redist.mpi.topology import topology_of
from dace_redist.tuning.problem import TuningProblem


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


MOVED = schedule(Distribution((4096, 512), (2, 1)), Distribution((4096, 512), (1, 2)))


class Bench:
    """Plans whose time depends on strategy and options; their clock goes on only while they run."""

    def __init__(self, seconds: dict[str, float], faster: dict[str, dict[str, int]]) -> None:
        self.seconds, self.faster, self.now = seconds, faster, 0.0
        self.alive, self.made = 0, list[str]()

    def clock(self) -> float:
        return self.now

    def plan(self, problem: TuningProblem, strategy: str, options: Any, arrays: Any, comm: Any) -> Any:
        if strategy not in self.seconds:
            raise RedistributionError("plan: not here")
        bench, self.alive = self, self.alive + 1
        self.made.append(strategy)
        better = all(options.get(name) == value for name, value in self.faster.get(strategy, {"none": 0}).items())

        class Plan:
            def __call__(self) -> None:
                bench.now += bench.seconds[strategy] * (0.5 if better else 1.0)

            def free(self) -> None:
                bench.alive -= 1

        return Plan()


@pytest.fixture
def searched(comm, monkeypatch: pytest.MonkeyPatch):
    def run(bench: Bench):
        monkeypatch.setattr(search, "TimedPlan", bench.plan)
        topology, tried = topology_of(comm), space(None, None)
        return search.Search(TuningProblem(MOVED), comm, topology, tried, 1e6, 0.05, lambda *_: None, bench.clock).run()

    return run


@pytest.mark.mpi(ranks=2)
def test_the_best_options_of_a_strategy_win(searched):
    """Pipelined starts 1.5 times as slow as Pack, and gets twice as fast by its chunks."""
    bench = Bench({"Pack": 1.0, "Pipelined": 1.5, "Shared": 3.0}, {"Pipelined": {"chunk_bytes": 2 << 20}})
    winner, measured = searched(bench)
    assert str(winner) == "Pipelined(chunk_bytes=2097152)" and bench.alive == 0
    first = {one.strategy: one for one in measured if one.round == "all strategies"}
    assert first["Pack"].median_seconds == pytest.approx(1.0) and first["RMA"].note == "not here"
    assert not [one for one in measured if one.strategy == "Shared" and one.options]  # too slow to vary
    last = {str(one) for one in measured if one.round == "the best of each"}
    assert last == {"Pack", str(winner), "Shared"}  # the default, though slow
