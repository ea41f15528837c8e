"""
Times copies and exchanges of a few simple kinds on all ranks at once: what a machine profile is made of.

Everything timed is a plan of the library: a copy is a plan of one rank, an exchange one in which every rank sends a
block to the next rank of its group. Start reading at: TimedExchanges.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import Distribution
from dace_redist.errors import RedistributionError
from dace_redist.redistribution.device_arrays import DeviceArray, c_strides
from dace_redist.redistribution.plan import ArrayPlan
from dace_redist.redistribution.shared_arrays import empty
from dace_redist.tuning.measure import Repetitions

_ITEM = 8  # bytes of an element


@dataclasses.dataclass(frozen=True)
class Side:
    """
    One array of an exchange.

    :param run: Bytes of a contiguous run, with a gap of the same length after each; 0: contiguous.
    :param shared: Whether it lies in node-shared memory.
    :param on_gpu: Whether it lies on the GPU.
    """

    run: int = 0
    shared: bool = False
    on_gpu: bool = False


@dataclasses.dataclass(frozen=True)
class _DevicePart:
    """The beginning of an array on the GPU in another shape; ``strides`` in bytes."""

    whole: DeviceArray
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        own = {"shape": self.shape, "typestr": self.dtype.str, "strides": self.strides}
        return {**self.whole.__cuda_array_interface__, **own}


#: An array that is timed.
_Part = npt.NDArray[Any] | _DevicePart


def matrix(ranks: int, nbytes: int) -> tuple[Distribution, Distribution]:
    """A square matrix of 8-byte elements, by rows and by columns: each rank has at most ``nbytes`` of it, or a row."""
    size = max(1, math.isqrt(nbytes // _ITEM // ranks)) * ranks
    return Distribution((size, size), (ranks, 1)), Distribution((size, size), (1, ranks))


@dataclasses.dataclass
class TimedExchanges:
    """
    Times exchanges. Making it, and all its methods, are collective over ``comm``.

    :param comm: All ranks.
    :param most_bytes: Most bytes that a rank sends.
    :param limit_seconds: Time for everything.
    :param count: Number of measurements to come: each may take its share of the time that is left.
    :param show: Called with what is measured, and the seconds since the beginning.
    """

    comm: MPI.Intracomm
    most_bytes: int
    limit_seconds: float
    count: int
    show: Callable[[str, float], None]

    def __post_init__(self) -> None:
        self._begin, self._repetitions = time.monotonic(), Repetitions(self.comm)
        self._pools = {shared: (self._pool(shared), self._pool(shared)) for shared in (False, True)}
        self._device_pools: tuple[DeviceArray, ...] = ()

    def use_device(self, most_bytes: int) -> None:
        """
        Makes room on the GPU, before sides there are timed. Not collective.

        :param most_bytes: Most bytes that a rank sends from there.
        :raises BuildError: If the library for GPUs cannot be built.
        :raises RedistributionError: If there is no GPU, or too little memory on it.
        """
        self._device_pools = DeviceArray(2 * most_bytes, np.uint8), DeviceArray(2 * most_bytes, np.uint8)

    def _pool(self, shared: bool) -> npt.NDArray[Any]:
        nbytes = 2 * self.most_bytes
        pool = empty(nbytes, np.uint8, self.comm) if shared else np.empty(nbytes, np.uint8)
        pool.fill(1)  # every page is touched
        return pool

    def _array(self, which: int, side: Side, nbytes: int, run: int) -> _Part:
        """``nbytes`` of a pool in rows of ``run`` bytes."""
        rows, width = max(1, nbytes // run), (2 if side.run else 1) * run // _ITEM
        if side.on_gpu:
            strides = (rows * width * _ITEM, width * _ITEM, _ITEM)
            return _DevicePart(self._device_pools[which], (1, rows, run // _ITEM), np.dtype(np.uint64), strides)
        pool = self._pools[side.shared][which].view(np.uint64)
        return pool[: rows * width].reshape(1, rows, width)[:, :, : run // _ITEM]

    def _block(self, which: int, shape: tuple[int, ...], dtype: npt.DTypeLike, on_gpu: bool) -> _Part:
        """A contiguous array in an ordinary pool, or in one on the GPU."""
        dtype = np.dtype(dtype)
        if on_gpu:
            return _DevicePart(self._device_pools[which], shape, dtype, c_strides(shape, dtype.itemsize))
        return self._pools[False][which][: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    def copy(self, strategy: str, nbytes: int, source: Side, target: Side) -> float:
        """Seconds in which each rank copies ``nbytes`` in its own memory, as the strategy copies what stays."""
        run = source.run or target.run or nbytes
        arrays = self._array(0, source, nbytes, run), self._array(1, target, nbytes, run)
        all_of_it = Distribution(arrays[0].shape, (1,))
        return (
            self._timed(
                f"copy of {nbytes:,} bytes in runs of {run:,}",
                lambda: self._plan(MPI.COMM_SELF, strategy, arrays, all_of_it, all_of_it),
            )
            or 0.0
        )

    def transpose(self, nbytes: int, itemsize: int, on_gpu: bool = False) -> float:
        """Seconds in which each rank transposes a matrix of ``nbytes``, of elements of ``itemsize`` bytes."""
        rows = 1 << max(0, (nbytes // itemsize).bit_length() - 1) // 2
        shape = (rows, nbytes // itemsize // rows)
        arrays = [self._block(which, part, f"V{itemsize}", on_gpu) for which, part in enumerate((shape, shape[::-1]))]
        sides = Distribution(shape, (1,)), Distribution(shape[::-1], (1,))
        return (
            self._timed(
                f"transpose of {nbytes:,} bytes", lambda: self._plan(MPI.COMM_SELF, "Pack", arrays, *sides, axes=(1, 0))
            )
            or 0.0
        )

    def shift(
        self,
        group: MPI.Intracomm,
        members: Sequence[int],
        strategy: str,
        nbytes: int,
        source: Side,
        target: Side,
        alone: bool = False,
        **options: Any,
    ) -> float | None:
        """
        Seconds in which each member of a group sends ``nbytes`` to the next one, all groups at the same time.

        :param group: Communicator of this rank's group.
        :param members: Its ranks that take part, each of which sends to the next.
        :param alone: Whether the ranks wait for each other before each exchange, as in :meth:`all_to_all`; else
            exchanges follow each other.
        :param options: Options of the strategy.
        :return: None if a rank cannot.
        """
        run = source.run or target.run or nbytes
        arrays = [self._array(0, source, nbytes, run), self._array(1, target, nbytes, run)]
        if group.rank not in members:
            none_of_it = (0, *arrays[0].shape[1:])
            arrays = [self._block(which, none_of_it, np.uint64, source.on_gpu) for which in range(2)]
        shape = (len(members), *arrays[0].shape[1:])
        owners = (list(members), [*members[1:], members[0]])
        before, after = (Distribution(shape, (len(members),), ranks=ranks) for ranks in owners)
        name = f"{strategy}, {nbytes:,} bytes in runs of {run:,}"
        return self._timed(
            name, lambda: self._plan(group, strategy, arrays, before, after, **options), in_a_row=not alone
        )

    def dealt(
        self, group: MPI.Intracomm, strategy: str, nbytes: int, run: int, shared: tuple[bool, bool], back: bool
    ) -> float | None:
        """
        Seconds in which a vector goes from one block on each rank of a group to short blocks, dealt out in turn.

        :param nbytes: What each rank has of the vector: at least a short block for each rank.
        :param run: Bytes of a short block.
        :param shared: Whether source and target lie in node-shared memory.
        :param back: From the short blocks to the long ones.
        :return: None if a rank cannot.
        """
        here = nbytes // _ITEM
        shape = (here * group.size,)
        sides = Distribution(shape, (group.size,)), Distribution(shape, (group.size,), block=(run // _ITEM,))
        if back:
            sides = sides[::-1]
        arrays = [
            self._pools[on_node][which].view(np.uint64)[: math.prod(side.local_shape(group.rank))]
            for which, (side, on_node) in enumerate(zip(sides, shared, strict=True))
        ]
        name = f"{strategy}, {nbytes:,} bytes dealt in runs of {run:,}"
        return self._timed(name, lambda: self._plan(group, strategy, arrays, *sides))

    def all_to_all(self, group: MPI.Intracomm, strategy: str, on_gpu: bool = False, nbytes: int = 0) -> float | None:
        """
        Seconds in which each rank of a group sends a part of its rows of a :func:`matrix` to each other one.

        :param nbytes: What each rank has of the matrix; by default one element for each rank.
        """
        sides = matrix(group.size, nbytes)
        arrays = [
            self._block(which, side.local_shape(group.rank), np.uint64, on_gpu) for which, side in enumerate(sides)
        ]
        name = f"{strategy}, {nbytes:,} bytes, all to all" if nbytes else f"{strategy}, all to all"
        return self._timed(name, lambda: self._plan(group, strategy, arrays, *sides), in_a_row=False)

    @staticmethod
    def _plan(
        group: MPI.Intracomm,
        strategy: str,
        arrays: Sequence[_Part],
        source: Distribution,
        target: Distribution,
        axes: Sequence[int] | None = None,
        **options: Any,
    ) -> ArrayPlan:
        return ArrayPlan(arrays[0], source, target, comm=group, out=arrays[1], strategy=strategy, axes=axes, **options)

    def _timed(self, name: str, make: Callable[[], ArrayPlan], in_a_row: bool = True) -> float | None:
        """Median seconds of a call of a plan, called again and again; None if a rank cannot make it."""
        self.show(name, time.monotonic() - self._begin)
        plan = None
        try:
            plan = make()
        except RedistributionError:
            pass
        try:
            if self.comm.allreduce(plan is None, MPI.LOR) or plan is None:
                return None
            return self._median(name, plan, in_a_row)
        finally:
            if plan is not None:
                plan.free()

    def _median(self, name: str, plan: ArrayPlan, in_a_row: bool) -> float:
        left = self.limit_seconds - (time.monotonic() - self._begin)
        share: float = self.comm.bcast(max(left / max(1, self.count), 0.0))
        self.count -= 1
        plan()
        once = self._repetitions.repeat(name, plan)
        calls = max(1, min(1000, round(min(_LEAST_SECONDS, share / _REPETITIONS) / max(once, 1e-7)))) if in_a_row else 1

        def several() -> None:
            for _ in range(calls):
                plan()

        repetitions = max(1, min(_REPETITIONS if in_a_row else 5 * _REPETITIONS, int(share / (once * calls))))
        return float(np.median([self._repetitions.repeat(name, several) for _ in range(repetitions)])) / calls


#: A repetition calls a plan so often that it takes about as long: more than the ranks differ in when they start.
_LEAST_SECONDS = 3e-3
#: Repetitions of which the median counts.
_REPETITIONS = 7
