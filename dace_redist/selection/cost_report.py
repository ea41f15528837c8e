"""What the cost model says of a redistribution, for people and programs. Start reading at: CostReport."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dace_redist.report.text import count
from dace_redist.schedule import Schedule
from dace_redist.selection import machine_profile
from dace_redist.selection.bounds import Bound
from dace_redist.selection.cost_model import CostModel, Estimate
from dace_redist.selection.machine_profile import MachineProfile
from dace_redist.selection.paths import profile_path
from dace_redist.selection.problem_key import Problem


def profile_in_use(given: str | os.PathLike[str] | None = None) -> tuple[MachineProfile, str]:
    """
    A machine profile, and where it is from, in one line.

    :param given: Path of the file; default: that of this user, else what ships with the package.
    :raises FileNotFoundError: If there is no such file.
    :raises ValueError: If it is no profile, or damaged.
    :raises OSError: If it cannot be read.
    """
    path = profile_path(given)
    reason = "no machine profile was made here (dace-redist calibrate)"
    if given or path.exists():
        try:
            profile, reason = machine_profile.load(Path(path))
        except FileNotFoundError:
            raise FileNotFoundError(
                f"there is no machine profile {path}: make one with dace-redist calibrate --output {path}"
            ) from None
        if profile is not None:
            return profile, f"{profile.machine}, {profile.mpi}, {profile.date}, {path}"
    standing_in = machine_profile.default_profile()
    return standing_in, f"the profile that ships with the package ({standing_in.machine}): {reason}"


@dataclasses.dataclass(frozen=True)
class CostReport:
    """
    The times of all strategies for a redistribution; printed, it is a table.

    :param model: The model of the redistribution on a machine.
    :param origin: Where the machine profile is from.
    :param strategies: Names of those to report; none: all.
    """

    model: CostModel
    origin: str
    strategies: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        memory: str,
        machine: str | os.PathLike[str] | None = None,
        ranks_per_node: int | None = None,
    ) -> CostReport:
        """
        For ranks that fill one node after another.

        :param memory: Where the arrays lie, one of :data:`dace_redist.selection.problem_key.MEMORIES`.
        :param machine: File of the machine profile; default: see :func:`profile_in_use`.
        :param ranks_per_node: Default: those of the profile.
        :raises ValueError: If the profile has no figures for so many nodes, or so many ranks on one, or of a GPU.
        """
        profile, origin = profile_in_use(machine)
        each = ranks_per_node or profile.ranks_per_node
        node_of = [rank // each for rank in range(schedule.ranks)]
        if node_of and node_of[-1] and profile.network is None:
            raise ValueError(
                f"the machine profile was made on one node, but {schedule.ranks} ranks take {node_of[-1] + 1} nodes of "
                f"{each}: name more --ranks-per-node, or calibrate on two nodes"
            )
        problem = Problem(schedule, memory)
        if problem.on_gpu and profile.device is None:
            raise ValueError(
                f"the machine profile has no figures of a GPU, which memory {memory} needs: run dace-redist calibrate "
                f"where each rank has one (DACE_REDIST_DEVICE=cuda has it say what is missing); the profile is {origin}"
            )
        return cls(CostModel(problem, profile, node_of), origin)

    def __str__(self) -> str:
        """The machine, a line for each strategy with its terms in milliseconds, and the bound."""
        estimates, bound = self.model.estimates(self.strategies), Bound.of(self.model)
        nodes = count(len(set(self.model.node_of)), "node")
        where = f"{count(len(self.model.node_of), 'rank')} on {nodes}, {self.model.problem.memory} arrays"
        lines = [f"machine   {self.origin}"]
        if self.model.problem.on_gpu:
            lines.append(f"GPU       {self.model.rates.device.name}")
        lines.append(f"model     {where}; milliseconds")
        rows = [("", "time", *estimates[0].terms.by_name, "bottleneck", "of the bound")]
        rows += [self._row(estimate, bound) for estimate in estimates]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([*lines, f"bound     {bound}"])

    @staticmethod
    def _row(estimate: Estimate, bound: Bound) -> tuple[str, ...]:
        terms = [f"{1e3 * seconds:.4g}" for seconds in estimate.terms.by_name.values()]
        share = f"{100 * bound.share(estimate.seconds):.0f} %" if bound.remote else "-"
        return str(estimate), f"{1e3 * estimate.seconds:.4g}", *terms, estimate.bottleneck, share

    def to_json(self) -> dict[str, Any]:
        """The same as plain numbers, lists and dictionaries; times in seconds, rates in bytes per second."""
        bound = Bound.of(self.model)
        strategies = [
            {
                "strategy": estimate.strategy,
                "options": dict(estimate.options),
                "seconds": estimate.seconds,
                "terms": estimate.terms.by_name,
                "bottleneck": estimate.bottleneck,
                "share_of_bound": bound.share(estimate.seconds) if bound.remote else None,
            }
            for estimate in self.model.estimates(self.strategies)
        ]
        return {"machine": self.origin, "strategies": strategies, "bound": dataclasses.asdict(bound)}

    def plot(self, path: str | Path) -> None:
        """
        Draw which strategy is the fastest by size and run length on as many ranks of a node of this machine.

        :param path: File to write; its ending says the format: .png, .svg or .pdf.
        """
        from dace_redist.selection.cost_figure import plot_costs

        ranks = max(Counter(self.model.node_of).values())
        plot_costs(self.model.profile, ranks, self.model.problem.memory, path)
