"""Schedules of redistributions, from the planner in C++. Start reading at: Schedule."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.distribution import AnyDistribution, BoxDistribution, check_distribution
from dace_redist.integers import AnyInt, AnyInts, AnyNumber, checked_rank, checked_reshape
from dace_redist.messages import Message, MessageArrays, Quantiles, RankArrays, RunLengths, Totals
from dace_redist.report import Reported
from dace_redist.transform import Transform

#: Largest number of ranks for which :meth:`Schedule.volume_matrix` is made: 128 MiB.
MAX_MATRIX_RANKS = 4096
#: Largest number of ranks whose messages are counted, one rank after another.
MAX_COUNTED_RANKS = 1 << 20


@dataclasses.dataclass(frozen=True)
class Schedule(Reported):
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
    def exchanges_halo(self) -> bool:
        """True if only margins change, so that source and target may be one array."""
        moved = self.transform
        return any(self.source.halo) and self.source == self.target and moved.is_copy and not moved.encoded

    @property
    def exchanges(self) -> int:
        """
        Number of exchanges, one after another: more than 1 for a reduction.

        One more follows if replicas of the target reduce a share each, which they then send each other. Ranks of a node
        whose strategy uses shared memory reduce all partial results in one exchange.
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
        """Minimum size of a communicator."""
        return max(self.source.ranks_needed, self.target.ranks_needed)

    def sends(self, rank: AnyInt) -> list[Message]:
        """Return the messages that a rank sends, by exchange and target."""
        return self.of_rank(rank)[0]

    def receives(self, rank: AnyInt) -> list[Message]:
        """Return the messages that a rank receives, by exchange and source."""
        return self.of_rank(rank)[1]

    def self_copy(self, rank: AnyInt) -> Message:
        """Return the elements that stay on a rank, as a message."""
        return self.of_rank(rank)[2]

    def messages(self, rank: AnyInt) -> list[Message]:
        """Return the messages that a rank sends, receives and keeps, in this order."""
        sends, receives, kept = self.of_rank(rank)
        return [*sends, *receives, *([kept] if kept.count else [])]

    def of_rank(self, rank: AnyInt) -> tuple[list[Message], list[Message], Message]:
        """Return the messages that a rank sends, receives and keeps; each method above plans all of them."""
        return self.arrays(rank).messages(int(rank))

    def arrays(self, rank: AnyInt, with_blocks: bool = True) -> RankArrays:
        """
        Return the messages of a rank as NumPy arrays, for a transport other than MPI.

        :param with_blocks: False to plan peers and elements only.
        :raises ValueError: If the rank is negative; a TypeError if it is not an integer.
        """
        where = self.source.core, self.target.core, checked_rank(rank), with_blocks, self.transform.encoded
        parts = _core.rank_schedule(*where, self.reduces, self._shared_bytes)
        return RankArrays(*(MessageArrays(*part) for part in parts))

    def inverse(self) -> Schedule:
        """Return the schedule of the way back; errors as of :meth:`dace_redist.Plan.inverse`."""
        return Schedule(self.target, self.source, self.transform.inverse(self.source.shape))

    def adjoint(self, *, source_partial: bool = True, target_partial: bool = True) -> Schedule:
        """Return the schedule of the adjoint; see :meth:`dace_redist.Plan.adjoint`."""
        if any((*self.source.halo, *self.target.halo)):
            raise ValueError(
                "adjoint: gradients in a halo take exchanges of their own, which a schedule does not have: take "
                "Plan.adjoint, or distributions without halo"
            )
        try:
            shares = self.source.replicas if source_partial and not self.reduces else 1
            reduces = target_partial and self.target.replicas > 1
        except ValueError as error:  # of boxes
            raise ValueError(
                f"adjoint: {error}; if all that hold an element have one gradient, pass source_partial=False or "
                "target_partial=False"
            ) from None
        return Schedule(self.target, self.source, self.transform.adjoint(self.source.shape, shares, reduces))

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
            parts = sends, receives, _ = self.arrays(rank, with_blocks=False)
            sizes.update(sends.elements.tolist())
            rows[:, rank] = *(part.elements.sum() for part in parts), len(sends), len(receives)
        sent, received, kept, send_counts, receive_counts = rows
        return Totals(sent, received, kept, send_counts, receive_counts, sizes)

    def sent_to(self, rank: AnyInt) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """
        Return the targets of a rank, itself among them if it keeps something, and the bytes to each.

        That is a row of the volume matrix without its zeros.

        :raises ValueError: If one rank gets 8 EiB or more.
        """
        sends, _, kept = self.arrays(rank, with_blocks=False)
        peers, elements = (
            np.concatenate(pair) for pair in ((sends.peers, kept.peers), (sends.elements, kept.elements))
        )
        targets, rows = np.unique(peers[elements > 0], return_inverse=True)
        counts = np.zeros(len(targets), np.int64)
        np.add.at(counts, rows, elements[elements > 0])
        if counts.max(initial=0) > np.iinfo(np.int64).max // self.itemsize:
            raise ValueError(
                f"Schedule: rank {rank} sends a rank {counts.max()} elements, whose bytes are more than 64 bits hold; "
                "bytes_moved() has no such limit"
            )
        return targets, counts * self.itemsize

    def volume_matrix(self) -> npt.NDArray[np.int64]:
        """
        Return the bytes from each rank to each rank, as an array [source, target].

        :raises ValueError: If there are more than ``MAX_MATRIX_RANKS`` ranks, or as of :meth:`sent_to`.
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
        """Return the bytes that move between ranks."""
        return int(self.totals.sent.sum()) * self.itemsize

    def bytes_between_nodes(self, node_of: npt.ArrayLike) -> int:
        """
        Return the bytes between nodes, by the node of each rank.

        :raises ValueError: If there is not a number for every rank.
        """
        nodes = np.asarray(node_of)
        if nodes.ndim != 1 or len(nodes) < self.ranks:
            raise ValueError(f"Schedule: node_of must have the node of each of {self.ranks} ranks, got {node_of!r}")
        rows = ((nodes[rank], *self.sent_to(rank)) for rank in range(self.ranks))
        return sum(sum(nbytes[nodes[targets] != node].tolist()) for node, targets, nbytes in rows)

    def bytes_total(self) -> int:
        """Return the bytes that go anywhere, also those that stay on their rank, in the type of messages."""
        return self.bytes_moved() + int(self.totals.kept.sum()) * self.itemsize

    def busiest_rank(self) -> int:
        """Return the rank that sends and receives most bytes together; of several the first."""
        return int(np.argmax(self.totals.sent + self.totals.received))

    def run_lengths(self, senders: Iterable[int] | None = None) -> RunLengths:
        """
        Return the run lengths of messages between ranks in elements, weighted by bytes.

        A run on one side is contiguous in that rank's array and consecutive in the packed message.

        :param senders: Ranks whose sends count; default all.
        :raises TypeError: If they are not integers; a ValueError if one is negative.
        """
        if senders is not None and not isinstance(senders, Iterable):
            raise TypeError(f"senders must be a list of ranks, got {senders!r}")
        sender, receiver = Counter[int](), Counter[int]()
        for rank in range(self.ranks) if senders is None else senders:
            for message in self.sends(rank):
                sender.update(message.source_runs)
                receiver.update(message.target_runs)
        return RunLengths(Quantiles.of(sender), Quantiles.of(receiver))


def schedule(
    source: AnyDistribution,
    target: AnyDistribution,
    dtype: npt.DTypeLike = "float64",
    *,
    axes: AnyInts | None = None,
    region: Sequence[AnyInts] | None = None,
    target_dtype: npt.DTypeLike | None = None,
    alpha: AnyNumber = 1,
    beta: AnyNumber = 0,
    conj: bool = False,
    op: str | None = None,
    reshape: AnyInts | None = None,
) -> Schedule:
    """
    Return the messages that turn one distribution into another. Local; needs no MPI.

    Parameters that are not listed here are those of :func:`dace_redist.plan`.

    :param source: See :func:`dace_redist.plan`.
    :param target: See :func:`dace_redist.plan`.
    :param dtype: See :func:`dace_redist.plan`.
    :raises TypeError: If source or target is not a distribution, or a type has no fixed size or is not computed with.
    :raises ValueError: If an argument is invalid, or a size is a symbol.
    """
    for name, distribution in (("source", source), ("target", target)):
        check_distribution(name, distribution)
    reshape = checked_reshape(reshape, target.shape)
    change = Transform(len(source.shape), dtype, target_dtype, axes, region, alpha, beta, conj, op, reshape)  # type: ignore[arg-type]
    check_shapes(source, target, change)
    if op is not None and isinstance(source, BoxDistribution):
        raise ValueError(
            "op reduces replicas of a Distribution; overlapping boxes of a source hold equal elements: describe "
            "partial results by a grid axis that no tensor axis names"
        )
    return Schedule(source, target, change)


def check_shapes(source: AnyDistribution, target: AnyDistribution, change: Transform) -> None:
    """
    Check axes, region and reshape against the shapes of both distributions, all of which are numbers.

    :raises ValueError: If they do not fit.
    """
    _core.check_index_map(source.core, target.core, change.encoded)
