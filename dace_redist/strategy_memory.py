"""The buffers that each strategy takes, as formulas; the table of strategies names them."""

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
_JOINED_HEAD_BYTES = 256  # at most, of a message: counters of a joined one and what rounds its parts up to cache lines
_RING_HEAD_BYTES = 1024  # before the slots of a ring, see MessageState in message_state.hpp


def packed(schedule: Schedule, _: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """What it sends and receives."""
    return (schedule.totals.sent + schedule.totals.received) * schedule.itemsize


def chunks(schedule: Schedule, options: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """A ring of chunks for each direction."""
    most = schedule.exchanges * options["depth"] * min(options["chunk_bytes"], options["max_message_bytes"])
    sent, received = (count * schedule.itemsize for count in (schedule.totals.sent, schedule.totals.received))
    return np.minimum(sent, most) + np.minimum(received, most)


def rings(schedule: Schedule, options: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """A ring of slots in node-shared memory for each rank it sends to."""
    slot = -(-max(options["slot_bytes"], schedule.itemsize) // 64) * 64
    pages = -(-(_RING_HEAD_BYTES + options["depth"] * slot) // _PAGE_BYTES)
    return (schedule.totals.sends * pages + schedule.exchanges) * _PAGE_BYTES


def rings_and_chunks(schedule: Schedule, options: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """Both, as the ranks may be on any nodes."""
    return rings(schedule, options) + chunks(schedule, options)


def rings_chunks_and_joined(schedule: Schedule, options: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """
    Both, and a copy of what is joined on the node that it leaves and on the one that it reaches: each rank's share of
    buffers that the ranks of a node have together.
    """
    totals, itemsize = schedule.totals, schedule.itemsize
    most = min(options["chunk_bytes"], max_joined_bytes)
    joined = np.zeros(schedule.ranks, np.int64)
    for count, messages in ((totals.sent, totals.sends), (totals.received, totals.receives)):
        joined += np.minimum(count * itemsize, messages * most) + messages * _JOINED_HEAD_BYTES
    return rings_and_chunks(schedule, options) + joined + schedule.exchanges * _PAGE_BYTES
