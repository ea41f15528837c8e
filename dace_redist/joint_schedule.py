"""Who sends what to whom where several tensors move in one exchange. Start reading at: JointSchedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist.schedule import Schedule


class JointSchedule:
    """
    The messages of several tensors that move in one exchange: what goes to the same rank is one message, as strategy
    ``Pack`` sends them.

    :param tensors: What moves of each, at least one.
    :raises ValueError: If there are none, or one of them is reduced on its way, which takes exchanges of its own.
    """

    def __init__(self, tensors: Sequence[Schedule]) -> None:
        self.tensors = tuple(tensors)
        if not self.tensors:
            raise ValueError("JointSchedule: needs at least one tensor")
        if any(tensor.reduces for tensor in self.tensors):
            raise ValueError("JointSchedule: a tensor with an op moves in exchanges of its own, which are not joined")

    @property
    def ranks(self) -> int:
        """Size of the smallest communicator that holds every rank named."""
        return max(tensor.ranks for tensor in self.tensors)

    @property
    def reduces(self) -> bool:
        """Whether partial results are reduced: never."""
        return False

    def sent_to(self, rank: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """
        Bytes that a rank sends to each, of all tensors.

        :param rank: The sender.
        :return: Targets (the rank itself among them if it keeps something) and bytes.
        """
        row = Counter[int]()
        for tensor in self.tensors:
            for target, nbytes in np.column_stack(tensor.sent_to(rank)).tolist():
                row[target] += nbytes
        pairs = np.array(sorted(row.items()), np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    @cached_property
    def messages(self) -> Counter[tuple[int, int]]:
        """Bytes of the message from one rank to another, by (source, target)."""
        rows = ((rank, self.sent_to(rank)) for rank in range(self.ranks))
        pairs = ((rank, *pair) for rank, row in rows for pair in np.column_stack(row).tolist())
        return Counter({(rank, target): nbytes for rank, target, nbytes in pairs if rank != target})

    @property
    def separate_messages(self) -> int:
        """Messages if the tensors were moved one after another."""
        return sum(int(tensor.totals.sends.sum()) for tensor in self.tensors)

    def bytes_moved(self) -> int:
        """Bytes that go from one rank to another."""
        return sum(self.messages.values())

    def bytes_total(self) -> int:
        """Bytes that go anywhere, those that stay on their rank among them."""
        return sum(tensor.bytes_total() for tensor in self.tensors)

    def __str__(self) -> str:
        """The report for people: messages and bytes of all tensors together."""
        from dace_redist.report import joint

        return joint.joint_text(self)

    def to_json(self) -> dict[str, Any]:
        """The report as plain numbers, lists and dictionaries."""
        from dace_redist.report import joint

        return joint.joint_json(self)

    def plot(self, path: str | Path) -> None:
        """
        Draw who owns what of the first tensor, and who sends how much of all tensors to whom.

        :param path: File to write; its ending says the format: .png, .svg or .pdf.
        :raises ValueError: If the format is unknown.
        :raises FileNotFoundError: If the folder does not exist.
        """
        from dace_redist.report import figure

        figure.plot_schedule(self, path)
