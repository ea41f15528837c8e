"""Lower bounds on the traffic of a redistribution, for many pairs of grids at once. Start reading at: move_bounds."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from dace_redist.einsum.grids import Floats, Layouts
from dace_redist.einsum.placement import ceil_division

#: Largest table of bounds that is cached.
MAX_KEPT = 250_000


def move_bounds(source: Layouts, target: Layouts, shape: Sequence[int], paired: bool = False) -> Floats:
    """
    A lower bound on the elements through the busiest rank, whatever the numbering of the target's ranks.

    Two bounds hold, and the larger one is returned. The rank with the worst full block of the target receives the
    elements of it that the best block of the source lacks. All received elements are sent by the ranks of the source.

    :param source: The tensor's blocks on K grids.
    :param target: Its blocks on L grids.
    :param shape: The tensor's shape.
    :param paired: Both are on the same K grids; only the bounds of pairs of equal number are computed.
    :return: Array of shape (K, L), or (K,) if paired.
    """
    rows = slice(None) if paired else (slice(None), None)
    worst, best = np.ones(()), np.ones(())
    for axis, extent in enumerate(shape):
        (before, at_source), (after, at_target) = source.distinct[axis], target.distinct[axis]
        table = np.array([[_worst_overlap(extent, int(b), int(a)) for a in after] for b in before], np.float64)
        worst = worst * table[at_source[rows], at_target]
        best = best * np.minimum(source.blocks[:, axis][rows], target.blocks[:, axis])
    received = target.elements - worst
    whole = math.prod(map(float, shape)) * target.replicas
    kept = np.minimum(source.ranks[rows], target.ranks) * best
    return np.asarray(np.maximum(received, (whole - kept) / source.ranks[rows]).clip(min=0))


class MoveBounds:
    """
    :func:`move_bounds` of one pair of tensors, cached.

    :param source: The tensor's blocks on K grids.
    :param target: Its blocks on L grids.
    :param shape: The tensor's shape.
    """

    def __init__(self, source: Layouts, target: Layouts, shape: Sequence[int]) -> None:
        self._source, self._target, self._shape = source, target, shape

    @cached_property
    def _kept(self) -> Floats:
        return move_bounds(self._source, self._target, self._shape)

    def of(self, sources: slice, targets: slice) -> Floats:
        """Return the bounds for some of the K grids and some of the L grids."""
        if len(self._source) * len(self._target) <= MAX_KEPT:
            return self._kept[sources, targets]
        return move_bounds(self._source.chosen(sources), self._target.chosen(targets), self._shape)


@functools.lru_cache(maxsize=1 << 16)
def _worst_overlap(extent: int, before: int, after: int) -> int:
    """Minimum over target blocks of the maximum over source blocks of their overlap, along one axis."""
    if extent == 0 or before % after == 0 or after % before == 0 or before >= extent:
        return min(before, after)
    low = np.arange(max(extent // after, 1), dtype=np.int64) * after
    high = np.minimum(low + after, extent)
    if after > before:
        first = np.minimum(ceil_division(low, before) * before, high)
        inside = np.where(first + before <= high, before, 0)
        ends = np.maximum(np.minimum(first, high) - low, high - np.maximum(high // before * before, low))
        return int(np.maximum(inside, ends).min())
    cut = np.minimum(ceil_division(low, before) * before, high)
    return int(np.maximum(cut - low, high - cut).min())
