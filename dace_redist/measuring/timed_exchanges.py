"""
Times copies and exchanges of a few simple kinds on all ranks at once: the measurements of a machine profile.

Everything timed is a plan of the library: a copy is a plan of one rank. Start reading at: TimedExchanges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from dace_redist.distribution import Distribution
from dace_redist.errors import RedistributionError
from dace_redist.measuring.measure import Repetitions, Show, system_clock
from dace_redist.measuring.timed_plan import TimedPlan, beginning, new_array
from dace_redist.schedule import schedule
from dace_redist.tuning.problem import PLACES, Problem

_ITEM = 8  # bytes of an element
#: A repetition calls a plan so often that it takes about as long: more than the ranks differ in when they start.
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
        return self._time(name, MPI.COMM_SELF, Problem(moved, memory), "Pack")

    def transpose(self, nbytes: int, itemsize: int, memory: str) -> float | None:
        """Time the transposition of a matrix of ``nbytes`` on each rank, of elements of ``itemsize`` bytes."""
        rows = 1 << max(0, (nbytes // itemsize).bit_length() - 1) // 2
        shape = (rows, nbytes // itemsize // rows)
        moved = schedule(Distribution(shape, (1,)), Distribution(shape[::-1], (1,)), f"V{itemsize}", axes=(1, 0))
        return self._time(f"transpose of {nbytes:,} bytes", MPI.COMM_SELF, Problem(moved, memory), "Pack")

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
        problem = Problem(schedule(before, after, f"V{_ITEM}"), memory)
        return self._time(f"{strategy}, {nbytes:,} bytes", group[0], problem, strategy, options, not alone)

    def cyclic(self, group: MPI.Intracomm, strategy: str, nbytes: int, run: int, memory: str) -> float | None:
        """
        Time the block to block-cyclic redistribution of a vector, in which each rank of a group sends to all others.

        :param nbytes: Bytes that each rank has of it: at least a short block for each rank.
        :param run: Bytes of a short block.
        """
        shape = (nbytes // _ITEM * group.size,)
        after = Distribution(shape, (group.size,), block=(run // _ITEM,))
        problem = Problem(schedule(Distribution(shape, (group.size,)), after, f"V{_ITEM}"), memory)
        name = f"{strategy}, {nbytes:,} bytes block-cyclic in runs of {run:,}"
        return self._time(name, group, problem, strategy, in_a_row=False)

    def all_to_all(self, group: MPI.Intracomm, strategy: str, memory: str) -> float | None:
        """Time an exchange in which each rank of a group sends an element to each other one."""
        shape = (group.size, group.size)
        moved = schedule(Distribution(shape, (group.size, 1)), Distribution(shape, (1, group.size)), f"V{_ITEM}")
        return self._time(f"{strategy}, all to all", group, Problem(moved, memory), strategy, in_a_row=False)

    def _time(
        self,
        name: str,
        group: MPI.Intracomm,
        problem: Problem,
        strategy: str,
        options: Mapping[str, Any] | None = None,
        in_a_row: bool = True,
    ) -> float | None:
        """Median seconds of a call of a plan, called again and again; None if a rank cannot make it."""
        self._show(name, system_clock() - self._begin)
        moved, places = problem.schedule, PLACES[problem.memory]
        source, target = (
            beginning(self._pools[place][i], side.local_shape(group.rank), moved.dtype)
            for i, (place, side) in enumerate(zip(places, (moved.source, moved.target), strict=True))
        )
        plan = None
        try:
            plan = TimedPlan(problem, strategy, options or {}, (source, target), group)
        except RedistributionError:
            pass
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
