"""Plans of programs of einsums, and what shows them. Start reading at: EinsumPlan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dace_redist.einsum.groupings import FLOPS_PER_SECOND
from dace_redist.einsum.program import PlannedProgram


class EinsumPlan(PlannedProgram):
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

    def to_smpi(self, folder: str | Path) -> None:
        """
        Write one run, of inputs in their homes, as traces for SMPI of SimGrid; see :meth:`Schedule.to_smpi`.

        Each step follows a barrier, as the planner assumes. Ranks compute the operations of the busiest one.
        """
        from dace_redist.einsum.report import steps
        from dace_redist.report.replay import write_smpi

        write_smpi(list(steps(self)), self.ranks, folder)

    def to_goal(self, path: str | Path, flops_per_second: float = FLOPS_PER_SECOND) -> None:
        """
        Write one run as GOAL text; see :meth:`Schedule.to_goal` and :meth:`to_smpi`.

        :param flops_per_second: Operations of a rank per second, which GOAL counts in nanoseconds.
        """
        from dace_redist.einsum.report import steps
        from dace_redist.report.replay import write_goal

        write_goal(list(steps(self)), self.ranks, path, flops_per_second)
