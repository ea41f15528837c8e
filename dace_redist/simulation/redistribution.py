"""Predicts a redistribution on a machine. Start reading at: simulate_schedule."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from dace_redist.report.canvas import save
from dace_redist.schedule import Schedule
from dace_redist.simulation.exchange import Exchange, Job
from dace_redist.simulation.exports import RankOperations, exchange_operations
from dace_redist.simulation.machine import Machine
from dace_redist.strategies import DEFAULT_STRATEGY, STRATEGIES, find_strategy
from dace_redist.tuning.cost_model import Estimate
from dace_redist.tuning.problem import MAIN_MEMORIES, check_memory
from dace_redist.tuning.report import CostReport


@dataclasses.dataclass(frozen=True)
class SimulatedRedistribution:
    """Times of a redistribution on a machine, by some strategies, or by all; printed, it is a table."""

    job: Job
    exchange: Exchange
    strategies: tuple[str, ...]

    @cached_property
    def estimates(self) -> list[Estimate]:
        """The strategies' times, the fastest first."""
        return self.exchange.model.estimates(self.strategies)

    @property
    def seconds(self) -> float:
        """The time of the fastest strategy."""
        return self.estimates[0].seconds

    @property
    def _report(self) -> CostReport:
        return CostReport(self.exchange.model, str(self.job.machine), self.strategies)

    def __str__(self) -> str:
        """The machine, a line for each strategy, the bound and the busiest link."""
        report = self._report
        return "\n".join([*report.lines(), f"link      {self.exchange.link}", report.verdict])

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries; times in seconds."""
        return {
            **self._report.to_json(),
            "ranks": self.job.ranks,
            "nodes": self.job.nodes,
            "bytes_moved": self.exchange.nbytes,
            "busiest_link": dataclasses.asdict(self.exchange.link),
        }

    def operations(self) -> RankOperations:
        """Return the operations of each rank by the fastest strategy that sends from rank to rank."""
        names = [one.strategy for one in self.estimates]
        return exchange_operations(self.exchange, min(names, key=lambda name: STRATEGIES[name].joins_messages))

    def plot(self, path: str | Path) -> None:
        """Draw the strategies against each other, to a .png, .svg or .pdf file."""
        from dace_redist.simulation import figures

        save(lambda: figures.draw_strategies(self), path)


def simulate_schedule(
    schedule: Schedule,
    machine: str | os.PathLike[str] | Machine,
    *,
    ranks_per_node: int | None = None,
    scattered: bool = False,
    memory: str = "ordinary",
    strategies: Sequence[str] = (),
) -> SimulatedRedistribution:
    """
    Predict a redistribution on a machine that is described.

    :param machine: Path of a machine file, or name of a machine that ships with the package.
    :param ranks_per_node: Ranks on each node, which fill one node after another; default: one per core.
    :param scattered: True if the nodes lie anywhere in the machine, not side by side.
    :param memory: Where the arrays lie, one of :data:`dace_redist.tuning.problem.MAIN_MEMORIES`.
    :param strategies: Names of strategies; default: all that the cost model knows. ``"Auto"`` is the default one.
    :raises ValueError: If the machine file is wrong (names the line), the machine is too small, ``ranks_per_node`` is
        less than 1, or a strategy is unknown or cannot move this.
    :raises FileNotFoundError: If there is no such machine.
    """
    job = Job.of(Machine.load(machine), schedule.ranks, ranks_per_node, scattered)
    wanted = tuple(dict.fromkeys(find_strategy(name).name for name in strategies))
    exchange = Exchange.of(schedule, job, check_memory(memory, MAIN_MEMORIES))
    for name in wanted or (DEFAULT_STRATEGY,):
        exchange.estimate(name)  # an error where it cannot be known
    return SimulatedRedistribution(job, exchange, wanted)
