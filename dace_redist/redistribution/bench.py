"""Arrays and plans for measurements, see :class:`dace_redist.tuning.bench.Bench`."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dace_redist import _core
from dace_redist.distribution import AnyDistribution
from dace_redist.native.device import synchronize
from dace_redist.redistribution.agreement import agreed_problem
from dace_redist.redistribution.cache import forget_choices
from dace_redist.redistribution.communicator import prepare
from dace_redist.redistribution.device_arrays import DeviceArray
from dace_redist.redistribution.plan import Plan
from dace_redist.redistribution.problem import Arguments
from dace_redist.redistribution.shared_memory import shared_empty


@dataclasses.dataclass(frozen=True)
class _DevicePart:
    """The beginning of an array on the GPU in another shape."""

    whole: DeviceArray
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        own = {"shape": self.shape, "typestr": self.dtype.str, "strides": None}
        return {**self.whole.__cuda_array_interface__, **own}


class ArrayPlan:
    """
    Plan bound to its two arrays; a call redistributes them. Measurements time this call.

    Errors are those of :func:`dace_redist.redistribute`. Construction is collective, :meth:`free` local.

    :param arrays: This rank's parts of source and target; their memory is used at every call.
    :param options: Strategy, its options, axes and region.
    """

    def __init__(
        self, arrays: tuple[Any, Any], source: AnyDistribution, target: AnyDistribution, comm: Any, **options: Any
    ) -> None:
        prepare(comm)
        change = {"target_dtype": None, "axes": options.pop("axes", None), "region": options.pop("region", None)}
        given = Arguments(source, target, change, options.pop("strategy", "Auto"), options, None)
        problem, _ = agreed_problem(comm, given, *arrays)
        self.plan = Plan(comm, problem)
        self._on_gpu = problem.on_gpu
        self._call = self.plan.bound(*arrays) if problem.on_gpu else functools.partial(self.plan, *arrays)

    def __call__(self) -> None:
        """Redistribute, and synchronise with the GPU. Collective; errors as of :meth:`Plan.__call__`."""
        self._call()
        if self._on_gpu:
            synchronize()

    def free(self) -> None:
        """Free the plan. Local."""
        self.plan.free()


class LibraryBench:
    """Arrays and plans of this package."""

    def array(self, shape: Sequence[int], dtype: np.dtype[Any], place: str, comm: Any) -> Any:
        """See :meth:`dace_redist.tuning.bench.Bench.array`."""
        if place == "gpu":
            return DeviceArray.from_numpy(np.ones(tuple(shape), dtype))
        if place == "ordinary":
            return np.ones(tuple(shape), dtype)
        array = shared_empty(tuple(shape), dtype)
        if not _core.is_shared(array):  # shared_empty() has warned with the bytes requested and available
            nbytes = math.prod(shape) * dtype.itemsize
            raise RuntimeError(f"there is too little node-shared memory for an array of {nbytes:,} bytes to measure")
        array.fill(1)
        return array

    def view(self, whole: Any, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        """See :meth:`dace_redist.tuning.bench.Bench.view`."""
        if isinstance(whole, DeviceArray):
            return _DevicePart(whole, tuple(shape), dtype)
        return np.ndarray(tuple(shape), dtype, whole)

    def plan(
        self, arrays: tuple[Any, Any], source: AnyDistribution, target: AnyDistribution, comm: Any, **options: Any
    ) -> ArrayPlan:
        """See :meth:`dace_redist.tuning.bench.Bench.plan`."""
        return ArrayPlan(arrays, source, target, comm, **options)

    def forget_choices(self, comm: Any) -> None:
        """See :meth:`dace_redist.tuning.bench.Bench.forget_choices`."""
        forget_choices(comm)


BENCH = LibraryBench()
