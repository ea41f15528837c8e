"""Schedules of several tensors that move in one exchange."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dace_redist.report import Reported
from dace_redist.schedule import Schedule


class JointSchedule(Reported):
    """
    Messages of several tensors that move in one exchange, joined for each pair of ranks, as strategy ``Pack`` does.

    :param tensors: Schedule of each, at least one.
    :raises ValueError: If there are none, or one of them is reduced on its way, which takes exchanges of its own.
    """

    reduces = False

    def __init__(self, tensors: Sequence[Schedule]) -> None:
        self.tensors = tuple(tensors)
        if not self.tensors:
            raise ValueError("JointSchedule: needs at least one tensor")
        if any(tensor.reduces for tensor in self.tensors):
            raise ValueError("JointSchedule: a tensor with an op moves in exchanges of its own, which are not joined")

    @property
    def ranks(self) -> int:
        """Minimum size of a communicator."""
        return max(tensor.ranks for tensor in self.tensors)

    def sent_to(self, rank: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the targets of a rank and the bytes to each, of all tensors, see :meth:`Schedule.sent_to`."""
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
        """Number of messages if the tensors were moved one after another."""
        return sum(int(tensor.totals.sends.sum()) for tensor in self.tensors)

    def bytes_moved(self) -> int:
        """Return the bytes that move between ranks."""
        return sum(self.messages.values())

    def bytes_total(self) -> int:
        """Return the bytes that go anywhere, also those that stay on their rank."""
        return sum(tensor.bytes_total() for tensor in self.tensors)
