"""How much memory the strategies take besides the arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dace_redist.strategies import OPTIONS, STRATEGIES, check_options, find_strategy

if TYPE_CHECKING:
    from dace_redist.schedule import Schedule

_PAGE_BYTES = 4096
_RING_HEAD_BYTES = 1024  # before the slots of a ring, see MessageState in message_state.hpp


def extra_memory(schedule: Schedule, strategy: str, **options: Any) -> int | None:
    """
    Most bytes of buffers that any rank takes to redistribute.

    ``Shared`` touches its rings only where neither array is node-shared; ``Pack``, ``Threaded`` and ``RMA`` need less
    where a message is contiguous in an array. For ``Hierarchical`` the ranks may be on any nodes.

    :param schedule: Schedule of any number of ranks that can be counted.
    :param strategy: Name of a strategy.
    :param options: Its options.
    :return: Bytes; None if only MPI knows.
    :raises ValueError: If the strategy or an option is unknown or out of range.
    :raises TypeError: If an option is of another type.
    """
    chosen = find_strategy(strategy)
    values: dict[str, Any] = {name: option.default for name, option in OPTIONS.items()}
    values |= check_options(chosen, options)
    totals, itemsize = schedule.totals, schedule.itemsize
    sent, received = totals.sent * itemsize, totals.received * itemsize
    if chosen.name in ("Pack", "Threaded", "RMA"):
        return int(np.max(sent + received, initial=0))
    pipeline = _pipeline(sent, received, values)
    rings = totals.sends * _ring_bytes(itemsize, values) + _PAGE_BYTES
    by_strategy = {"Pipelined": pipeline, "Shared": rings, "Hierarchical": rings + pipeline}
    return int(np.max(by_strategy[chosen.name], initial=0)) if chosen.name in by_strategy else None


def all_extra_memory(schedule: Schedule) -> dict[str, int]:
    """:func:`extra_memory` of every strategy with its default options, where it is known."""
    known = {name: extra_memory(schedule, name) for name in STRATEGIES}
    return {name: nbytes for name, nbytes in known.items() if nbytes is not None}


def _pipeline(sent: Any, received: Any, values: dict[str, Any]) -> Any:
    most = values["depth"] * min(values["chunk_bytes"], values["max_message_bytes"])
    return np.minimum(sent, most) + np.minimum(received, most)


def _ring_bytes(itemsize: int, values: dict[str, Any]) -> int:
    slot = -(-max(int(values["slot_bytes"]), itemsize) // 64) * 64
    return -(-(_RING_HEAD_BYTES + int(values["depth"]) * slot) // _PAGE_BYTES) * _PAGE_BYTES
