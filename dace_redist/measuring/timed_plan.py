"""
Times plans, and copies and exchanges of a few simple kinds on all ranks at once: the measurements of a machine profile.

Everything timed is a plan of the library: a copy is a plan of one rank. Start reading at: TimedExchanges.
"""

from __future__ import annotations

import contextlib
import functools
import math
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from dace_redist import _core
from dace_redist.distribution import Distribution
from dace_redist.errors import RedistributionError
from dace_redist.measuring.measure import Repetitions, Show, system_clock
from dace_redist.native.device import synchronize
from dace_redist.native.interface import prepare
from dace_redist.redistribution.arrays import array_view
from dace_redist.redistribution.arrays.new import DeviceArray, shared_empty
from dace_redist.redistribution.problem import Problem as PlannedProblem
from dace_redist.redistribution.tensor_plan import Plan, bound_call
from dace_redist.schedule import Schedule, schedule
from dace_redist.tuning.problem import PLACES, Problem, sides_on_gpu


class TimedPlan:
    """
    Plan bound to its two arrays. Construction is collective, :meth:`free` local.

    :param arrays: This rank's parts of source and target; their memory is used at every call.
    :raises RedistributionError: On every rank, if one of them cannot make the plan.
    """

    def __init__(
        self,
        problem: Problem,
        strategy: str,
        options: Mapping[str, int | float],
        arrays: tuple[Any, Any],
        comm: Any,
    ) -> None:
        prepare(comm)
        source, target = ("gpu" if on_gpu else "cpu" for on_gpu in sides_on_gpu(problem.memory))
        in_c_order = all(array_view("array", array).in_c_order for array in arrays)  # as what "Auto" has measured
        memories = (problem.memory,) if in_c_order else ()
        moved = PlannedProblem((problem.schedule,), False, strategy, tuple(sorted(options.items())), memories=memories)
        self.plan = Plan(comm, moved.placed((source, target)))
        self._on_gpu = problem.on_gpu
        self._call = bound_call(self.plan, *arrays) if problem.on_gpu else functools.partial(self.plan, *arrays)

    def __call__(self) -> None:
        """Redistribute, and synchronise with the GPU. Collective; errors as of :meth:`Plan.__call__`."""
        self._call()
        if self._on_gpu:
            synchronize()

    def free(self) -> None:
        """Free the plan. Local."""
        self.plan.free()


def new_array(shape: Sequence[int], dtype: np.dtype[Any], place: str) -> Any:
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


def new_arrays(problem: Problem, rank: int) -> tuple[Any, Any]:
    """Return a rank's parts of source and target."""
    moved, places = problem.schedule, PLACES[problem.memory]
    source, target = (
        new_array(side.local_shape(rank), moved.dtype, place)
        for side, place in zip((moved.source, moved.target), places, strict=True)
    )
    return source, target


def beginning(whole: Any, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
    """Return the beginning of an array of :func:`new_array` in another shape."""
    if isinstance(whole, DeviceArray):
        interface = {**whole.__cuda_array_interface__, "shape": tuple(shape), "typestr": dtype.str}
        return types.SimpleNamespace(whole=whole, __cuda_array_interface__=interface)
    return np.ndarray(tuple(shape), dtype, whole)


_ITEM = 8  # bytes of an element
#: Approximate seconds of a repetition, which calls a plan several times: longer than the skew of the ranks' starts.
_MIN_SECONDS = 3e-3
#: Repetitions of which the median counts.
_REPETITIONS = 7


class TimedExchanges:
    """
    Times exchanges. Making it, and all its methods, are collective over ``comm``; they return seconds, or None if a
    rank cannot make the plan. ``memory`` is where the arrays lie, one of :data:`dace_redist.tuning.problem.MEMORIES`.

    :param max_bytes: Largest array of a rank.
    :param limit_seconds: Time for everything.
    :param show: Called with the name of each measurement, and the seconds since the beginning.
    """

    def __init__(self, comm: MPI.Intracomm, max_bytes: int, limit_seconds: float, show: Show) -> None:
        self.comm, self._limit_seconds, self._show = comm, limit_seconds, show
        #: Number of measurements to come: each may use its share of the time that remains.
        self.count = 0
        #: True to count measurements, of which each takes a second then, instead of making them.
        self.counting = False
        self._begin, self._repetitions = system_clock(), Repetitions(comm)
        self._pools: dict[str, list[Any]] = {}
        for place in ("ordinary", "shared"):
            self.add_pool(place, max_bytes)

    def add_pool(self, place: str, max_bytes: int) -> None:
        """Make room for arrays of at most ``max_bytes``. Not collective; errors as of :func:`new_array`."""
        self._pools[place] = [new_array((2 * max_bytes,), np.dtype(np.uint8), place) for _ in "ab"]

    def copy(self, nbytes: int, run: int, memory: str, gaps: Sequence[bool] = (False, False)) -> float | None:
        """Time a copy within each rank's memory; a side with gaps has one as long as the run after each run."""
        rows, items = max(1, nbytes // run), max(1, run // _ITEM)
        source, target = (Distribution((rows, 1 + gap, items), (1,)) for gap in gaps)
        region, name = ((0, 0, 0), (0, 0, 0), (rows, 1, items)), f"copy of {nbytes:,} bytes in runs of {run:,}"
        moved = schedule(source, target, f"V{_ITEM}", region=region)
        return self._time(name, MPI.COMM_SELF, moved, memory)

    def transpose(self, nbytes: int, itemsize: int, memory: str) -> float | None:
        """Time the transposition of a matrix of ``nbytes`` on each rank, of elements of ``itemsize`` bytes."""
        rows = 1 << max(0, (nbytes // itemsize).bit_length() - 1) // 2
        shape = (rows, nbytes // itemsize // rows)
        moved = schedule(Distribution(shape, (1,)), Distribution(shape[::-1], (1,)), f"V{itemsize}", axes=(1, 0))
        return self._time(f"transpose of {nbytes:,} bytes", MPI.COMM_SELF, moved, memory)

    def shift(
        self,
        group: tuple[MPI.Intracomm, Sequence[int]],
        strategy: str,
        nbytes: int,
        memory: str,
        alone: bool = False,
        **options: Any,
    ) -> float | None:
        """
        Time an exchange in which each member of a group sends ``nbytes`` to the next one.

        :param group: Communicator of this rank's group, and its ranks that take part. All groups work at the same time.
        :param alone: Whether the ranks wait for each other before each exchange; else exchanges follow each other.
        :param options: Options of the strategy.
        """
        members, shape = list(group[1]), (len(group[1]), nbytes // _ITEM)
        before, after = (
            Distribution(shape, (len(members),), ranks=ranks) for ranks in (members, [*members[1:], members[0]])
        )
        moved, name = schedule(before, after, f"V{_ITEM}"), f"{strategy}, {nbytes:,} bytes"
        return self._time(name, group[0], moved, memory, strategy, options, not alone)

    def cyclic(self, group: MPI.Intracomm, strategy: str, nbytes: int, run: int, memory: str) -> float | None:
        """
        Time the block to block-cyclic redistribution of a vector, in which each rank of a group sends to all others.

        :param nbytes: Bytes that each rank has of it: at least a short block for each rank.
        :param run: Bytes of a short block.
        """
        shape = (nbytes // _ITEM * group.size,)
        after = Distribution(shape, (group.size,), block=(run // _ITEM,))
        moved = schedule(Distribution(shape, (group.size,)), after, f"V{_ITEM}")
        name = f"{strategy}, {nbytes:,} bytes block-cyclic in runs of {run:,}"
        return self._time(name, group, moved, memory, strategy, in_a_row=False)

    def _time(
        self,
        name: str,
        group: MPI.Intracomm,
        moved: Schedule,
        memory: str,
        strategy: str = "Pack",
        options: Mapping[str, Any] | None = None,
        in_a_row: bool = True,
    ) -> float | None:
        """Median seconds of a call of a plan, called again and again; None if a rank cannot make it."""
        if self.counting:
            self.count += 1
            return 1.0
        problem = Problem(moved, memory)
        self._show(name, system_clock() - self._begin)
        source, target = (
            beginning(self._pools[place][i], side.local_shape(group.rank), moved.dtype)
            for i, (place, side) in enumerate(zip(PLACES[memory], (moved.source, moved.target), strict=True))
        )
        plan = None
        with contextlib.suppress(RedistributionError):
            plan = TimedPlan(problem, strategy, options or {}, (source, target), group)
        try:
            if self.comm.allreduce(plan is None, MPI.LOR) or plan is None:
                return None
            return self._median(name, plan, in_a_row)
        finally:
            if plan is not None:
                plan.free()

    def _median(self, name: str, plan: TimedPlan, in_a_row: bool) -> float:
        remaining = self._limit_seconds - (system_clock() - self._begin)
        share: float = self.comm.bcast(max(remaining / max(1, self.count), 0.0))
        self.count -= 1
        plan()
        once = self._repetitions.repeat(name, plan)
        calls = max(1, min(1000, round(min(_MIN_SECONDS, share / _REPETITIONS) / max(once, 1e-7)))) if in_a_row else 1

        def several() -> None:
            for _ in range(calls):
                plan()

        repetitions = max(1, min(_REPETITIONS if in_a_row else 5 * _REPETITIONS, int(share / (once * calls))))
        return float(np.median([self._repetitions.repeat(name, several) for _ in range(repetitions)])) / calls
