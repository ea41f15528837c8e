"""A redistribution that was started and goes on while the program computes. Start reading at: Request."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy.typing as npt

from dace_redist.native.interface import NativeRequest

Array = npt.NDArray[Any]

#: How a started redistribution moves on, in the order of ``dr_progress``.
PROGRESS = ("calls", "thread")

#: What the library still reads and writes for requests that nobody can wait for any more.
_ABANDONED: list[Any] = []


class Request:
    """
    A transfer under way, made by ``start`` of a plan; a context manager that waits at the end.

    Until it is waited for, its arrays are read-only where NumPy can say so.

    :ivar done: Whether all of it has arrived, as far as :meth:`test` and :meth:`wait` have seen.
    """

    def __init__(
        self,
        native: NativeRequest,
        sources: Sequence[Array],
        targets: Sequence[tuple[Array, Array]],
        result: Any,
        ended: Callable[[], None],
    ) -> None:
        """
        For plans.

        :param sources: What the library reads.
        :param targets: What it writes, each with the array that is to have it at the end.
        :param result: What :meth:`wait` returns.
        :param ended: Called when the plan can be used again.
        """
        self._native: NativeRequest | None = native
        self._result, self._ended = result, ended
        self._sources, self._targets = list(sources), list(targets)
        used = [*sources, *(array for pair in targets for array in pair)]
        self._locked = [array for array in used if array.flags.writeable]
        for array in self._locked:
            array.flags.writeable = False
        self.done = False

    def test(self) -> bool:
        """
        Moves on, and says whether the transfer is done; never waits, but for the receivers to start with strategy
        ``RMA``.

        :raises RedistributionError: If MPI fails.
        """
        if not self.done and self._native is not None:
            try:
                self.done = self._native.test()
            except Exception:
                self._end(failed=True)
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
        except Exception:
            self._end(failed=True)
            raise
        self.done = True
        self._end(failed=False)
        return self._result

    def _end(self, failed: bool) -> None:
        self._native = None
        for array in self._locked:
            array.flags.writeable = True
        for target, result in self._targets:
            if not failed and target is not result:
                result[...] = target
        self._sources, self._targets = [], []
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
            _ABANDONED.append((self._native, self._sources, self._targets))
            warnings.warn("a started redistribution was not waited for", ResourceWarning, stacklevel=2)


def progress_number(progress: str) -> int:
    """
    The library's number of what moves a started transfer on.

    :raises ValueError: If there is no such thing.
    """
    if progress not in PROGRESS:
        raise ValueError(f"progress must be one of {', '.join(PROGRESS)}, got {progress!r}")
    return PROGRESS.index(progress)
