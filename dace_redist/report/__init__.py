"""A schedule as text, JSON and figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Reported:
    """Schedule of one tensor or several as text, JSON and figure."""

    def __str__(self) -> str:
        """Return the report: messages, bytes, run lengths, the busiest rank, the share that stays local."""
        from dace_redist.report import text

        return text.text(self)  # type: ignore[arg-type]

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain numbers, lists and dictionaries."""
        from dace_redist.report import as_json

        return as_json.to_json(self)  # type: ignore[arg-type]

    def plot(self, path: str | Path) -> None:
        """
        Draw the owners in source and target, of the first tensor, and the volumes between ranks.

        :param path: File to write; its ending says the format: .png, .svg or .pdf.
        :raises ValueError: If the format is unknown.
        :raises FileNotFoundError: If the folder does not exist.
        """
        from dace_redist.report import canvas, figure

        canvas.save(lambda: figure.draw(self), path)  # type: ignore[arg-type]

    def to_smpi(self, folder: str | Path) -> None:
        """
        Write traces that SMPI of SimGrid replays: one of each rank, and their list ``traces``.

        Copies take no time in them.

        :param folder: Folder of the files, which is made if it is missing.
        :raises OSError: If a file cannot be written.
        """
        from dace_redist.report import replay

        replay.write_smpi([replay.Step(self)], self.ranks, folder)  # type: ignore[arg-type, attr-defined]

    def to_goal(self, path: str | Path) -> None:
        """
        Write messages as GOAL text, for LogGOPSim and ATLAHS; copies take no time in it.

        :param path: File to write.
        :raises OSError: If the file cannot be written.
        """
        from dace_redist.report import replay

        replay.write_goal([replay.Step(self)], self.ranks, path)  # type: ignore[arg-type, attr-defined]
