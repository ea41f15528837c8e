"""Arrays that are read-only while a transfer uses them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Arrays made read-only, by id, with the number of transfers under way: several may read one source.
_LOCKED: dict[int, tuple[Array, int]] = {}
_LOCKED_GUARD = threading.Lock()


def is_locked(array: Any) -> bool:
    """True if a transfer under way uses an array, or one that it is a view of."""
    return isinstance(array, np.ndarray) and any(id(one) in _LOCKED for one in (array, *_bases(array)))


def lock(arrays: Iterable[Array]) -> list[Array]:
    """Make arrays read-only until :func:`unlock` was called as often for each; return those that can be unlocked."""
    locked = []
    with _LOCKED_GUARD:
        for array in {id(array): array for array in arrays}.values():
            _, uses = _LOCKED.get(id(array), (array, 0))
            if id(array) in _LOCKED or (array.flags.writeable and _can_be_unlocked(array)):
                array.flags.writeable = False
                _LOCKED[id(array)] = array, uses + 1
                locked.append(array)
    return locked


def unlock(arrays: Iterable[Array]) -> None:
    """Undo one :func:`lock` of each array."""
    with _LOCKED_GUARD:
        for array in arrays:
            _LOCKED[id(array)] = array, _LOCKED[id(array)][1] - 1
        unused = [array for array, uses in _LOCKED.values() if uses == 0]
        # A view can be made writeable only after its base: the last transfer that uses the base unlocks both.
        for array in sorted(unused, key=lambda array: len(_bases(array))):
            if not any(id(base) in _LOCKED for base in _bases(array)):
                del _LOCKED[id(array)]
                with contextlib.suppress(ValueError):  # the program has since made its base read-only
                    array.flags.writeable = True


def _bases(array: Array) -> list[Array]:
    """Return the bases of a view, the nearest first."""
    bases, base = [], array.base
    while isinstance(base, np.ndarray):
        bases.append(base)
        base = base.base
    return bases


def _can_be_unlocked(array: Array) -> bool:
    """True if NumPy can make a read-only array writeable again: not if its owner does not export a writeable buffer."""
    bases = _bases(array)
    if any(base.flags.writeable or id(base) in _LOCKED for base in bases):
        return True
    owner: Any = (bases[-1] if bases else array).base
    if owner is None:
        return not bases
    try:
        return not memoryview(owner).readonly
    except Exception:  # the type depends on the library
        return False
