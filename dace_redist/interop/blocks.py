"""Distributions in one block per rank, in the terms of other libraries: lengths of parts, and ranks on a grid."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution, BoxDistribution, Distribution
from dace_redist.planned_distribution import balanced_lengths


class Blocks(NamedTuple):
    """
    Distribution in one block per rank.

    :param lengths: Lengths of the parts of each axis, in elements.
    :param ranks: Ranks by part of each axis and, on the last axis, by replica.
    """

    lengths: tuple[tuple[int, ...], ...]
    ranks: npt.NDArray[np.int64]

    @classmethod
    def of(cls, distribution: AnyDistribution) -> Blocks:
        """Return the blocks of a distribution; a ValueError if a rank has several."""
        if not isinstance(distribution, Distribution):
            raise ValueError(f"one block per rank is needed, got {distribution}: redistribute() to such blocks first")
        ranks = distribution.rank_grid()
        lengths = tuple(_lengths(distribution, axis, parts) for axis, parts in enumerate(ranks.shape[:-1]))
        return cls(lengths, ranks)

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape, in elements."""
        return tuple(map(sum, self.lengths))

    def distribution(self) -> Distribution:
        """Return the distribution in these blocks; equal blocks give the same object."""
        return _distribution(self.lengths, self.ranks.shape, tuple(self.ranks.ravel().tolist()))

    def split_axis(self, library: str, comm_size: int) -> int | None:
        """
        Return the axis that is split over all ranks in order; None if each rank has the whole array.

        :raises ValueError: If the blocks lie otherwise.
        """
        axes = [axis for axis, parts in enumerate(self.ranks.shape[:-1]) if parts > 1]
        replicas = self.ranks.shape[-1]
        if len(axes) + (replicas > 1) > 1 or not np.array_equal(np.sort(self.ranks.ravel()), np.arange(comm_size)):
            axes = [-1]
        if axes and not np.array_equal(self.ranks.ravel(), np.arange(comm_size)):
            raise ValueError(
                f"{library} splits one axis over ranks 0 to {comm_size - 1}, or has the array on each of them; got "
                f"{self.distribution()}: redistribute() to Distribution.split(shape, axis, {comm_size}) first"
            )
        return axes[0] if axes else None


def _lengths(distribution: Distribution, axis: int, parts: int) -> tuple[int, ...]:
    extent: int = distribution.shape[axis]
    block: Any = distribution.block[axis]
    if isinstance(block, tuple):
        return tuple(block)
    if block == "balanced":
        return balanced_lengths(extent, parts)
    size = -(-extent // parts) if block == "ceil" else block
    if size * parts < extent:
        raise ValueError(
            f"one block per rank is needed, but axis {axis} of {distribution} is block-cyclic: redistribute() first"
        )
    return uniform(extent, parts, size)


def uniform(extent: int, parts: int, size: int | None = None) -> tuple[int, ...]:
    """Return the lengths of parts of ``size``, by default ceil(extent / parts), elements; the last are shorter."""
    size = -(-extent // parts) if size is None else size
    return tuple(min(size, max(0, extent - part * size)) for part in range(parts))


def split(shape: Sequence[int], axis: int | None, lengths: Sequence[int], size: int) -> Distribution:
    """Return the distribution in parts of one axis over ranks 0 to size - 1; axis None: each has the whole."""
    of_axes = tuple(tuple(lengths) if i == axis else (extent,) for i, extent in enumerate(shape))
    parts = [size if i == axis else 1 for i in range(len(shape))]
    return Blocks(of_axes, np.arange(size).reshape(*parts, size if axis is None else 1)).distribution()


def split_as_held(shape: Sequence[int], axis: int) -> Callable[[Sequence[Sequence[int]]], Distribution]:
    """Return the function by which the shapes of the local arrays of all ranks give the parts of an axis."""
    return lambda shapes: split(shape, axis, [local[axis] for local in shapes], len(shapes))


def check_ranks(library: str, rank: int, ranks: int, comm: MPI.Intracomm, remedy: str = "") -> None:
    """Raise a ValueError unless this process has the same number in a library as in a communicator."""
    if (rank, ranks) != (comm.rank, comm.size):
        raise ValueError(
            f"ranks of {library} must be those of comm, but this process is rank {rank} of {ranks} there, and "
            f"{comm.rank} of {comm.size} in comm{remedy}"
        )


@functools.lru_cache(maxsize=256)  # redistribute() finds the plan of distributions that it knows faster
def _distribution(lengths: tuple[tuple[int, ...], ...], grid: tuple[int, ...], ranks: tuple[int, ...]) -> Distribution:
    block = []
    for of_axis in lengths:
        extent, parts = sum(of_axis), len(of_axis)
        words = {"balanced": balanced_lengths(extent, parts), "ceil": uniform(extent, parts)}
        block.append(next((word for word, rule in words.items() if rule == of_axis), of_axis))
    named = None if ranks == tuple(range(len(ranks))) else ranks
    split = [axis for axis, parts in enumerate(grid) if parts > 1]
    dims = [split.index(axis) if axis in split else None for axis in range(len(lengths))]
    return Distribution(tuple(map(sum, lengths)), [grid[axis] for axis in split], dims=dims, block=block, ranks=named)


def of_boxes(
    shape: Sequence[int], boxes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], owners: Sequence[int]
) -> AnyDistribution:
    """
    Return the distribution that gives each owner a box (first index, extents); an owner may have several.

    The local array of an owner of several boxes is one-dimensional: box after box.
    """
    pairs = zip(boxes, owners, strict=True)
    held = [(box, owner) for box, owner in pairs if 0 not in box[1] or 0 in shape]
    cuts = [sorted({(box[0][axis], box[1][axis]) for box, _ in held}) for axis in range(len(shape))]
    lengths = tuple(tuple(length for _, length in of_axis) for of_axis in cuts)
    ends = [[first + length for first, length in of_axis] for of_axis in cuts]
    starts = [[first for first, _ in of_axis] for of_axis in cuts]
    cells: dict[tuple[int, ...], list[int]] = {}
    for (first, _), owner in held:
        cells.setdefault(tuple(of_axis.index(n) for of_axis, n in zip(starts, first, strict=True)), []).append(owner)
    regular = all(([0, *of_axis]) == [*begins, n] for of_axis, begins, n in zip(ends, starts, shape, strict=True))
    counts = {len(of_cell) for of_cell in cells.values()}
    once = len({owner for _, owner in held}) == len(held)
    if not (regular and once and len(counts) == 1 and len(cells) == np.prod([len(of_axis) for of_axis in cuts])):
        return BoxDistribution(shape, [box for box, _ in held], [owner for _, owner in held])
    ranks = np.array([cells[cell] for cell in sorted(cells)]).reshape(*map(len, cuts), -1)
    return Blocks(lengths, ranks).distribution()
