"""Decisions of the tuner, with plans that take a known time on a simulated clock."""

from __future__ import annotations

from typing import Any

import pytest

from dace_redist import Distribution, RedistributionError, schedule
from dace_redist.measuring import search
from dace_redist.measuring.search import space
from dace_redist.mpi.topology import topology_of
from dace_redist.tuning.problem import Problem

MOVED = schedule(Distribution((4096, 512), (2, 1)), Distribution((4096, 512), (1, 2)))


class Bench:
    """Plans whose time depends on strategy and options; their clock goes on only while they run."""

    def __init__(self, seconds: dict[str, float], faster: dict[str, dict[str, int]]) -> None:
        self.seconds, self.faster, self.now = seconds, faster, 0.0
        self.alive, self.made = 0, list[str]()

    def clock(self) -> float:
        return self.now

    def plan(self, problem: Problem, strategy: str, options: Any, arrays: Any, comm: Any) -> Any:
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
    def run(bench: Bench, predicted: dict[str, float] | None = None):
        monkeypatch.setattr(search, "TimedPlan", bench.plan)
        topology, tried = topology_of(comm), space(None, None)
        return search.Search(
            Problem(MOVED), comm, topology, tried, 1e6, 0.05, lambda *_: None, predicted or {}, bench.clock
        ).run()

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
    assert {one.strategy for one in measured if one.round == "the best of each"} == {"Pack", "Pipelined"}


@pytest.mark.mpi(ranks=2)
def test_strategies_that_are_predicted_to_be_slow_are_left_out_unless_others_are_slower_than_that(searched):
    predicted = {"Pack": 1.0, "Pipelined": 1.5, "Shared": 3.0}
    bench = Bench({"Pack": 1.0, "Pipelined": 1.5, "Shared": 0.1}, {})
    winner, measured = searched(bench, predicted)
    assert winner.strategy == "Pack" and "Shared" not in bench.made
    assert "predicted to take 3 s" in next(one.note for one in measured if one.strategy == "Shared")
    slower = Bench({"Pack": 4.0, "Pipelined": 4.5, "Shared": 0.1}, {})
    assert searched(slower, predicted)[0].strategy == "Shared"
