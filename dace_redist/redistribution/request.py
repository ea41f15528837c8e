"""Non-blocking redistributions. Start reading at: Request."""

from __future__ import annotations

import contextlib
import ctypes
import warnings
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.errors import RedistributionError
from dace_redist.native.interface import NativePlan, check, function_address, library
from dace_redist.redistribution.arrays import ArrayView, Views
from dace_redist.redistribution.arrays.locks import lock, unlock
from dace_redist.strategies import PROGRESS

if TYPE_CHECKING:
    from mpi4py import MPI
    from typing_extensions import Self

Array = npt.NDArray[Any]
#: Targets, each with the array that the library writes in its place.
Copies = Sequence[tuple[ArrayView, ArrayView]]

#: Arrays and handles of requests that were dropped before completion; the library still accesses them.
_ABANDONED: list[Any] = []


class Freeable:
    """Plan that is freed, at the latest at the end of a ``with``."""

    def free(self) -> None:
        """Free the plan. Local."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:  # else a transfer may be under way
            self.free()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a plan cannot be copied or pickled: plan again")


class FreeablePlan(Freeable):
    """Native plan that is used by one transfer at a time until it is freed."""

    _native: NativePlan | None
    _started = False

    def free(self) -> None:
        """Free the plan's buffers; a ValueError if a transfer of it is under way. Local."""
        self._check_not_started()
        if self._native is not None:
            self._native.free()
            self._native = None

    def _ready(self) -> NativePlan:
        """Return the native plan, for a transfer that begins."""
        if self._native is None:
            raise ValueError("this plan was freed")
        self._check_not_started()
        return self._native

    def _check_not_started(self) -> None:
        if self._started:
            raise ValueError("a transfer of this plan is under way: wait for it first")

    def _start(self, native: NativePlan, given: Views, used: Views, result: Any, progress: int) -> Request:
        """Start a transfer between ``used``, in place of the arrays of a call."""
        views = (*used.sources, *used.targets, *given.targets)
        arrays = [view.owner for view in views if view is not None]
        request = Request(arrays, copied(given, used), result, self)
        native.start(*used.addresses(), progress, request._handle)
        return request._begun(arrays)


class Request:
    """
    Transfer under way, made by ``start`` of a plan; a context manager that waits at the end.

    Until :meth:`test` or :meth:`wait` finds it complete, its arrays are read-only, if NumPy can set that flag and
    restore it.

    :ivar done: True if :meth:`test` or :meth:`wait` has found the transfer complete.
    """

    def __init__(self, arrays: Sequence[Any], copies: Copies, result: Any, plan: FreeablePlan) -> None:
        """
        Prepare a request, of which the handle is to be set by the library.

        :param arrays: Those of the call, and those used in their place.
        :param copies: To write back at the end.
        """
        #: The library's request; null before the transfer is started and after it is complete.
        self._handle = ctypes.c_void_p()
        self._code = ctypes.c_int(-1)  # of the library's wait, which was not called yet
        self._arrays, self._copies, self._result, self._plan = arrays, copies, result, plan
        self._locked: list[Array] = []
        self._failure: RedistributionError | None = None
        #: Turns the targets into what :meth:`wait` returns.
        self.show: Callable[[Any], Any] | None = None
        self.done = self._waited = False

    @property
    def _address(self) -> int:
        """Address of the handle."""
        return ctypes.addressof(self._handle)

    def _begun(self, arrays: Sequence[Any]) -> Request:
        """Make arrays of a started transfer read-only; return the request."""
        self._plan._started = True
        self._locked = lock([array for array in arrays if isinstance(array, np.ndarray)])
        return self

    def test(self) -> bool:
        """
        Advance the transfer; return True when it is complete. Does not block.

        :raises RedistributionError: If MPI fails.
        """
        if self._failure is not None:
            raise self._failure
        if not self.done:
            complete = ctypes.c_int(self._code.value >= 0)
            try:
                if not complete.value:
                    check(library().dr_request_test(self._handle, complete))
            except RedistributionError as error:
                with contextlib.suppress(RedistributionError):  # frees the library's resources
                    self._complete()
                self._failure = error
                raise
            if complete.value:
                self._complete()
        return self.done

    def wait(self) -> Any:
        """
        Wait until the transfer is complete.

        :return: This rank's part of the target; of several tensors, a list.
        :raises RedistributionError: If MPI fails.
        :raises ValueError: If it was waited for before.
        """
        if self._failure is not None:  # found by test
            raise self._failure
        if self._waited:
            raise ValueError("this request was waited for before")
        if not self.done:
            self._complete()
        self._waited = True
        return self._result if self.show is None else self.show(self._result)

    def Test(self) -> bool:  # noqa: N802 (as mpi4py)
        """Do as :meth:`test`: the name that requests of mpi4py have."""
        return self.test()

    def Wait(self) -> bool:  # noqa: N802
        """Wait as :meth:`wait`, and return True, as requests of mpi4py do: the result is in ``out``."""
        self.wait()
        return True

    @staticmethod
    def waitall(requests: Iterable[Request | MPI.Request]) -> list[Any]:
        """
        Wait until transfers are complete, also requests of mpi4py among them.

        :return: What each of them returns of its ``wait``, in order.
        :raises RedistributionError: If MPI fails, after all others were waited for.
        """
        results, failure = [], None
        for request in requests:
            try:
                results.append(request.wait())
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return results

    def _complete(self) -> None:
        """
        Wait for the library, and release the arrays and the plan.

        Where a handler of a signal raises an exception meanwhile, as for Ctrl-C, another call does what is left.
        """
        if self._code.value < 0:
            _core.wait_for(function_address("dr_request_wait"), self._address, ctypes.addressof(self._code))
        failure = None
        try:
            check(self._code.value)
        except RedistributionError as error:
            failure = error
        if failure is not None and self._handle.value is not None:  # another thread waits: nothing has changed
            self._code.value = -1
            raise failure
        locked, self._locked = self._locked, []
        unlock(locked)
        if failure is None:
            write_back(self._copies)
        self._arrays = self._copies = ()
        self._plan._started = False
        self._failure, self.done = failure, failure is None
        if failure is not None:
            raise failure

    def __reduce__(self) -> NoReturn:
        raise TypeError("a request cannot be copied or pickled: wait for it, and copy its result")

    def __enter__(self) -> Request:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None and not self.done and self._failure is None:
            self.wait()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _ABANDONED.append((self._handle, self._arrays, self._copies, self._result))
            message = "a started redistribution was not waited for: its arrays stay read-only, and its plan in use"
            warnings.warn(f"{message}; keep the request and call its wait()", RuntimeWarning, stacklevel=2)


def copied(given: Views, used: Views) -> Copies:
    """Return the targets of a call, each with the array that the library writes in its place."""
    pairs = zip(given.targets, used.targets, strict=True)
    return [(target, copy) for target, copy in pairs if target is not None and copy is not None and copy is not target]


def write_back(copies: Copies) -> None:
    """Copy what the library wrote to the targets of a call."""
    for target, copy in copies:
        target.as_numpy()[...] = copy.as_numpy()


def progress_number(progress: str) -> int:
    """Return the library's number of a kind of progress; a ValueError if it is unknown."""
    if progress not in PROGRESS:
        raise ValueError(f"progress must be one of {', '.join(PROGRESS)}, got {progress!r}")
    return PROGRESS.index(progress)
