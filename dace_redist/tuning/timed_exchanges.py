"""
Times copies and exchanges of a few simple kinds on all ranks at once: the measurements of a machine profile.

Everything timed is a plan of the library: a copy is a plan of one rank, an exchange one in which every rank sends a
block to the next rank of its group. Start reading at: TimedExchanges.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import Distribution
from dace_redist.errors import RedistributionError
from dace_redist.tuning.bench import Bench, TimedPlan
from dace_redist.tuning.measure import Clock, Repetitions, system_clock
from dace_redist.tuning.progress import Show

_ITEM = 8  # bytes of an element
#: A repetition calls a plan so often that it takes about as long: more than the ranks differ in when they start.
_MIN_SECONDS = 3e-3
#: Repetitions of which the median counts.
_REPETITIONS = 7


@dataclasses.dataclass(frozen=True)
class Side:
    """
    One array of an exchange.

    :param run: Bytes of a contiguous run, with a gap of the same length after each; 0: contiguous.
    :param place: ``"ordinary"``, ``"shared"`` or ``"gpu"``.
    """

    run: int = 0
    place: str = "ordinary"


#: Communicator of this rank's group, and its ranks that take part, each of which sends to the next. All groups work at
#: the same time.
Group = tuple[MPI.Intracomm, Sequence[int]]


def matrix(ranks: int, nbytes: int) -> tuple[Distribution, Distribution]:
    """Return a square matrix by rows and by columns: each rank has at most ``nbytes`` of it, or a row."""
    size = max(1, math.isqrt(nbytes // _ITEM // ranks)) * ranks
    return Distribution((size, size), (ranks, 1)), Distribution((size, size), (1, ranks))


class TimedExchanges:
    """
    Times exchanges. Making it, and all its methods, are collective over ``comm``; they return seconds, or None if a
    rank cannot make the plan.

    :param max_bytes: Most bytes that a rank sends.
    :param limit_seconds: Time for everything.
    :param show: Called with the name of each measurement, and the seconds since the beginning.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        bench: Bench,
        max_bytes: int,
        limit_seconds: float,
        show: Show,
        clock: Clock = system_clock,
    ) -> None:
        self.comm, self.bench, self.max_bytes, self.limit_seconds = comm, bench, max_bytes, limit_seconds
        self.show, self.clock = show, clock
        #: Number of measurements to come: each may use its share of the time that remains.
        self.count = 0
        self._begin, self._repetitions = clock(), Repetitions(comm, clock)
        self._pools: dict[str, list[Any]] = {}
        for place in ("ordinary", "shared"):
            self.add_pool(place, max_bytes)

    def add_pool(self, place: str, max_bytes: int) -> None:
        """Make room for exchanges of at most ``max_bytes`` of a rank. Not collective; errors as of ``Bench.array``."""
        self._pools[place] = [self.bench.array((2 * max_bytes,), np.dtype(np.uint8), place, self.comm) for _ in "ab"]

    def copy(self, strategy: str, nbytes: int, sides: tuple[Side, Side]) -> float | None:
        """Time a copy of ``nbytes`` within each rank's own memory, by a strategy's self copy."""
        run = sides[0].run or sides[1].run or nbytes
        arrays = self._strided(0, sides[0], nbytes, run), self._strided(1, sides[1], nbytes, run)
        whole = Distribution((1, max(1, nbytes // run), run // _ITEM), (1,))
        name = f"copy of {nbytes:,} bytes in runs of {run:,}"
        return self._time(name, MPI.COMM_SELF, arrays, (whole, whole), strategy=strategy)

    def transpose(self, nbytes: int, itemsize: int, place: str = "ordinary") -> float | None:
        """Time the transposition of a matrix of ``nbytes`` on each rank, of elements of ``itemsize`` bytes."""
        rows = 1 << max(0, (nbytes // itemsize).bit_length() - 1) // 2
        shape = (rows, nbytes // itemsize // rows)
        arrays = self._block(0, place, shape, f"V{itemsize}"), self._block(1, place, shape[::-1], f"V{itemsize}")
        sides = Distribution(shape, (1,)), Distribution(shape[::-1], (1,))
        name = f"transpose of {nbytes:,} bytes"
        return self._time(name, MPI.COMM_SELF, arrays, sides, strategy="Pack", axes=(1, 0))

    def shift(
        self, group: Group, strategy: str, nbytes: int, sides: tuple[Side, Side], alone: bool = False, **options: Any
    ) -> float | None:
        """
        Time an exchange in which each member of a group sends ``nbytes`` to the next one.

        :param alone: Whether the ranks wait for each other before each exchange, as in :meth:`all_to_all`; else
            exchanges follow each other.
        :param options: Options of the strategy.
        """
        run = sides[0].run or sides[1].run or nbytes
        arrays = self._strided(0, sides[0], nbytes, run), self._strided(1, sides[1], nbytes, run)
        shape, members = (max(1, nbytes // run), run // _ITEM), list(group[1])
        if group[0].rank not in members:
            place = sides[0].place
            arrays = self._block(0, place, (0, *shape), np.uint64), self._block(1, place, (0, *shape), np.uint64)
        before, after = (
            Distribution((len(members), *shape), (len(members),), ranks=ranks)
            for ranks in (members, [*members[1:], members[0]])
        )
        name = f"{strategy}, {nbytes:,} bytes in runs of {run:,}"
        return self._time(name, group[0], arrays, (before, after), not alone, strategy=strategy, **options)

    def cyclic(
        self, group: MPI.Intracomm, strategy: str, nbytes: int, run: int, places: tuple[str, str], back: bool
    ) -> float | None:
        """
        Time the block to block-cyclic redistribution of a vector.

        :param nbytes: Bytes that each rank of the group has of it: at least a short block for each rank.
        :param run: Bytes of a short block.
        :param places: See :attr:`Side.place`.
        :param back: From block-cyclic to block.
        """
        shape = (nbytes // _ITEM * group.size,)
        sides = Distribution(shape, (group.size,)), Distribution(shape, (group.size,), block=(run // _ITEM,))
        sides = sides[::-1] if back else sides
        name = f"{strategy}, {nbytes:,} bytes block-cyclic in runs of {run:,}"
        return self._time(name, group, self._blocks(sides, places, group.rank), sides, strategy=strategy)

    def all_to_all(self, group: MPI.Intracomm, strategy: str, place: str = "ordinary", nbytes: int = 0) -> float | None:
        """
        Time an exchange in which each rank of a group sends a part of its rows of a :func:`matrix` to each other one.

        :param nbytes: Bytes that each rank has of the matrix; by default one element for each rank.
        """
        sides = matrix(group.size, nbytes)
        name = f"{strategy}, {nbytes:,} bytes, all to all" if nbytes else f"{strategy}, all to all"
        arrays = self._blocks(sides, (place, place), group.rank)
        return self._time(name, group, arrays, sides, in_a_row=False, strategy=strategy)

    def _strided(self, which: int, side: Side, nbytes: int, run: int) -> Any:
        """``nbytes`` of a pool in rows of ``run`` bytes."""
        rows, step = max(1, nbytes // run), (2 if side.run else 1) * run
        strides = (rows * step, step, _ITEM)
        whole = self._pools[side.place][which]
        return self.bench.view(whole, (1, rows, run // _ITEM), np.dtype(np.uint64), strides)

    def _block(self, which: int, place: str, shape: Sequence[int], dtype: npt.DTypeLike) -> Any:
        """A contiguous array in a pool."""
        dtype = np.dtype(dtype)
        strides = [dtype.itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        return self.bench.view(self._pools[place][which], shape, dtype, strides)

    def _blocks(self, sides: tuple[Distribution, Distribution], places: tuple[str, str], rank: int) -> tuple[Any, Any]:
        source, target = (self._block(i, places[i], sides[i].local_shape(rank), np.uint64) for i in (0, 1))
        return source, target

    def _time(
        self,
        name: str,
        group: MPI.Intracomm,
        arrays: tuple[Any, Any],
        sides: tuple[Distribution, Distribution],
        in_a_row: bool = True,
        **options: Any,
    ) -> float | None:
        """Median seconds of a call of a plan, called again and again; None if a rank cannot make it."""
        self.show(name, self.clock() - self._begin)
        plan = None
        try:
            plan = self.bench.plan(arrays, *sides, group, **options)
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
        remaining = self.limit_seconds - (self.clock() - self._begin)
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
