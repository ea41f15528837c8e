"""Planned redistribution of arrays in main memory. Start reading at: Plan."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist import _core
from dace_redist.mpi.collective import remembered, together
from dace_redist.native.cmake_build import ensure_library
from dace_redist.native.interface import NativePlan, function_address
from dace_redist.redistribution.arguments import (
    PlanArguments,
    check_covered,
    check_part,
    is_plain,
)
from dace_redist.redistribution.base_plan import BasePlan
from dace_redist.redistribution.device_arrays import DEVICES
from dace_redist.redistribution.request import Request, progress_number
from dace_redist.redistribution.shared_arrays import LEAST_SHARED_BYTES, empty_result
from dace_redist.schedule import Schedule
from dace_redist.strategies import AUTO, find_strategy, options_on_gpu
from dace_redist.tuning.auto import COMPUTED_WITH, NOT_IN_C_ORDER, Choice, choose_all, default_choice
from dace_redist.tuning.problem import Problem

Array = npt.NDArray[Any]


class Plan(BasePlan):
    """
    Reusable redistribution, made by :func:`dace_redist.plan`.

    Calling it moves a tensor. It is a context manager that frees the plan at the end.

    :ivar source: Distribution before.
    :ivar target: Distribution after.
    :ivar dtype: Element type of the source.
    :ivar target_dtype: Element type of the target.
    :ivar axes: The source axis that each target axis comes from; None: the same order.
    :ivar region: The sub-tensor that moves; None: the whole tensor.
    :ivar strategy: Name of the strategy, never ``"Auto"``.
    :ivar options: Options that are not at their defaults.
    :ivar recorded: True if ``"Auto"`` took strategy and options from a tuning record.
    """

    def __init__(self, comm: MPI.Intracomm, arguments: PlanArguments) -> None:
        self._comm, self._handle = comm, MPI._handleof(comm)
        self.source, self.target, self.dtype = arguments.source, arguments.target, arguments.dtype
        self._index_map, self._operation = arguments.index_map, arguments.operation
        self.target_dtype = arguments.operation.target
        self.axes, self.region = arguments.index_map.axes, arguments.index_map.region
        self.strategy, self.options, self.recorded = _selected(comm, arguments)
        source, target, mapped = (part.encoded_array for part in (self.source, self.target, self._index_map))
        problem = (self.dtype.itemsize, source, target, mapped, self._operation.encoded)
        places = [DEVICES.index(side) for side in arguments.device]
        self._native = native = NativePlan(self._handle, self.strategy, self.options, [problem], places)
        shapes = [side.local_shape(comm.rank) for side in (self.source, self.target)]
        self._source_shape, self._target_shape = shapes
        # Fast path: runs without further Python if the strides equal those of the previous call, initially C order.
        execute, agreement = function_address("dr_plan_execute"), function_address("dr_python_agree")
        part = (self.dtype, self.target_dtype, shapes[0], shapes[1])
        self._bound = _core.BoundPlan(execute, agreement, native.address, [part], False)
        self._fills_target = self._index_map.covers(self.target.shape) and self._operation.beta == 0
        self._strides: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # in bytes; empty: C order
        nbytes = math.prod(self._target_shape) * self.target_dtype.itemsize
        self._result_is_shared = find_strategy(self.strategy).node_aware and nbytes >= LEAST_SHARED_BYTES

    def __call__(self, array: Array | None, out: Array | None = None) -> Array:
        """
        Move a tensor. Collective over the ranks that have a part in it.

        :param array: This rank's part of the source, of shape ``source.local_shape(rank)`` and any strides; None on a
            rank that owns nothing of it.
        :param out: This rank's part of the target; must not overlap ``array``. Default: a new array, in node-shared
            memory if the strategy copies directly into it.
        :return: This rank's part of the target: ``out`` if given.
        :raises ValueError: On this rank only, if the plan was freed or an array has a wrong shape; the others may wait
            for this rank.
        :raises TypeError: On this rank only, if an array has another type.
        :raises RedistributionError: If MPI fails.
        """
        if out is None:
            out = self.empty_target()
        if not self._run_bound(array, out):
            self._run_checked(array, out)
        return out

    def empty_target(self) -> Array:
        """
        Return a new array for this rank's part of the target.

        :raises ValueError: If the redistribution does not define all elements.
        """
        self._check_covered()
        if self._result_is_shared:
            return empty_result(self._target_shape, self.target_dtype)
        return np.empty(self._target_shape, self.target_dtype)

    def _check_covered(self) -> None:
        if not self._fills_target:
            check_covered(self._index_map, self._operation, self.target)

    def start(self, array: Array | None, out: Array | None = None, *, progress: str = "calls") -> Request:
        """
        Start to move a tensor. Collective over the ranks that have a part in it.

        At most one transfer of a plan can be under way. Until :meth:`Request.wait`, both arrays are read-only; the
        source must not change, and the target must not be used. Transfers of several plans may be started and waited
        for in any order, which may differ between ranks. All ranks start a transfer with the same ``progress``, or
        all call the plan.

        :param array: As in a call of the plan.
        :param out: As in a call of the plan.
        :param progress: ``"calls"``: the transfer advances in MPI, and in :meth:`Request.test` and
            :meth:`Request.wait` of any transfer; within a node also while this rank computes. ``"thread"``: a
            separate thread advances it; requires ``MPI_THREAD_MULTIPLE``, which mpi4py requests by default.
        :return: The transfer, to be waited for.
        :raises ValueError: On this rank only, if the plan was freed, a transfer of it is under way, or an array has
            a wrong shape.
        :raises TypeError: On this rank only, if an array has another type.
        :raises RedistributionError: If MPI fails, or has no threads.
        """
        number = progress_number(progress)
        if out is None:
            out = self.empty_target()
        native, source, target = self._prepared(array, out)
        started = native.start(source.ctypes.data, target.ctypes.data, number)
        self._started = True
        return Request(started, [source], [(target, out)], out, self._ended)

    def _run_checked(self, array: Array | None, out: Array) -> None:
        native, source, target = self._prepared(array, out)
        native.execute(source.ctypes.data, target.ctypes.data)
        if target is not out:
            out[...] = target

    def _prepared(self, array: Array | None, out: Array) -> tuple[NativePlan, Array, Array]:
        """Return the native plan, set up for these arrays, and the arrays or copies that it reads and writes."""
        self._ready()
        native = self._native
        assert isinstance(native, NativePlan)
        check_part("array", array, self._source_shape, self.dtype, self._comm.rank)
        check_part("out", out, self._target_shape, self.target_dtype, self._comm.rank)
        if not out.flags.writeable:
            raise ValueError("out is read-only")
        if array is not None and np.may_share_memory(array, out):
            raise ValueError("array and out overlap; a tensor cannot be redistributed in place")
        source = np.empty(self._source_shape, self.dtype) if array is None else array
        source = source if is_plain(source) else np.ascontiguousarray(source)
        target = out if is_plain(out) else out.copy()
        in_c_order = source.flags.c_contiguous and target.flags.c_contiguous
        strides = ((), ()) if in_c_order else (source.strides, target.strides)
        if strides != self._strides:
            native.set_arrays(*(None if in_c_order else _layout(part) for part in (source, target)))
            self._bound.set_strides(*strides)
            self._strides = strides
        return native, source, target

    @property
    def schedule(self) -> Schedule:
        """Messages of the redistribution."""
        operation = None if self._operation.is_copy else self._operation
        return Schedule(self.source, self.target, self.dtype, self._index_map, operation)

    def __repr__(self) -> str:
        options = "".join(f", {name}={value}" for name, value in self.options.items())
        state = ", freed" if self._native is None else ""
        mapped = "".join(f", {part}" for part in (self._index_map, self._operation) if str(part))
        where = self._where()
        return f"Plan({self.source} -> {self.target}, {self.dtype}{mapped}{where}, {self.strategy}{options}{state})"

    def _where(self) -> str:
        """Return the devices of the arrays for the text of the plan; empty for main memory."""
        return ""


def _layout(array: Array) -> tuple[tuple[int, ...], tuple[int, ...]]:
    # the stride of an axis of one element is arbitrary, and may be negative
    return array.shape, tuple(abs(stride) // array.itemsize for stride in array.strides)


def _selected(comm: MPI.Intracomm, arguments: PlanArguments) -> tuple[str, dict[str, int | float], bool]:
    """Return strategy, options, and True if they were recorded; resolves ``"Auto"``. Collective."""
    given = dict(arguments.options)
    choice = _choice(comm, arguments) if arguments.strategy == AUTO.name else Choice(arguments.strategy, {}, False, "")
    options = {**choice.options, **given}
    if "gpu" in arguments.device:
        options = options_on_gpu(choice.strategy, options)
    return choice.strategy, options, choice.recorded


def _choice(comm: MPI.Intracomm, arguments: PlanArguments) -> Choice:
    """Resolve ``"Auto"``. Collective."""
    if not arguments.operation.is_copy:
        return default_choice(COMPUTED_WITH)
    if not arguments.memories:
        return default_choice(NOT_IN_C_ORDER)
    wanted = Schedule(arguments.source, arguments.target, arguments.dtype, arguments.index_map)
    choices = choose_all([Problem(wanted, memory) for memory in arguments.memories], comm)
    return next((choice for choice in choices if choice.recorded), choices[0])


def build_library(comm: MPI.Intracomm) -> None:
    """Build the library unless it exists, once per node. Collective at the first call for a communicator."""

    def build() -> bool:
        with together(comm):
            ensure_library()
        return True

    remembered(comm, "library", build)
