"""A redistribution that was started and goes on while the program computes. Start reading at: Request."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist.native.interface import NativeRequest

Array = npt.NDArray[Any]

#: How a started redistribution moves on, in the order of ``dr_progress``.
PROGRESS = ("calls", "thread")

#: What the library still reads and writes for requests that nobody can wait for any more.
_ABANDONED: list[Any] = []

#: Arrays that were made read-only, by id, and for how many transfers under way: several may read one source.
_LOCKED: dict[int, tuple[Array, int]] = {}
_LOCKED_GUARD = threading.Lock()


class Request:
    """
    A transfer under way, made by ``start`` of a plan; a context manager that waits at the end.

    Until it is waited for, its arrays are read-only where NumPy can say so and take it back.

    :ivar done: Whether all of it has arrived, as far as :meth:`test` and :meth:`wait` have seen.
    """

    def __init__(
        self,
        native: NativeRequest,
        sources: Sequence[Array],
        targets: Sequence[tuple[Array, Array]],
        result: Any,
        ended: Callable[[], None],
        kept: Any = None,
    ) -> None:
        """
        For plans.

        :param sources: What the library reads.
        :param targets: What it writes, each with the array that is to have it at the end.
        :param result: What :meth:`wait` returns.
        :param ended: Called when the plan can be used again.
        :param kept: What else must live as long: an array of another library, of which ``sources`` has none.
        """
        self._native: NativeRequest | None = native
        self._result, self._ended, self._kept = result, ended, kept
        self._sources, self._targets = list(sources), list(targets)
        self._locked = _lock([*sources, *(array for pair in targets for array in pair)])
        self._failure: Exception | None = None
        self.done = False

    def test(self) -> bool:
        """
        Moves on, and says whether the transfer is done; never waits, but for the receivers to start with strategy
        ``RMA``.

        :raises RedistributionError: If MPI fails.
        """
        if self._failure is not None:
            raise self._failure
        if not self.done and self._native is not None:
            try:
                self.done = self._native.test()
            except Exception:
                with contextlib.suppress(Exception):  # says the same, and frees what the library has
                    self.wait()
                raise
        return self.done

    def wait(self) -> Any:
        """
        Waits until the transfer is done.

        :return: This rank's part of the target; of several tensors, a list.
        :raises RedistributionError: If MPI fails.
        :raises ValueError: If it was waited for before.
        """
        if self._native is None:
            raise ValueError("this request was waited for before")
        try:
            self._native.wait()
            self.done = True
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._end()
        return self._result

    def _end(self) -> None:
        self._native = None
        _unlock(self._locked)
        self._locked = []
        try:
            for target, result in self._targets:
                if self.done and target is not result:
                    result[...] = target
        finally:
            self._sources, self._targets, self._kept = [], [], None
            self._ended()

    def __enter__(self) -> Request:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._native is not None and kind is None:
            self.wait()

    def __del__(self) -> None:
        if getattr(self, "_native", None) is not None:
            _ABANDONED.append((self._native, self._sources, self._targets, self._kept, self._result))
            warnings.warn("a started redistribution was not waited for", ResourceWarning, stacklevel=2)


def _lock(arrays: Iterable[Array]) -> list[Array]:
    """
    Makes arrays read-only until :func:`_unlock` was called as often for each.

    :return: What to unlock: all but those that were read-only before, and that NumPy could not make writeable again.
    """
    locked = []
    with _LOCKED_GUARD:
        for array in arrays:
            _, uses = _LOCKED.get(id(array), (array, 0))
            if id(array) in _LOCKED or (array.flags.writeable and _can_be_unlocked(array)):
                array.flags.writeable = False
                _LOCKED[id(array)] = array, uses + 1
                locked.append(array)
    return locked


def _unlock(arrays: Iterable[Array]) -> None:
    with _LOCKED_GUARD:
        for array in arrays:
            _LOCKED[id(array)] = array, _LOCKED[id(array)][1] - 1
        unused = [array for array, uses in _LOCKED.values() if uses == 0]
        # NumPy makes a view writeable only after what it is a view of: the last transfer that uses that does both.
        for array in sorted(unused, key=lambda array: len(_bases(array))):
            if not any(id(base) in _LOCKED for base in _bases(array)):
                del _LOCKED[id(array)]
                with contextlib.suppress(ValueError):  # the program has made its base read-only in the meantime
                    array.flags.writeable = True


def _bases(array: Array) -> list[Array]:
    """The arrays that an array is a view of."""
    bases, base = [], array.base
    while isinstance(base, np.ndarray):
        bases.append(base)
        base = base.base
    return bases


def _can_be_unlocked(array: Array) -> bool:
    """Whether NumPy makes a writeable array writeable again: not if its memory is of a library that says nothing."""
    bases = _bases(array)
    if any(base.flags.writeable or id(base) in _LOCKED for base in bases):
        return True
    owner: Any = (bases[-1] if bases else array).base
    if owner is None:
        return not bases
    try:
        return not memoryview(owner).readonly
    except Exception:  # what it raises depends on the library
        return False


def progress_number(progress: str) -> int:
    """
    The library's number of what moves a started transfer on.

    :raises ValueError: If there is no such thing.
    """
    if progress not in PROGRESS:
        raise ValueError(f"progress must be one of {', '.join(PROGRESS)}, got {progress!r}")
    return PROGRESS.index(progress)
