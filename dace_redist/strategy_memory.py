"""The buffers of each strategy, as formulas; the table of strategies names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dace_redist._core import max_joined_bytes

if TYPE_CHECKING:
    from dace_redist.schedule import Schedule

#: Bytes of buffers that each rank takes for a schedule, with a value for every option; one entry per rank.
BufferBytes = Callable[["Schedule", Mapping[str, int]], npt.NDArray[np.int64]]

_PAGE_BYTES = 4096
_LINE_BYTES = 64
_JOINED_HEAD_BYTES = 256  # at most, of a message: counters of a joined one and what rounds its parts up to cache lines
_RING_HEAD_BYTES = 1024  # at most, of a message: ChannelState, Handshake and two SharedArrays of node_channel.hpp
_MANY_RECEIVERS, _MIN_MANY_PART_BYTES = 16, 4 << 10  # of more receivers pieces have a minimum, see staging_of


def _transports(schedule: Schedule) -> int:
    """Exchanges with buffers of their own: one, and one more where replicas of the target each reduce a share of it."""
    return 2 if schedule.reduces and schedule.target.core.replicas > 1 else 1


def _own_summand(schedule: Schedule) -> npt.NDArray[np.int64]:
    """The self copy, which partial results pass through a buffer: it is added when it is its turn."""
    return schedule.totals.kept * schedule.itemsize * schedule.reduces


def packed(schedule: Schedule, _: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """All that it sends and receives; of partial results all of an element, which arrive at once."""
    return (schedule.totals.sent + schedule.totals.received) * schedule.itemsize + _own_summand(schedule)


def chunks(schedule: Schedule, options: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """A ring of chunks for each direction, which partial results share."""
    most = _transports(schedule) * options["depth"] * min(options["chunk_bytes"], options["max_message_bytes"])
    sent, received = (count * schedule.itemsize for count in (schedule.totals.sent, schedule.totals.received))
    return np.minimum(sent, most) + np.minimum(received, most) + _own_summand(schedule)


def rings(schedule: Schedule, options: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """
    A ring of slots in node-shared memory for each message: ``depth`` slots, but at most two of an eager message, and
    never more than twice the message.
    """
    sends, sent = schedule.totals.sends, schedule.totals.sent * schedule.itemsize
    part = max(options["slot_bytes"], schedule.itemsize)
    slot = np.where(sends > _MANY_RECEIVERS, max(part, _MIN_MANY_PART_BYTES), part)
    slots = options["depth"] * -(-slot // _LINE_BYTES) * _LINE_BYTES
    nbytes = np.minimum(sends * slots, 2 * (sent + sends * _LINE_BYTES)) + sends * _RING_HEAD_BYTES
    pages = _transports(schedule)  # each transport allocates once
    return np.asarray((-(-nbytes // _PAGE_BYTES) + pages) * _PAGE_BYTES, np.int64)


def rings_and_chunks(schedule: Schedule, options: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """Rings and chunks, as the ranks may be on any nodes."""
    return rings(schedule, options) + chunks(schedule, options)


def rings_chunks_and_joined(schedule: Schedule, options: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """
    Rings and chunks, and a copy of joined messages on the node that they leave and on the one that they reach: each
    rank's share of buffers that the ranks of a node have together.
    """
    totals, itemsize = schedule.totals, schedule.itemsize
    most = min(options["chunk_bytes"], max_joined_bytes)
    joined = np.zeros(schedule.ranks, np.int64)
    for count, messages in ((totals.sent, totals.sends), (totals.received, totals.receives)):
        joined += np.minimum(count * itemsize, messages * most) + messages * _JOINED_HEAD_BYTES
    return rings_and_chunks(schedule, options) + joined + _transports(schedule) * _PAGE_BYTES
