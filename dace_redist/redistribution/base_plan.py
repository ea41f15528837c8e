"""Base classes of plans of one tensor and of several. Start reading at: BasePlan."""

from __future__ import annotations

from types import TracebackType
from typing import Any, TypeVar

from dace_redist.native.interface import NativePlan, check

Made = TypeVar("Made", bound="FreedAtEnd")


class FreedAtEnd:
    """Context manager that calls :meth:`free` at the end, unless the block raises."""

    def free(self) -> None:
        """Free the plan. Local."""
        raise NotImplementedError

    def __enter__(self: Made) -> Made:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:  # else a transfer may be under way
            self.free()


class BasePlan(FreedAtEnd):
    """A plan of the library; a context manager that frees it at the end."""

    _native: NativePlan | None
    _handle: int  # of the communicator
    _bound: Any  # a _core.BoundPlan, or its device counterpart: runs the plan if the arrays already match its layout
    _started = False  # True while a transfer is under way

    def _run_bound(self, array: Any, out: Any) -> bool:
        """Move the arrays on the fast path; return False if they must be checked first."""
        self._check_not_started()
        code: int = self._bound.run(array, out)
        if code > 0:
            check(code)
        return code == 0

    def run_if_agreed(self, number: int, array: Any, out: Any) -> bool:
        """
        Run the plan if all ranks agree. Collective.

        The ranks agree if all call this, or ``interface.agree``, with the same number, and all arrays have the shapes
        and types of the plan and the strides of the previous call.

        :param number: Number to agree on, 64 bits, not 0.
        :param array: As in a call of the plan.
        :param out: As in a call of the plan, but not None.
        :return: True if the tensor was moved; equal on all ranks.
        :raises RedistributionError: If MPI fails.
        """
        code: int = self._bound.run_if_agreed(self._handle, number, array, out)
        if code > 0:
            check(code)
        return code == 0

    def _ready(self) -> None:
        """
        Check that the plan can be used.

        :raises ValueError: If it was freed, or a transfer of it is under way.
        """
        if self._native is None:
            raise ValueError("this plan was freed")
        self._check_not_started()

    def _check_not_started(self) -> None:
        if self._started:
            raise ValueError("a transfer of this plan is under way: wait for it first")

    def _ended(self) -> None:
        self._started = False

    def free(self) -> None:
        """
        Free the plan's buffers; it cannot be called afterwards. Local.

        MPI objects that plans share are freed with the communicator, or when MPI is finalized.

        :raises ValueError: If a transfer of it is under way.
        """
        self._check_not_started()
        if self._native is not None:
            self._bound.release()
            self._native.free()
            self._native = None
