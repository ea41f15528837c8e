"""Schedules of redistributions, from the planner in C++. Start reading at: Schedule."""

from __future__ import annotations

import dataclasses
import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.distribution import AnyDistribution, Distribution, TiledDistribution
from dace_redist.messages import Message, Quantiles, RunLengths, Totals, blocks_of
from dace_redist.transform import Transform, checked_reshape

#: Largest number of ranks for which :meth:`Schedule.volume_matrix` is made: 128 MiB.
MAX_MATRIX_RANKS = 4096
#: Largest number of ranks whose messages are counted, one rank after another.
MAX_COUNTED_RANKS = 1 << 20


@dataclasses.dataclass(frozen=True)
class Schedule:
    """
    Messages that turn one distribution into another; made by :func:`schedule`.

    Methods for one rank plan its own messages; those for all ranks plan one rank after another.

    :param source: Distribution before.
    :param target: Distribution after.
    :param transform: Elements that move, their indices and types in the target, and the operation on them.
    """

    source: AnyDistribution
    target: AnyDistribution
    transform: Transform

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the source's elements."""
        return self.transform.dtype

    @property
    def target_dtype(self) -> np.dtype[Any]:
        """Type of the target's elements."""
        return self.transform.target_dtype

    @property
    def itemsize(self) -> int:
        """Bytes of an element in a message: of the smaller one of the source's type and the target's."""
        return self.transform.itemsize

    @property
    def reduces(self) -> bool:
        """True if the source's replicas are partial results."""
        return self.transform.op is not None

    @property
    def exchanges(self) -> int:
        """
        Number of exchanges, one after another.

        Where partial results are reduced, it is the number of them, and one more if replicas of the target each reduce
        a share, which they then send each other. Ranks of one node reduce all partial results in one exchange where
        their strategy goes through the memory of the node. Else it is one.
        """
        if not self.reduces:
            return 1
        return _core.reduction_exchanges(self.source.core, self.target.core, self._shared_bytes)

    @property
    def _shared_bytes(self) -> int:
        """Bytes of an element of the target; 0 if it is larger than in a message: shares are sent as they are."""
        return self.itemsize if self.itemsize == self.target_dtype.itemsize else 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape of the source, in elements."""
        return tuple(self.source.shape)

    @property
    def ranks(self) -> int:
        """Size of the smallest communicator that holds every rank named."""
        return max(self.source.ranks_needed, self.target.ranks_needed)

    def inverse(self) -> Schedule:
        """Return the schedule of the way back; errors as of :meth:`dace_redist.Plan.inverse`."""
        return Schedule(self.target, self.source, self.transform.inverse(self.source.shape))

    def sends(self, rank: int) -> list[Message]:
        """Return the messages that a rank sends to others, by exchange and ascending target."""
        return self.of_rank(rank)[0]

    def receives(self, rank: int) -> list[Message]:
        """Return the messages that a rank receives from others, by exchange and ascending source."""
        return self.of_rank(rank)[1]

    def self_copy(self, rank: int) -> Message:
        """Return the elements that stay on a rank, as a message; of no elements if nothing does."""
        return self.of_rank(rank)[2]

    def messages(self, rank: int) -> list[Message]:
        """Return all that a rank sends, receives and keeps, in this order."""
        sends, receives, kept = self.of_rank(rank)
        return [*sends, *receives, *([kept] if kept.count else [])]

    def of_rank(self, rank: int) -> tuple[list[Message], list[Message], Message]:
        """Return the messages that a rank sends, receives and keeps; each method above plans all of them."""
        sends, receives, kept = self._planned(rank)
        blocks = tuple(block for _, _, raw in kept for block in blocks_of(raw))
        return (
            [Message(rank, peer, count, blocks_of(raw)) for peer, count, raw in sends],
            [Message(peer, rank, count, blocks_of(raw)) for peer, count, raw in receives],
            Message(rank, rank, _count_of(kept), blocks),
        )

    def _planned(self, rank: int, with_blocks: bool = True) -> tuple[list[Any], list[Any], list[Any]]:
        """Return (peer, count, blocks) of the messages a rank sends, receives and keeps, exchange after exchange."""
        if isinstance(rank, (bool, np.bool_)) or not isinstance(rank, (int, np.integer)):
            raise TypeError(f"Schedule: a rank is an integer, got {rank!r}")
        if rank < 0:
            raise ValueError(f"Schedule: a rank is at least 0, got {rank}")
        given = (self.source.core, self.target.core, operator.index(rank), with_blocks, self.transform.encoded)
        numbers = range(self.exchanges) if self.reduces else (-1,)
        exchanges = [_core.rank_schedule(*given, number, self._shared_bytes) for number in numbers]
        sends, receives, kept = ([entry for one in exchanges for entry in one[part]] for part in range(3))
        return sends, receives, kept

    @cached_property
    def totals(self) -> Totals:
        """Elements and messages of every rank; a ValueError above ``MAX_COUNTED_RANKS`` ranks."""
        if self.ranks > MAX_COUNTED_RANKS:
            raise ValueError(
                f"Schedule: the messages of {self.ranks} ranks are too many to count, the limit is "
                f"{MAX_COUNTED_RANKS} ranks; look at one rank at a time"
            )
        rows, sizes = np.zeros((5, self.ranks), np.int64), Counter[int]()
        for rank in range(self.ranks):
            parts = sends, receives, _ = self._planned(rank, with_blocks=False)
            sizes.update(count for _, count, _ in sends)
            rows[:, rank] = *map(_count_of, parts), len(sends), len(receives)
        sent, received, kept, send_counts, receive_counts = rows
        return Totals(sent, received, kept, send_counts, receive_counts, sizes)

    def sent_to(self, rank: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """
        Return the targets of a rank, itself among them if it keeps something, and the bytes to each.

        That is a row of the volume matrix without its zeros.
        """
        sends, _, kept = self._planned(rank, with_blocks=False)
        counts: Counter[int] = Counter()
        for peer, count, _ in (*sends, *kept):
            counts[peer] += count
        row = np.array([entry for entry in counts.items() if entry[1]], np.int64).reshape(-1, 2)
        return row[:, 0], row[:, 1] * self.itemsize

    def volume_matrix(self) -> npt.NDArray[np.int64]:
        """
        Return the bytes from each rank to each rank, as an array [source, target]; the diagonal does not move.

        :raises ValueError: If there are more than ``MAX_MATRIX_RANKS`` ranks.
        """
        if self.ranks > MAX_MATRIX_RANKS:
            raise ValueError(
                f"Schedule: a volume matrix of {self.ranks} x {self.ranks} ranks is too large, the limit is "
                f"{MAX_MATRIX_RANKS} ranks; sent_to(rank) gives one row without its zeros"
            )
        matrix = np.zeros((self.ranks, self.ranks), np.int64)
        for rank in range(self.ranks):
            targets, nbytes = self.sent_to(rank)
            matrix[rank, targets] = nbytes
        return matrix

    def bytes_moved(self) -> int:
        """Return the bytes that go from one rank to another."""
        return int(self.totals.sent.sum()) * self.itemsize

    def bytes_between_nodes(self, node_of: Sequence[int]) -> int:
        """
        Return the bytes that go from one node to another, by the number of the node of each rank.

        :raises ValueError: If there is not a number for every rank.
        """
        nodes = np.asarray(node_of)
        if nodes.ndim != 1 or len(nodes) < self.ranks:
            raise ValueError(f"Schedule: node_of must have the node of each of {self.ranks} ranks, got {node_of!r}")
        rows = ((nodes[rank], *self.sent_to(rank)) for rank in range(self.ranks))
        return sum(int(nbytes[nodes[targets] != node].sum()) for node, targets, nbytes in rows)

    def bytes_total(self) -> int:
        """Return the bytes that go anywhere, also those that stay on their rank, in the type of messages."""
        return self.bytes_moved() + int(self.totals.kept.sum()) * self.itemsize

    def busiest_rank(self) -> int:
        """Return the rank that sends and receives most bytes together; of several the first."""
        return int(np.argmax(self.totals.sent + self.totals.received))

    def run_lengths(self, senders: Iterable[int] | None = None) -> RunLengths:
        """
        Return the run lengths of messages between ranks in elements, weighted by bytes; zeros if nothing is sent.

        A run on one side is contiguous in that rank's array and consecutive in the packed message.

        :param senders: Ranks whose sends count; default all.
        """
        sender, receiver = Counter[int](), Counter[int]()
        for rank in range(self.ranks) if senders is None else senders:
            for message in self.sends(rank):
                sender.update(message.source_runs)
                receiver.update(message.target_runs)
        return RunLengths(Quantiles.of(sender), Quantiles.of(receiver))

    def __str__(self) -> str:
        """Return the report: messages, bytes, run lengths, the busiest rank, the share that stays local."""
        from dace_redist.report import text as explain

        return explain.text(self)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain numbers, lists and dictionaries; lengths in elements unless named bytes."""
        from dace_redist.report import text as explain

        return explain.to_json(self)

    def plot(self, path: str | Path) -> None:
        """
        Draw the owners before and after, and the volumes between ranks.

        :param path: File to write; its ending says the format: .png, .svg or .pdf.
        :raises ValueError: If the format is unknown.
        :raises FileNotFoundError: If the folder does not exist.
        """
        from dace_redist.report import figure as plot

        plot.plot_schedule(self, path)


def _count_of(entries: Iterable[tuple[int, int, Any]]) -> int:
    return sum(count for _, count, _ in entries)


def schedule(
    source: AnyDistribution,
    target: AnyDistribution,
    dtype: npt.DTypeLike = "float64",
    *,
    axes: Sequence[int] | None = None,
    region: Sequence[Sequence[int]] | None = None,
    target_dtype: npt.DTypeLike | None = None,
    alpha: complex = 1,
    beta: complex = 0,
    conj: bool = False,
    op: str | None = None,
    reshape: Sequence[int] | None = None,
) -> Schedule:
    """
    Return the schedule that turns one distribution into another; nothing is planned before it is asked.

    :param source: Distribution before; all its sizes numbers.
    :param target: Distribution after; of the same shape, but for ``axes``, ``region`` and ``reshape``.
    :param dtype: Element type of the source, a NumPy or DaCe type.
    :param axes: Permutation of the dimensions: the source axis that each target axis comes from.
    :param region: Sub-tensor that moves: (source_offset, target_offset, shape), each offset in the axes of its own
        tensor, the shape in those of the source.
    :param target_dtype: Element type of the target; default: ``dtype``.
    :param alpha: The target becomes ``alpha * source + beta * target``.
    :param beta: See ``alpha``.
    :param conj: True to conjugate the source.
    :param op: Reduction of the source's replicas, which are partial results then: see :func:`dace_redist.plan`.
    :param reshape: Shape of the target, to which the source, permuted by ``axes``, is reshaped in C order; one extent
        may be -1.
    :raises TypeError: If source or target is not a distribution, or a type has no fixed size or is not computed with.
    :raises ValueError: If the shapes, axes, region, reshape or operation do not fit each other, or a size is a symbol.
    """
    for name, distribution in (("source", source), ("target", target)):
        if not isinstance(distribution, Distribution | TiledDistribution):
            raise TypeError(f"{name} must be a Distribution or TiledDistribution, got {distribution!r}")
    reshape = checked_reshape(reshape, target.shape)
    change = Transform(len(source.shape), dtype, target_dtype, axes, region, alpha, beta, conj, op, reshape)  # type: ignore[arg-type]
    check_shapes(source, target, change)
    return Schedule(source, target, change)


def check_shapes(source: AnyDistribution, target: AnyDistribution, change: Transform) -> None:
    """
    Check axes, region and reshape against the shapes of both distributions, all of which are numbers.

    :raises ValueError: If they do not fit.
    """
    try:
        _core.check_index_map(source.core, target.core, change.encoded)
    except _core.Error as error:
        raise ValueError(str(error)) from None
