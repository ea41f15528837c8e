"""A program of einsums on several numbers of ranks. Start reading at: Scaling."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dace_redist.einsum.plan import EinsumPlan
from dace_redist.report.canvas import save
from dace_redist.report.units import milliseconds, table
from dace_redist.simulation.program import SimulatedProgram


@dataclasses.dataclass(frozen=True)
class Scaling:
    """A program on several ascending numbers of ranks, with which its size may grow; printed, it is a table."""

    programs: Sequence[SimulatedProgram]
    weak: bool

    @property
    def efficiencies(self) -> list[float]:
        """Operations per second and rank, to those of the fewest ranks; 1 if nothing is computed."""
        rates = [_all_flops(one) / one.seconds / one.job.ranks if one.seconds else 0.0 for one in self.programs]
        return [rate / rates[0] if rates[0] else 1.0 for rate in rates]

    def __str__(self) -> str:
        """The machine, and a line for each number of ranks."""
        first = self.programs[0]
        sizes = "sizes grow with the ranks" if self.weak else "the same sizes"
        lines = [
            f"machine   {first.job.machine}",
            f"program   {sizes}, tensors moved by {first.strategy}; milliseconds",
        ]
        rows = [("ranks", "nodes", "time", *first.by_kind, "efficiency", "busiest link")]
        for one, efficiency in zip(self.programs, self.efficiencies, strict=True):
            times = map(milliseconds, (one.seconds, *one.by_kind.values()))
            where = (f"{one.job.ranks:,}", f"{one.job.nodes:,}")
            rows.append((*where, *times, f"{100 * efficiency:.0f} %", one.busiest_link.name or "-"))
        lines += table(rows)
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries; times in seconds."""
        runs = [
            one.to_json() | {"efficiency": efficiency}
            for one, efficiency in zip(self.programs, self.efficiencies, strict=True)
        ]
        return {"scaling": "weak" if self.weak else "strong", "runs": runs}

    def plot(self, path: str | Path) -> None:
        """Draw time by kind of step, efficiency and time of the busiest link, to a .png, .svg or .pdf file."""
        from dace_redist.simulation import figures

        save(lambda: figures.draw_scaling(self), path)


def _all_flops(program: SimulatedProgram) -> float:
    plan = program.plan
    return sum(plan.repeats(n) * plan.costs[n].flops * len(group.ranks) for n, group in enumerate(plan.groups))


def growth(one: EinsumPlan, twice: EinsumPlan, ranks: int) -> float:
    """
    Return the factor of all sizes with which each of ``ranks`` ranks has as many operations as one.

    It is found from the plans on one rank, for the sizes given and for twice those.
    """
    power = math.log2(twice.flops / one.flops) if one.flops else 1.0
    return float(ranks ** (1 / max(power, 1.0)))
