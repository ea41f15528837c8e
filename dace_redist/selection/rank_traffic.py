"""What ranks send, receive and keep, as far as it decides how long that takes: sizes and contiguous runs, in bytes."""

from __future__ import annotations

import dataclasses
import math
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
    A message, or what stays on a rank.

    :param nbytes: Its size.
    :param sent: Length of the runs where it is sent from, and bytes in runs of this length.
    :param received: The same where it arrives.
    :param shortest_run: Bytes of the shortest run that is contiguous on both sides.
    :param within: Whether it stays on its node.
    :param times: How many such messages there are.
    """

    nbytes: int
    sent: Runs
    received: Runs
    shortest_run: int
    within: bool
    times: int = 1

    @classmethod
    def of(cls, message: Message, itemsize: int, within: bool) -> Traffic:
        """Of a message of elements of ``itemsize`` bytes."""
        return cls(
            message.nbytes(itemsize),
            _bytes_by_run(message.source_runs, itemsize),
            _bytes_by_run(message.target_runs, itemsize),
            itemsize * min((block.run_length for block in message.blocks), default=0),
            within,
        )

    @property
    def one_run_sent(self) -> bool:
        """Whether it is contiguous where it is sent from, so that nothing is packed."""
        return self.sent == ((self.nbytes, self.nbytes),)

    @property
    def one_run_received(self) -> bool:
        """Whether it is contiguous where it arrives."""
        return self.received == ((self.nbytes, self.nbytes),)

    @property
    def all_bytes(self) -> int:
        """Bytes of all such messages."""
        return self.nbytes * self.times


def _bytes_by_run(runs: Counter[int], itemsize: int) -> Runs:
    return tuple(sorted((length * itemsize, length * times * itemsize) for length, times in runs.items()))


def _counted(messages: Iterable[Traffic]) -> list[Traffic]:
    """Equal messages as one."""
    return [dataclasses.replace(message, times=times) for message, times in Counter(messages).items()]


def times_within(messages: Sequence[Traffic], within: bool) -> int:
    """How many messages stay on the node, or leave it."""
    return sum(message.times for message in messages if message.within == within)


@dataclasses.dataclass(frozen=True)
class RankTraffic:
    """
    What one rank sends, receives and keeps.

    :param sends: Messages to other ranks, equal ones as one.
    :param receives: Messages from other ranks, equal ones as one.
    :param own: What stays.
    :param nodes: Other nodes that it sends to, or receives from, whichever are more.
    :param source_bytes: Its part of the source, with what does not move.
    :param target_bytes: Its part of the target, with what stays as it is.
    """

    sends: Sequence[Traffic]
    receives: Sequence[Traffic]
    own: Traffic
    nodes: int = 0
    source_bytes: int = 0
    target_bytes: int = 0

    @classmethod
    def of(cls, schedule: Schedule, rank: int, node_of: Sequence[int]) -> RankTraffic:
        """
        Of a rank of a redistribution.

        :param node_of: Number of the node of each rank.
        """
        here, itemsize = node_of[rank], schedule.itemsize
        sends, receives, own = schedule.of_rank(rank)
        sides = {node_of[message.target] for message in sends}, {node_of[message.source] for message in receives}
        return cls(
            _counted(Traffic.of(message, itemsize, node_of[message.target] == here) for message in sends),
            _counted(Traffic.of(message, itemsize, node_of[message.source] == here) for message in receives),
            Traffic.of(own, itemsize, True),
            max(len(nodes - {here}) for nodes in sides),
            *(itemsize * math.prod(side.local_shape(rank)) for side in (schedule.source, schedule.target)),
        )

    @cached_property
    def sent_bytes(self) -> int:
        """What it reads of its source: messages and what stays."""
        return sum(message.all_bytes for message in self.sends) + self.own.nbytes

    @cached_property
    def received_bytes(self) -> int:
        """What it writes of its target."""
        return sum(message.all_bytes for message in self.receives) + self.own.nbytes

    @property
    def remote_bytes(self) -> int:
        """The larger of what it sends to and receives from other ranks: M_remote of Cao et al., formula 4."""
        return max(self.sent_bytes, self.received_bytes) - self.own.nbytes

    def to_other_nodes(self, wanted: Callable[[Traffic], bool]) -> RankTraffic:
        """The same with nothing but those messages to and from other nodes that are ``wanted``."""
        nothing = Traffic(0, (), (), 0, True)
        sends, receives = ([m for m in side if not m.within and wanted(m)] for side in (self.sends, self.receives))
        return RankTraffic(sends, receives, nothing, self.nodes if sends or receives else 0)
