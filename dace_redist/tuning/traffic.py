"""Traffic of ranks for the cost model: sizes and contiguous runs of messages and self copies, in bytes."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from dace_redist.messages import Message
from dace_redist.schedule import Schedule

#: Lengths of runs, and bytes in runs of each length.
Runs = tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True)
class Traffic:
    """
    A message, or a self copy.

    :param sent: Runs at the sender.
    :param received: Runs at the receiver.
    :param both: Runs that are contiguous on both sides.
    :param within: Whether it stays on its node.
    :param times: Number of such messages.
    """

    nbytes: int
    sent: Runs
    received: Runs
    both: Runs
    within: bool
    times: int = 1

    @classmethod
    def of(cls, message: Message, itemsize: int, within: bool) -> Traffic:
        """Describe a message of elements of ``itemsize`` bytes."""
        sent, received, direct = (
            tuple(sorted((length * itemsize, length * often * itemsize) for length, often in runs.items()))
            for runs in (message.source_runs, message.target_runs, message.common_runs)
        )
        return cls(message.nbytes(itemsize), sent, received, direct, within)

    def contiguous(self, sent: bool) -> bool:
        """Return whether it is one run at the sender, or at the receiver, so that nothing is packed."""
        return (self.sent if sent else self.received) == ((self.nbytes, self.nbytes),)

    @property
    def total_bytes(self) -> int:
        """Bytes of all such messages."""
        return self.nbytes * self.times


#: A self copy of nothing.
NOTHING = Traffic(0, (), (), (), True)


@dataclasses.dataclass(frozen=True)
class RankTraffic:
    """
    Traffic of one rank.

    :param sends: Messages to other ranks, equal ones as one.
    :param receives: Messages from other ranks, equal ones as one.
    :param own: The self copy.
    :param nodes: Other nodes that it sends to, or receives from, whichever are more.
    """

    sends: Sequence[Traffic]
    receives: Sequence[Traffic]
    own: Traffic
    nodes: int = 0

    @classmethod
    def of(cls, schedule: Schedule, rank: int, node_of: Sequence[int]) -> RankTraffic:
        """Describe a rank of a redistribution; ``node_of`` is the node of each rank."""
        node, itemsize = node_of[rank], schedule.itemsize
        sends, receives, own = schedule.of_rank(rank)

        def counted(messages: Iterable[Message], peers: Sequence[int]) -> list[Traffic]:
            each = Counter(Traffic.of(m, itemsize, node_of[p] == node) for m, p in zip(messages, peers, strict=True))
            return [dataclasses.replace(message, times=times) for message, times in each.items()]

        targets, sources = [m.target for m in sends], [m.source for m in receives]
        nodes = max(len({node_of[peer] for peer in peers} - {node}) for peers in (targets, sources))
        return cls(counted(sends, targets), counted(receives, sources), Traffic.of(own, itemsize, True), nodes)

    def side(self, sent: bool) -> Sequence[Traffic]:
        """Return the messages to, or from, other ranks."""
        return self.sends if sent else self.receives

    def footprint(self, sent: bool) -> int:
        """Return the bytes read of its source, or written of its target, with the self copy."""
        return self._footprints[not sent]

    @cached_property
    def _footprints(self) -> tuple[int, int]:
        sent, received = (sum(m.total_bytes for m in side) + self.own.nbytes for side in (self.sends, self.receives))
        return sent, received

    @property
    def max_footprint(self) -> int:
        """The larger footprint of both sides."""
        return max(self._footprints)

    def count(self, wanted: Callable[[Traffic], bool]) -> int:
        """Return the number of ``wanted`` messages sent or received, whichever is larger."""
        return max(sum(m.times for m in side if wanted(m)) for side in (self.sends, self.receives))

    def only(self, wanted: Callable[[Traffic], bool]) -> RankTraffic:
        """Return nothing but the messages that are ``wanted``."""
        sends, receives = ([m for m in side if wanted(m)] for side in (self.sends, self.receives))
        return RankTraffic(sends, receives, NOTHING, self.nodes if sends or receives else 0)
