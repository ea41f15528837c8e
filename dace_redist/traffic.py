"""Messages of a redistribution in numbers, from the planner in C++. Start reading at: Traffic."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.distribution import AnyDistribution
from dace_redist.integers import AnyInt, at_least
from dace_redist.messages import Message, MessageArrays, Quantiles, RankArrays, RunLengths, Totals
from dace_redist.transform import Transform

#: Largest number of ranks for which :meth:`Traffic.volume_matrix` is made: 128 MiB.
MAX_MATRIX_RANKS = 4096
#: Largest number of ranks whose messages are counted, one rank after another.
MAX_COUNTED_RANKS = 1 << 20


@dataclasses.dataclass(frozen=True)
class Traffic:
    """
    Messages that turn one distribution into another, of one tensor, or of several that move in one exchange.

    Methods for one rank plan its own messages; those for all ranks plan one rank after another. Of several tensors,
    properties are those of the first, except for ``ranks``, and only bytes are counted.

    :param source: Distribution before.
    :param target: Distribution after.
    :param transform: Elements that move, their indices and types in the target, and the operation on them.
    :param others: Further tensors, whose messages between two ranks are joined with those of the first one.
    :raises ValueError: If one of several tensors is reduced on its way, which takes exchanges of its own.
    """

    source: AnyDistribution
    target: AnyDistribution
    transform: Transform
    others: tuple[Traffic, ...] = ()

    def __post_init__(self) -> None:
        if self.others and any(tensor.reduces for tensor in self.tensors):
            raise ValueError("Schedule: a tensor with an op moves in exchanges of its own, which are not joined")

    @property
    def tensors(self) -> tuple[Traffic, ...]:
        """The schedule of each tensor."""
        return (self._first, *self.others) if self.others else (self,)

    @cached_property
    def _first(self) -> Traffic:
        return dataclasses.replace(self, others=())

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

    @cached_property
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
        """Bytes of an element of a share; 0 if it is larger than one of the source: there are no shares."""
        nbytes = self.transform.result_itemsize
        return nbytes if nbytes <= self.dtype.itemsize else 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape of the source, in elements."""
        return tuple(self.source.shape)

    @property
    def ranks(self) -> int:
        """Minimum size of a communicator."""
        return max(max(tensor.source.ranks_needed, tensor.target.ranks_needed) for tensor in self.tensors)

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
        :raises ValueError: If the rank is negative, or there are several tensors; a TypeError if it is not an integer.
        """
        self._check_single()
        where = self.source.core, self.target.core, at_least(0, "rank", rank), with_blocks, self.transform.encoded
        parts = _core.rank_schedule(*where, self.reduces, self._shared_bytes)
        return RankArrays(*(MessageArrays(*part) for part in parts))

    @cached_property
    def totals(self) -> Totals:
        """Elements and messages of every rank; a ValueError above ``MAX_COUNTED_RANKS`` ranks."""
        if self.ranks > MAX_COUNTED_RANKS:
            raise ValueError(
                f"Schedule: the messages of {self.ranks} ranks are too many to count, the limit is "
                f"{MAX_COUNTED_RANKS} ranks; look at one rank at a time"
            )
        rows, sizes, results = np.zeros((5, self.ranks), np.int64), Counter[int](), 0
        for rank in range(self.ranks):
            parts = sends, receives, _ = self.arrays(rank, with_blocks=False)
            sizes.update(sends.elements.tolist())
            results += int(sends.elements[self._are_results(sends)].sum())
            rows[:, rank] = *(part.elements.sum() for part in parts), len(sends), len(receives)
        sent, received, kept, send_counts, receive_counts = rows
        return Totals(sent, received, kept, send_counts, receive_counts, sizes, results)

    def sent_to(self, rank: AnyInt) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """
        Return the targets of a rank, itself among them if it keeps something, and the bytes to each.

        That is a row of the volume matrix without its zeros.

        :raises ValueError: If one rank gets 8 EiB or more.
        """
        if self.others:
            all_targets, all_nbytes = map(np.concatenate, zip(*(t.sent_to(rank) for t in self.tensors), strict=True))
            targets, columns = np.unique(all_targets, return_inverse=True)
            nbytes = np.zeros(len(targets), np.int64)
            np.add.at(nbytes, columns, all_nbytes)
            return targets, nbytes
        return self._sent_by(rank, self.itemsize, self.transform.result_itemsize)

    def _sent_by(
        self, rank: AnyInt, itemsize: int, result_itemsize: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the targets of a rank, and the bytes to each, by the bytes of an element and of one of a result."""
        sends, _, kept = self.arrays(rank, with_blocks=False)
        columns = ((m.peers, m.elements, self._bytes_of(m, itemsize, result_itemsize)) for m in (sends, kept))
        peers, elements, sizes = (np.concatenate(column) for column in zip(*columns, strict=True))
        targets, rows = np.unique(peers[elements > 0], return_inverse=True)
        counts = np.zeros(len(targets), np.int64)
        np.add.at(counts, rows, elements[elements > 0])
        if counts.max(initial=0) > np.iinfo(np.int64).max // max(itemsize, result_itemsize):
            raise ValueError(
                f"Schedule: rank {rank} sends a rank {counts.max()} elements, whose bytes are more than 64 bits hold; "
                "bytes_moved() has no such limit"
            )
        nbytes = np.zeros(len(targets), np.int64)
        np.add.at(nbytes, rows, sizes[elements > 0])
        return targets, nbytes

    def _are_results(self, messages: MessageArrays) -> npt.NDArray[np.bool_]:
        """Return which messages hold results of a reduction: replicas of the target send them to each other."""
        return np.equal(messages.exchanges, self.source.core.replicas if self.reduces else -1)

    def bytes_of(self, messages: MessageArrays) -> npt.NDArray[np.int64]:
        """Return the bytes of messages of a rank between ranks of a node, [messages]."""
        return self._bytes_of(messages, self.itemsize, self.transform.result_itemsize)

    def _bytes_of(self, messages: MessageArrays, itemsize: int, result_itemsize: int) -> npt.NDArray[np.int64]:
        return messages.elements * np.where(self._are_results(messages), result_itemsize, itemsize)

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
        return sum(
            int(tensor.totals.sent.sum()) * tensor.itemsize
            + tensor.totals.results * (tensor.transform.result_itemsize - tensor.itemsize)
            for tensor in self.tensors
        )

    def bytes_between_nodes(self, node_of: npt.ArrayLike) -> int:
        """
        Return the bytes between nodes, by the node of each rank, with a strategy that uses node-shared memory.

        An element moves once into each node where ranks want it; partial results of a node are added on the node.

        :raises ValueError: If there is not a number for every rank.
        """
        nodes = self._nodes(node_of)
        return sum(sum(nbytes.tolist()) for *_, nbytes in self._between_nodes(nodes))

    def _between_nodes(self, nodes: npt.NDArray[np.int64]) -> Iterable[tuple[Any, Any, npt.NDArray[np.int64]]]:
        """
        Yield sending and receiving nodes, and the bytes, of messages between nodes.

        :param nodes: Node of each rank, counted from 0 on.
        """
        for tensor in self.tensors:
            for senders, receivers, nbytes in tensor._node_messages(nodes):
                here, there = np.broadcast_arrays(nodes[senders], nodes[receivers])
                away = here != there
                yield here[away], there[away], nbytes[away]

    def _node_messages(self, nodes: npt.NDArray[np.int64]) -> Iterable[tuple[Any, Any, npt.NDArray[np.int64]]]:
        """Yield senders, receivers and bytes of messages where replicas, and sums, move by nodes."""
        replicas = max(self.source.core.replicas, self.target.core.replicas)
        if replicas == 1 or nodes.max() in (0, len(nodes) - 1):
            for rank in range(self.ranks):
                change = self.transform
                yield rank, *self._sent_by(rank, change.wire_itemsize, change.forwarded_itemsize)
            return
        on_node = np.unique(nodes, return_index=True)[1][nodes]
        sums = self.reduces and self.source.core.replicas > 1
        change = self.transform
        where = self.source.core, self.target.core, change.encoded, sums, change.reproducible
        senders, receivers, elements, step = _core.node_messages(*where, on_node.tolist()).T
        levels = max(1, (self.source.core.replicas - 1).bit_length()) if change.reproducible else 2
        sizes = [change.wire_itemsize] + [change.sum_itemsize] * (levels - 1 if sums else 0)
        yield senders, receivers, elements * np.take([*sizes, *[change.forwarded_itemsize] * 2], step)

    def bound(self, bytes_per_second: float, copies: float = 1, node_of: npt.ArrayLike | None = None) -> float:
        """
        Return a lower bound of the time in seconds: that of the busiest rank, or of the busiest node's link.

        A rank copies ``copies`` times what it sends, or receives if that is more, and once what stays on it. After Cao
        et al., *Evaluating Data Redistribution in PaRSEC*, formula 3, with one rate.

        :param bytes_per_second: Rate of a rank; with ``node_of`` of a node's link in each direction.
        :param copies: Copies of what moves: 1 straight to its place, 2 through a buffer.
        :param node_of: Node of each rank: the bound by what passes the nodes' links.
        :raises ValueError: If the rate is not positive, or there is not a node for every rank.
        """
        if not bytes_per_second > 0:
            raise ValueError(f"Schedule: bytes_per_second must be positive, got {bytes_per_second!r}")
        if node_of is not None:
            return copies * self._busiest_link(self._nodes(node_of)) / bytes_per_second
        sent, received, kept = np.zeros((3, self.ranks))
        for rank in range(self.ranks):
            targets, nbytes = self.sent_to(rank)
            away = targets != rank
            sent[rank] += nbytes[away].sum()
            kept[rank] += nbytes[~away].sum()
            np.add.at(received, targets[away], nbytes[away])
        busiest = copies * np.maximum(sent, received) + kept
        return float(busiest.max(initial=0)) / bytes_per_second

    def _busiest_link(self, nodes: npt.NDArray[np.int64]) -> float:
        """Return the bytes that leave, or reach, a node, whichever is most."""
        through = np.zeros((2, len(nodes)))
        for sides in self._between_nodes(nodes):
            for side in (0, 1):
                np.add.at(through[side], sides[side], sides[2])
        return float(through.max(initial=0))

    def _nodes(self, node_of: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the node of each rank, counted from 0 on."""
        nodes = np.asarray(node_of)
        if nodes.ndim != 1 or len(nodes) < self.ranks:
            raise ValueError(f"Schedule: node_of must have the node of each of {self.ranks} ranks, got {node_of!r}")
        return np.unique(nodes[: self.ranks], return_inverse=True)[1]

    def _check_single(self) -> None:
        if self.others:
            raise ValueError("Schedule: of several tensors only bytes are counted; look at one of its tensors")

    def bytes_total(self) -> int:
        """Return the bytes that go anywhere, also those that stay on their rank, in the type of messages."""
        kept = sum(int(tensor.totals.kept.sum()) * tensor.itemsize for tensor in self.tensors)
        return self.bytes_moved() + kept

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
