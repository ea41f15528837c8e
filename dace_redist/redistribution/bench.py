"""Arrays and plans for measurements, see :class:`dace_redist.tuning.bench.Bench`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dace_redist.distribution import AnyDistribution
from dace_redist.redistribution import plan_cache
from dace_redist.redistribution.device_arrays import DeviceArray
from dace_redist.redistribution.plan import ArrayPlan
from dace_redist.redistribution.shared_arrays import empty, is_shared


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


class LibraryBench:
    """Arrays and plans of this package."""

    def array(self, shape: Sequence[int], dtype: np.dtype[Any], place: str, comm: Any) -> Any:
        """See :meth:`dace_redist.tuning.bench.Bench.array`."""
        if place == "gpu":
            return DeviceArray.from_numpy(np.ones(tuple(shape), dtype))
        if place == "ordinary":
            return np.ones(tuple(shape), dtype)
        array = empty(tuple(shape), dtype, comm)
        if not is_shared(array):  # empty() has warned with the bytes requested and available
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
        return ArrayPlan(arrays[0], source, target, comm=comm, out=arrays[1], **options)

    def forget_choices(self, comm: Any) -> None:
        """See :meth:`dace_redist.tuning.bench.Bench.forget_choices`."""
        plan_cache.forget_choices(comm)


BENCH = LibraryBench()
