"""Plans of programs of einsums, and what shows them. Start reading at: EinsumPlan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dace_redist.einsum.placement import Home, dtype_of, schedule_of
from dace_redist.einsum.program import PlannedProgram
from dace_redist.report.replay import Replayed, Step


class EinsumPlan(PlannedProgram, Replayed):
    """Plan of a program of einsums on several ranks, made by :func:`plan_einsums`; printed, it is a report."""

    def __str__(self) -> str:
        from dace_redist.einsum import report

        return report.text(self)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as dictionaries, lists and numbers, with the ranks of each group and move."""
        from dace_redist.einsum import report

        return report.to_json(self)

    def plot(self, path: str | Path) -> None:
        """
        Draw tensors, groups with their grids, and redistributions with their volume.

        :param path: File to write; its suffix selects the format: .png, .svg or .pdf.
        :raises ValueError: If the format is unknown.
        :raises FileNotFoundError: If the folder does not exist.
        :raises ImportError: If Matplotlib is not installed.
        """
        from dace_redist.einsum.plot import draw
        from dace_redist.report.canvas import save

        save(lambda: draw(self), path)

    def steps(self) -> tuple[int, list[Step]]:
        """
        Return the number of ranks, and the steps of one run, of inputs in their homes.

        A barrier separates steps, as the planner assumes. Each rank of a group has the operations of the busiest one.
        """

        def exchange(source: Home, target: Home, name: str, op: str | None = None) -> Step:
            return Step(schedule_of(source, target, self.sizes[name], dtype_of(self.itemsize), op))

        steps = list[Step]()
        for number, group in enumerate((*self.groups, None)):
            steps += [exchange(m.source, m.target, m.tensor) for m in self.moves if m.before_group == number]
            if group is not None:
                steps.append(Step(flops=group.flops, ranks=frozenset(group.ranks)))
            if group is not None and group.reduction is not None:
                steps.append(exchange(group.partial_placement, group.result_placement, group.result, op="sum"))
        return self.ranks, steps
