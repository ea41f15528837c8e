"""Plans with their arrays, as they are timed. Start reading at: TimedPlan."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dace_redist import _core
from dace_redist.native.device import synchronize
from dace_redist.native.interface import prepare
from dace_redist.redistribution.arrays.new import DeviceArray, shared_empty
from dace_redist.redistribution.problem import Problem
from dace_redist.redistribution.tensor_plan import Plan, bound_call
from dace_redist.strategies import find_strategy
from dace_redist.timing.memories import PLACES, PlacedSchedule


class TimedPlan:
    """
    Plan bound to its two arrays. Construction is collective, :meth:`free` local.

    :param arrays: This rank's parts of source and target; their memory is used at every call.
    :raises RedistributionError: On every rank, if one of them cannot make the plan.
    """

    def __init__(
        self,
        placed: PlacedSchedule,
        strategy: str,
        options: Mapping[str, int | float],
        arrays: tuple[Any, Any],
        comm: Any,
    ) -> None:
        prepare(comm)
        source, target = ("gpu" if place == "gpu" else "cpu" for place in PLACES[placed.memory])
        moved = Problem((placed.schedule,), False, find_strategy(strategy).name, tuple(sorted(options.items())))
        self.plan = Plan(comm, moved.placed((source, target)))
        self._on_gpu = placed.on_gpu
        self._call = bound_call(self.plan, *arrays) if placed.on_gpu else functools.partial(self.plan, *arrays)

    def __call__(self) -> None:
        """Redistribute, and synchronise with the GPU. Collective; errors as of :meth:`Plan.__call__`."""
        self._call()
        if self._on_gpu:
            synchronize()

    def free(self) -> None:
        """Free the plan. Local."""
        self.plan.free()


def array_of_ones(shape: Sequence[int], dtype: np.dtype[Any], place: str) -> Any:
    """Return an array of ones in ``"ordinary"``, ``"shared"`` or ``"gpu"`` memory; raise if there is too little."""
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


def new_arrays(placed: PlacedSchedule, rank: int) -> tuple[Any, Any]:
    """Return a rank's parts of source and target."""
    moved, (source, target) = placed.schedule, PLACES[placed.memory]
    return (
        array_of_ones(moved.source.local_shape(rank), moved.dtype, source),
        array_of_ones(moved.target.local_shape(rank), moved.target_dtype, target),
    )
