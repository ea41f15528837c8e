"""Buffers of the strategies: formulas by name, and options that bound them."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist._core import (
    cache_line_bytes,
    many_receivers,
    max_often_joined_bytes,
    min_many_part_bytes,
    min_often_joined,
)
from dace_redist.distribution import AnyDistribution
from dace_redist.strategies import OPTIONS, STRATEGIES, check_options, default_options, find_strategy
from dace_redist.traffic import Traffic

_JOINED_HEAD_BYTES = 256  # at most, of a message: counters of a joined one and what rounds its parts up to cache lines
_RING_HEAD_BYTES = 1024  # at most, of a message: ChannelState, Handshake and two SharedArrays of node_channel.hpp


def _transports(schedule: Traffic) -> int:
    """Return the exchanges with own buffers: one, and one more where replicas of the target each reduce a share."""
    return 2 if schedule.reduces and schedule.target.core.replicas > 1 else 1


def _own_summand(schedule: Traffic) -> npt.NDArray[np.int64]:
    """Return the bytes of the self copy, which partial results pass through a buffer: it is added in its turn."""
    return schedule.totals.kept * schedule.itemsize * schedule.reduces


def _packed(schedule: Traffic, _: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """Return the bytes of all messages; of partial results all of an element, which arrive at once."""
    return (schedule.totals.sent + schedule.totals.received) * schedule.itemsize + _own_summand(schedule)


def _chunks(schedule: Traffic, options: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """Return the bytes of a ring of chunks for each direction, which partial results share."""
    most = _transports(schedule) * options["depth"] * min(options["chunk_bytes"], options["max_message_bytes"])
    sent, received = (count * schedule.itemsize for count in (schedule.totals.sent, schedule.totals.received))
    return np.minimum(sent, most) + np.minimum(received, most) + _own_summand(schedule)


def _rings(schedule: Traffic, options: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """
    Return the bytes of a ring of slots in node-shared memory for each message.

    It has ``depth`` slots, but at most two of an eager message, and never more than twice the message.
    """
    sends, sent = schedule.totals.sends, schedule.totals.sent * schedule.itemsize
    part = max(options["slot_bytes"], schedule.itemsize)
    slot = np.where(sends > many_receivers, max(part, min_many_part_bytes), part)
    slots = options["depth"] * -(-slot // cache_line_bytes) * cache_line_bytes
    nbytes = np.minimum(sends * slots, 2 * (sent + sends * cache_line_bytes)) + sends * _RING_HEAD_BYTES
    pages = _transports(schedule)  # each transport allocates once
    return np.asarray((-(-nbytes // mmap.PAGESIZE) + pages) * mmap.PAGESIZE, np.int64)


def _joined(schedule: Traffic, options: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """Copies of joined messages on both nodes: each rank's share of buffers that the ranks of a node have together."""
    totals, itemsize = schedule.totals, schedule.itemsize
    by_rule, joined = options["join_bytes"] < 0, np.zeros(schedule.ranks, np.int64)
    most = min(options["chunk_bytes"], max_often_joined_bytes if by_rule else options["join_bytes"])
    busiest = max(np.max(totals.sends, initial=0), np.max(totals.receives, initial=0))
    if not most or (by_rule and busiest < min_often_joined):
        return joined
    for count, messages in ((totals.sent, totals.sends), (totals.received, totals.receives)):
        joined += np.minimum(count * itemsize, messages * most) + messages * _JOINED_HEAD_BYTES
    return joined + _transports(schedule) * mmap.PAGESIZE


def _node_sums(schedule: Traffic, _: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """Return the bytes of the sums of a node's partial results, which each rank has in an array like its source."""
    return _part(schedule, schedule.source) * schedule.reduces * (schedule.source.core.replicas > 1)


def _buffered(schedule: Traffic) -> npt.NDArray[np.int64]:
    """Return the bytes of the sums of a tree but for its last level, and of a result that is moved or converted."""
    change, levels = schedule.transform, (schedule.source.core.replicas - 1).bit_length()
    is_buffered = change.accumulate is not None or (change.reproducible and any(schedule.target.halo))
    nbytes = _part(schedule, schedule.target) * (is_buffered and levels > 0)
    return nbytes + _part(schedule, schedule.source) * (change.reproducible * max(0, levels - 1))


def _part(schedule: Traffic, distribution: AnyDistribution) -> npt.NDArray[np.int64]:
    """Return the bytes of each rank's part of a distribution, in the type of sums."""
    elements = [math.prod(distribution.local_shape(rank)) for rank in range(schedule.ranks)]
    return np.array(elements, np.int64) * schedule.transform.reduced_itemsize


#: Formulas of bytes per rank, from a schedule and a value for every option.
_FORMULAS: Mapping[str, Callable[[Traffic, Mapping[str, Any]], npt.NDArray[np.int64]]] = {
    "packed": _packed,
    "chunks": _chunks,
    "rings": _rings,
    "joined": _joined,
    "node_sums": _node_sums,
}


def extra_memory(schedule: Traffic, strategy: str, **options: Any) -> int | None:
    """
    Return the most bytes of buffers that any rank takes besides the arrays; None if only MPI knows.

    ``Hierarchical`` touches its rings only where neither array is node-shared, or where short runs of a large
    node-shared source go to several ranks, which may be on any nodes; ``Pack``, ``Threaded`` and ``RMA`` need less
    where a message is contiguous in an array.

    :raises ValueError: If the strategy or an option is unknown or out of range.
    :raises TypeError: If an option is of another type.
    """
    chosen = find_strategy(strategy)
    values = default_options() | check_options(chosen, options)
    if not chosen.buffers:
        return None
    of_strategy = sum(_FORMULAS[name](schedule, values) for name in chosen.buffers)
    return int(np.max(of_strategy + _buffered(schedule), initial=0))


def all_extra_memory(schedule: Traffic) -> dict[str, int]:
    """Return :func:`extra_memory` of every strategy for main memory with its default options, where it is known."""
    known = {name: extra_memory(schedule, name) for name in STRATEGIES}
    return {name: nbytes for name, nbytes in known.items() if nbytes is not None}


#: Options that bound the memory of a strategy, each with a value below which it costs much time to halve it.
_BOUNDING = {"depth": 1, "slot_bytes": 8 << 10, "chunk_bytes": 8 << 10}


def options_within(schedule: Traffic, strategy: str, memory_bytes: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return options with which a strategy takes at most ``memory_bytes`` of buffers on any rank, in more rounds.

    Chunks, slots and their number are halved by turns until the buffers of every rank fit; given options stay. Left
    out are values that are the default both for arrays in main memory and on GPUs.

    :raises ValueError: If the strategy has no options that bound its memory, or the bound is too small; says the least.
    """
    chosen = find_strategy(strategy)
    bounding = [name for name in _BOUNDING if name in chosen.options]
    if not chosen.buffers or not bounding:
        others = ", ".join(s.name for s in STRATEGIES.values() if set(_BOUNDING) & set(s.options))
        raise ValueError(f"strategy {chosen.name} takes {chosen.memory}, which memory_bytes cannot bound; use {others}")
    values = {name: options.get(name, OPTIONS[name].default) for name in bounding}
    needed = extra_memory(schedule, chosen.name, **{**options, **values})
    while needed is not None and needed > memory_bytes:
        least = {"slot_bytes": 64, "chunk_bytes": schedule.itemsize, "depth": 1}
        free = [name for name in bounding if name not in options and values[name] > least[name]]
        if not free:
            given = [name for name in bounding if name in options]
            raise ValueError(_too_little(schedule, chosen.name, memory_bytes, needed, given))
        name = max(free, key=lambda name: values[name] / _BOUNDING[name])
        values[name] = max(values[name] // 2, least[name])
        needed = extra_memory(schedule, chosen.name, **{**options, **values})
    usual, on_gpu = default_options(), default_options(on_gpu=True)
    return dict(options) | {
        name: value for name, value in values.items() if (value, value) != (usual[name], on_gpu[name])
    }


def _too_little(schedule: Traffic, strategy: str, memory_bytes: int, needed: int, given: list[str]) -> str:
    fewest = extra_memory(schedule, "Pipelined", chunk_bytes=schedule.itemsize, depth=1)
    hint = f" with {' and '.join(given)} as given" if given else ""
    if strategy != "Pipelined" and fewest is not None and fewest <= memory_bytes:
        hint += f"; Pipelined takes as little as {fewest}"
    return f"memory_bytes is {memory_bytes}, but strategy {strategy} needs at least {needed} bytes here{hint}"


def rounds(schedule: Traffic, options: Mapping[str, Any]) -> int:
    """Return how many chunks the busiest rank sends or receives one after another, if all goes over MPI."""
    values = default_options() | dict(options)
    chunk = max(schedule.itemsize, int(min(values["chunk_bytes"], values["max_message_bytes"])))
    most = max(int(np.max(counts, initial=0)) for counts in (schedule.totals.sent, schedule.totals.received))
    return -(-most * schedule.itemsize // chunk)
