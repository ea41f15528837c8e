"""Local arrays of a case: their memory, values computed from global indices, and the check of what arrived."""

from __future__ import annotations

import contextlib
import math
import mmap
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import dace_redist
from dace_redist.distribution import AnyDistribution, Distribution
from dace_redist.redistribution.arrays.new import DeviceArray
from redistribution.catalogue import Case

#: Elements whose values are computed at a time, or one index of the first axis, so that a check needs little memory.
_SLAB = 1 << 20

Array = npt.NDArray[Any]
Region = tuple[tuple[int, ...], ...] | None


class Arrays:
    """Local arrays of one rank, allocated when first asked for. Asking for shared ones is collective."""

    def __init__(self, case: Case, comm: Any) -> None:
        self.case, self.comm = case, comm
        self._made: dict[tuple[str, str], Array] = {}
        self._on_gpu: DeviceArray | None = None

    def on_gpu(self) -> tuple[DeviceArray, DeviceArray]:
        """Return copies on the GPU: of the source, kept with these arrays, and of a target of wrong elements."""
        wrong = np.full(self.case.target.local_shape(self.comm.rank), -1, self.case.dtype)
        if self._on_gpu is None:
            self._on_gpu = DeviceArray.from_numpy(self.source())
        return self._on_gpu, DeviceArray.from_numpy(wrong)

    def source(self, variant: str = "ordinary") -> Array:
        """Return the rank's part of the source, filled."""
        return self._get("source", variant)

    def target(self, variant: str = "ordinary") -> Array:
        """Return the rank's part of the target, all of its pages touched."""
        return self._get("target", variant)

    def _get(self, side: str, variant: str) -> Array:
        memory = variant if variant in ("shared-both", "mapped", f"shared-{side}") else "ordinary"
        if (side, memory) not in self._made:
            distribution = getattr(self.case, side)
            self._made[side, memory] = array = self._allocate(side, distribution, memory)
            if side == "source":
                fill(array, distribution, self.comm.rank)
            else:
                array.fill(0)
        return self._made[side, memory]

    def _allocate(self, side: str, distribution: AnyDistribution, memory: str) -> Array:
        shape, within = distribution.local_shape(self.comm.rank), self.case.within
        whole = within.shape if within else shape
        with dace_redist.node_shared_memory() if memory == "shared-both" else contextlib.nullcontext():
            array = self._shared(whole) if memory == f"shared-{side}" else np.zeros(whole, self.case.dtype)
        if memory == "mapped":
            array = np.ndarray(whole, self.case.dtype, mmap.mmap(-1, max(1, array.nbytes)))
        if within is None:
            return array
        first = within.source_at if side == "source" else within.target_at
        return array[tuple(slice(at, at + n) for at, n in zip(first, shape, strict=True))]

    def _shared(self, shape: tuple[int, ...]) -> Array:
        """Return an array in node-shared memory; raise MemoryError on every rank if it is exhausted on one."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            array = dace_redist.shared_empty(shape, self.case.dtype)
        fell_back = next((str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)), "")
        reasons = [text for text in self.comm.allgather(fell_back) if text]
        if reasons:
            raise MemoryError(reasons[0])
        return array


def fill(array: Array, distribution: AnyDistribution, rank: int) -> None:
    """Set every element of a rank's part to a value computed from its global index."""
    for part, values in _expected(array, distribution, rank):
        part[...] = values


def is_right(array: Array, distribution: AnyDistribution, rank: int, region: Region = None) -> bool:
    """
    Return True if every element has the value of :func:`fill`.

    :param region: Sub-tensor that moved, of a tensor that is not in tiles; elements outside of it are not checked.
    """
    return all(np.array_equal(part, values) for part, values in _expected(array, distribution, rank, region))


def _expected(
    array: Array, distribution: AnyDistribution, rank: int, region: Region = None
) -> Iterator[tuple[Array, Array]]:
    """Yield parts of a local array with the values that belong there."""
    if array.size == 0:
        return
    if isinstance(distribution, Distribution):
        index: Any = distribution.global_index(rank)
        if region is not None:
            inside = [slice(*np.searchsorted(i, (b, b + n))) for i, b, n in zip(index, *region[1:], strict=True)]
            array = array[tuple(inside)]
            index = [i[s] - b + a for i, s, a, b in zip(index, inside, *region[:2], strict=True)]
        step = max(1, _SLAB // max(1, math.prod(array.shape[1:])))
        for rows in (slice(begin, begin + step) for begin in range(0, len(array), step)):
            yield array[rows], _values([index[0][rows], *index[1:]], distribution.shape, array.dtype)
        return
    begin = 0
    for bounds in distribution.core.tile_ranges(rank):
        index = tuple(map(np.arange, bounds[::2], bounds[1::2]))
        values = _values(index, distribution.shape, array.dtype).ravel()
        yield array[begin : begin + values.size], values
        begin += values.size


def _values(index: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the values of a box: 24-bit numbers, which every type of four bytes holds, from the linear index."""
    linear = np.zeros([len(i) for i in index], np.uint32)
    stride = 1
    for axis in reversed(range(len(shape))):
        step = (np.asarray(index[axis]) * stride % (1 << 32)).astype(np.uint32)
        linear += step.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        stride = stride * shape[axis] % (1 << 32)
    linear *= np.uint32(2654435761)  # Knuth's multiplier: neighbours, and elements 2^24 apart, come to differ
    linear >>= np.uint32(8)
    return linear.astype(dtype)
