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

    :param nbytes: Its size.
    :param sent: Runs at the sender.
    :param received: Runs at the receiver.
    :param min_run: Bytes of the shortest run that is contiguous on both sides.
    :param within: Whether it stays on its node.
    :param times: Number of such messages.
    """

    nbytes: int
    sent: Runs
    received: Runs
    min_run: int
    within: bool
    times: int = 1

    @classmethod
    def of(cls, message: Message, itemsize: int, within: bool) -> Traffic:
        """Describe a message of elements of ``itemsize`` bytes."""
        return cls(
            message.nbytes(itemsize),
            _bytes_by_run(message.source_runs, itemsize),
            _bytes_by_run(message.target_runs, itemsize),
            itemsize * min((block.run_length for block in message.blocks), default=0),
            within,
        )

    def runs(self, sent: bool) -> Runs:
        """Return the runs at the sender or at the receiver."""
        return self.sent if sent else self.received

    def contiguous(self, sent: bool) -> bool:
        """Return whether it is one run at the sender, or at the receiver, so that nothing is packed."""
        return self.runs(sent) == ((self.nbytes, self.nbytes),)

    @property
    def total_bytes(self) -> int:
        """Bytes of all such messages."""
        return self.nbytes * self.times


def _bytes_by_run(runs: Counter[int], itemsize: int) -> Runs:
    return tuple(sorted((length * itemsize, length * times * itemsize) for length, times in runs.items()))


def _counted(messages: Iterable[Traffic]) -> list[Traffic]:
    """Equal messages as one."""
    return [dataclasses.replace(message, times=times) for message, times in Counter(messages).items()]


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
        here, itemsize = node_of[rank], schedule.itemsize
        sends, receives, own = schedule.of_rank(rank)
        sides = {node_of[message.target] for message in sends}, {node_of[message.source] for message in receives}
        return cls(
            _counted(Traffic.of(message, itemsize, node_of[message.target] == here) for message in sends),
            _counted(Traffic.of(message, itemsize, node_of[message.source] == here) for message in receives),
            Traffic.of(own, itemsize, True),
            max(len(nodes - {here}) for nodes in sides),
        )

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

    def to_other_nodes(self, wanted: Callable[[Traffic], bool] = lambda _: True) -> RankTraffic:
        """Return nothing but those messages to and from other nodes that are ``wanted``."""
        sends, receives = ([m for m in side if not m.within and wanted(m)] for side in (self.sends, self.receives))
        return RankTraffic(sends, receives, NOTHING, self.nodes if sends or receives else 0)


#: A self copy of nothing.
NOTHING = Traffic(0, (), (), 0, True)
