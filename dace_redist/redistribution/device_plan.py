"""Redistribution with source, target, or both on a GPU. Start reading at: DevicePlan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from dace_redist.mpi.collective import together
from dace_redist.native.device import ensure_device_library
from dace_redist.native.interface import NativePlan
from dace_redist.redistribution.arguments import PlanArguments, check_part, check_target
from dace_redist.redistribution.device_arrays import DEVICES, ArrayView, array_view, empty_like_library
from dace_redist.redistribution.host_plan import Plan
from dace_redist.redistribution.request import Request, progress_number


class DevicePlan(Plan):
    """
    Plan for arrays of which at least one lies on the GPU that was current when the plan was made.

    The transfer is ordered on the array's stream, after work enqueued before and ahead of work enqueued afterwards.
    That is the current stream of CuPy or PyTorch, or the stream that the array names.

    :ivar device: Devices of source and target, each ``"cpu"`` or ``"gpu"``.
    """

    def __init__(self, comm: MPI.Intracomm, arguments: PlanArguments) -> None:
        with together(comm):
            ensure_device_library()
        self.device = arguments.device
        self._stream = 0
        super().__init__(comm, arguments)

    def __call__(self, array: Any, out: Any = None) -> Any:
        """
        Move a tensor. Collective over the ranks that have a part in it.

        :param array: This rank's part of the source; None on a rank that owns nothing of it.
        :param out: This rank's part of the target. Default: a new array, on the GPU of the library of ``array``.
        :return: This rank's part of the target: ``out`` if given.
        :raises ValueError: On this rank only, if the plan was freed, or an array has a wrong shape or device; the
            others may wait for this rank.
        :raises TypeError: On this rank only, if an array has another type.
        :raises RedistributionError: If MPI or the GPU fails.
        """
        out = self.empty_target_for(array) if out is None else out
        native, source, target = self._prepared_views(array, out)
        native.execute(source.address, target.address)
        return out

    def bound(self, array: Any, out: Any) -> Callable[[], None]:
        """
        Return a call with these arrays, which are checked only once.

        :param array: This rank's part of the source.
        :param out: This rank's part of the target.
        :raises ValueError: As a call of the plan.
        :raises TypeError: As a call of the plan.
        """
        native, source, target = self._prepared_views(array, out)
        return lambda: native.execute(source.address, target.address)

    def start(self, array: Any, out: Any = None, *, progress: str = "calls") -> Request:
        """
        Start to move a tensor. Parameters, errors and restrictions as of
        :meth:`dace_redist.redistribution.plan.Plan.start`. Arrays on a GPU are not protected.
        """
        number = progress_number(progress)
        out = self.empty_target_for(array) if out is None else out
        native, source, target = self._prepared_views(array, out)
        started = native.start(source.address, target.address, number)
        self._started = True
        arrays = [[side] if isinstance(side, np.ndarray) else [] for side in (array, out)]
        return Request(started, arrays[0], [(side, side) for side in arrays[1]], out, self._ended, array)

    def check_arrays(self, array: Any, out: Any) -> None:
        """
        Check arrays for a call or :meth:`start`.

        :raises ValueError: As a call of the plan.
        :raises TypeError: As a call of the plan.
        """
        self._prepared_views(array, out)

    def empty_target_for(self, array: Any) -> Any:
        """
        Return a new array for this rank's part of the target.

        :param array: This rank's part of the source; the new array is of the same library.
        :raises ValueError: If the redistribution does not define all elements.
        """
        if self.device[1] == "cpu":
            return self.empty_target()
        self._check_covered()
        return empty_like_library(array, self._target_shape, self.target_dtype)

    def _where(self) -> str:
        source, target = (_PLACES[side] for side in self.device)
        return f", {source}" if source == target else f", source {source}, target {target}"

    def _prepared_views(self, array: Any, out: Any) -> tuple[NativePlan, ArrayView, ArrayView]:
        self._ready()
        native = self._native
        assert isinstance(native, NativePlan)
        if array is None:
            check_part("array", None, self._source_shape, self.dtype, self._comm.rank)
            array = np.empty(self._source_shape, self.dtype)
        source, target = array_view("array", array), array_view("out", out)
        sides = (
            ("array", source, self._source_shape, self.dtype),
            ("out", target, self._target_shape, self.target_dtype),
        )
        for (name, view, shape, dtype), device in zip(sides, self.device, strict=True):
            check_part(name, view, shape, dtype, self._comm.rank)
            if view.device != device and view.size > 0:
                raise ValueError(
                    f"{name} must lie {_PLACES[device]}, for which the plan was made, but lies {_PLACES[view.device]}"
                )
            if not view.is_plain:
                raise ValueError(
                    f"{name} has strides {view.strides}, which do not count elements forward: copy it first"
                )
        check_target(source, target)
        in_c_order = source.in_c_order and target.in_c_order
        strides = ((), ()) if in_c_order else (source.strides, target.strides)
        if strides != self._strides:
            native.set_arrays(*(None if in_c_order else _layout(view) for view in (source, target)))
            self._strides = strides
        stream = next((view.stream for view in (target, source) if view.stream is not None), 0)
        if stream != self._stream:
            native.set_stream(stream)
            self._stream = stream
        return native, source, target


#: Names of devices in messages.
_PLACES = {"cpu": "in main memory", "gpu": "on the GPU"}


def _layout(view: ArrayView) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return view.shape, tuple(abs(stride) // view.dtype.itemsize for stride in view.strides)


def checked_device(device: Any) -> tuple[str, str]:
    """
    Return the devices of source and target of a plan.

    :param device: ``"cpu"`` or ``"gpu"`` for both, or a pair for source and target.
    :raises ValueError: If it is neither.
    """
    pair = (device, device) if isinstance(device, str) else device
    if not isinstance(pair, tuple | list) or len(pair) != 2 or any(side not in DEVICES for side in pair):
        raise ValueError(f'device must be "cpu" or "gpu", or a pair of them for source and target, got {device!r}')
    return pair[0], pair[1]


def make_plan(comm: MPI.Intracomm, arguments: PlanArguments) -> Plan:
    """Return a plan on the devices of its arguments; the library must be built. Collective."""
    return DevicePlan(comm, arguments) if "gpu" in arguments.device else Plan(comm, arguments)
