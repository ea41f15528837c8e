"""Placements of tensors on the ranks, and the elements that move between them. Start reading at: Placement."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.distribution import AnyDistribution, Distribution
from dace_redist.schedule import Schedule, schedule

Array = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


#: Entry of :attr:`Placement.multiples`: blocks differ by at most one element, the longer ones come first.
BALANCED = 0


def ceil_division(extent: Any, parts: Any) -> Any:
    """Return the quotient of numbers or arrays, rounded up."""
    return -(-extent // parts)


def block_length(extent: Any, parts: Any, multiple: Any = 1, divide: Callable[[Any, Any], Any] = ceil_division) -> Any:
    """
    Return the elements of a block along an axis split into equal blocks; the last ones may be short or empty.

    :param extent: Elements along the axis: a number, an array of them, or a symbol if ``divide`` takes symbols.
    :param parts: Number of blocks.
    :param multiple: Number of equal pieces of a block, at least 1.
    :param divide: Division that rounds up.
    """
    return multiple * divide(extent, parts * multiple)


@dataclasses.dataclass(frozen=True)
class Placement:
    """
    Ownership of a tensor of any size: one block per rank and axis.

    Grid axes over which no tensor axis is split hold replicas.

    :param grid: Shape of the process grid.
    :param dims: Grid axis over which each tensor axis is split, None where it is not.
    :param multiples: Per tensor axis m: blocks consist of m equal pieces, ``m * ceil(extent / (parts * m))``
        elements, so that a block can be split among m ranks without other traffic; or :data:`BALANCED`.
    :param ranks: Communicator rank of each grid position, row-major.
    :raises ValueError: If the lengths are inconsistent.
    """

    grid: tuple[int, ...]
    dims: tuple[int | None, ...]
    multiples: tuple[int, ...]
    ranks: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.multiples) != len(self.dims):
            raise ValueError(f"Placement: multiples {self.multiples} and dims {self.dims} need one entry per axis")
        if len(self.ranks) != math.prod(self.grid):
            raise ValueError(f"Placement: the grid {self.grid} needs {math.prod(self.grid)} ranks, got {self.ranks}")

    @classmethod
    def of(cls, distribution: Distribution) -> Placement:
        """
        Return the placement of a distribution.

        :param distribution: One block per rank and axis, balanced or of equal lengths.
        :raises ValueError: If it is block-cyclic, or has blocks of other lengths, pins, a halo or symbols.
        """
        if distribution.is_symbolic or any(pin is not None for pin in distribution.pins) or any(distribution.halo):
            raise ValueError(f"a placement needs sizes in numbers, no pins and no halo, got {distribution}")
        dims = tuple(distribution.dims)
        ranks = tuple(range(math.prod(distribution.grid)) if distribution.ranks is None else distribution.ranks)
        multiples = [1] * len(dims)
        placement = cls(tuple(distribution.grid), dims, tuple(multiples), ranks)
        for axis, length in enumerate(placement.largest_block(distribution.shape)):
            if distribution.core.uniform_block(axis) == length:
                continue
            if distribution.block[axis] != "balanced":
                raise ValueError(
                    f"axis {axis} must be split into {placement.parts[axis]} blocks that are balanced or have "
                    f'{length} elements (block="ceil"), got block={distribution.block[axis]!r}'
                )
            multiples[axis] = BALANCED
        return dataclasses.replace(placement, multiples=tuple(multiples))

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """Blocks along each tensor axis."""
        return tuple(1 if dim is None else self.grid[dim] for dim in self.dims)

    @property
    def replicas(self) -> int:
        """Number of replicas of each element."""
        return math.prod(size for axis, size in enumerate(self.grid) if axis not in self.dims)

    def is_equivalent_to(self, other: Home, shape: Sequence[int]) -> bool:
        """
        Return True if every rank holds the same block of a tensor in both, so that nothing has to be moved.

        Empty blocks must also have equal shapes, since operands of a contraction must conform.
        """
        if self == other:
            return True
        if isinstance(other, Given):
            return False
        (low, high), (new_low, new_high) = _both(self, other, shape)
        some = (high > low).all(axis=0)
        return np.array_equal(high - low, new_high - new_low) and np.array_equal(low * some, new_low * some)

    def block(self, axis: int, extent: Any, divide: Callable[[Any, Any], Any] = ceil_division) -> Any:
        """Return the elements of the largest block along a tensor axis of some extent, see :func:`block_length`."""
        return block_length(extent, self.parts[axis], self.multiples[axis] or 1, divide)

    def largest_block(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the largest block, which is the first."""
        return tuple(min(self.block(axis, extent), extent) for axis, extent in enumerate(shape))

    def block_bytes(self, shape: Sequence[int], itemsize: int) -> int:
        """Return the bytes of the largest block."""
        return math.prod(self.largest_block(shape)) * itemsize

    def distribution(self, shape: Sequence[Any], divide: Callable[[Any, Any], Any] = ceil_division) -> Distribution:
        """Return the distribution of a tensor, see :func:`block_length`; a scalar becomes a vector of one element."""
        if len(shape) != len(self.dims):
            raise ValueError(f"Placement: a tensor of {len(self.dims)} axes has no shape {tuple(shape)}")
        if not self.dims:
            return Distribution((1,), self.grid or (1,), dims=(None,), ranks=self.ranks)
        # Blocks without elements take the default, too.
        blocks = [
            (self.block(axis, extent, divide) or "ceil") if self.multiples[axis] else "balanced"
            for axis, extent in enumerate(shape)
        ]
        return Distribution(shape, self.grid or (1,), dims=self.dims, block=blocks, ranks=self.ranks)

    @cached_property
    def _bounds(self) -> dict[tuple[int, ...], Array]:
        return {}

    def bounds_by_rank(self, shape: Sequence[int], ranks: int | None = None) -> Array:
        """
        Return first index and end of each rank's block: shape (2, axes, ranks).

        Ranks without elements along an axis, or outside of the grid, have zeros. A scalar is a vector of one element.

        :param ranks: Number of ranks, at least those named. Default: the largest rank named, plus one.
        """
        key = tuple(shape)
        if key not in self._bounds:
            self._bounds[key] = self.distribution(key).core.block_bounds().transpose(2, 1, 0)
        bounds = self._bounds[key]
        if ranks is None or ranks == bounds.shape[2]:
            return bounds
        return np.pad(bounds, ((0, 0), (0, 0), (0, ranks - bounds.shape[2])))

    def bounds(self, shape: Sequence[int]) -> tuple[Array, Array]:
        """Return first index and end of the block at each grid position: two arrays of shape (axes, positions)."""
        low, high = self.bounds_by_rank(shape)[:, : len(shape), list(self.ranks)]
        return low, high

    def with_axes(self, kept: Sequence[int], count: int) -> Placement:
        """Return the placement of a tensor with further axes, which are not split; ``kept`` are its own axes."""
        dims: list[int | None] = [None] * count
        multiples = [1] * count
        for number, axis in enumerate(kept):
            dims[axis], multiples[axis] = self.dims[number], self.multiples[number]
        return Placement(self.grid, tuple(dims), tuple(multiples), self.ranks)

    def with_ranks(self, ranks: Sequence[int]) -> Placement:
        """Return the placement on other ranks."""
        return dataclasses.replace(self, ranks=tuple(ranks))


def everywhere(axes: int, ranks: int) -> Placement:
    """Return the placement of a tensor that every rank has whole."""
    return Placement((ranks,), (None,) * axes, (1,) * axes, tuple(range(ranks)))


@dataclasses.dataclass(frozen=True)
class Given:
    """
    The user's distribution of an input or a result where no grid has it: the tensor is moved from it, or to it.

    :param whole: Distribution of the tensor.
    :param axes: Axes of ``whole`` that the tensor has; the others have one element.
    :param op: Reduction of replicas that are partial results.
    """

    whole: AnyDistribution
    axes: tuple[int, ...]
    op: str | None = None

    def distribution(self, shape: Sequence[Any], _: Any = None) -> AnyDistribution:
        """Return the distribution."""
        return self.whole

    def of_placement(self, other: Placement) -> Distribution:
        """Return the distribution of another placement of the tensor, with all axes of ``whole``."""
        if not self.whole.shape:
            return Distribution((), other.grid or (1,), ranks=other.ranks)
        return other.with_axes(self.axes, len(self.whole.shape)).distribution(self.whole.shape)

    def is_equivalent_to(self, other: Placement | Given, shape: Sequence[int]) -> bool:
        """Return True if both are the same."""
        return self == other

    def block_bytes(self, shape: Sequence[int], itemsize: int) -> int:
        """Return the bytes of the largest part."""
        return itemsize * max(math.prod(self.whole.local_shape(rank)) for rank in range(self.whole.ranks_needed))


#: Ownership of a tensor.
Home = Placement | Given


def is_everywhere(home: Home, ranks: int) -> bool:
    """Return True if every rank holds the whole tensor."""
    return isinstance(home, Placement) and home.replicas == ranks and set(home.parts) <= {1}


def home_of(given: Home | AnyDistribution, op: str | None = None) -> Home:
    """Return a distribution as a placement, if it is one."""
    if isinstance(given, Distribution) and op is None:
        with contextlib.suppress(ValueError):
            return Placement.of(given)
    return given if isinstance(given, Home) else Given(given, tuple(range(len(given.shape))), op)


def schedule_of(
    source: Home, target: Home, shape: Sequence[int], dtype: Any = np.int8, op: str | None = None
) -> Schedule:
    """Return the messages that move a tensor of some shape between two homes; ``op`` reduces a placement's replicas."""
    return schedule(*ends_of(source, target, shape), dtype, op=op or ("sum" if getattr(source, "op", None) else None))


def dtype_of(itemsize: int) -> str:
    """Return an element type of so many bytes; the messages of a reduction depend on them."""
    return "complex128" if itemsize == 16 else f"int{8 * itemsize}"


def ends_of(source: Home, target: Home, shape: Sequence[int]) -> tuple[AnyDistribution, AnyDistribution]:
    """Return the distributions between which a tensor moves, of equal shape."""
    if isinstance(source, Given) and isinstance(target, Placement):
        return source.whole, source.of_placement(target)
    if isinstance(target, Given) and isinstance(source, Placement):
        return target.of_placement(source), target.whole
    return source.distribution(shape), target.distribution(shape)


#: Maximum pairs of a receiver and a block; above, the replicas of a source are assumed to send evenly.
MAX_PAIRS = 20_000_000


def traffic(source: Home, target: Home, shape: Sequence[int]) -> tuple[Array, Array, Array]:
    """Return the elements of a tensor that each rank sends, receives and keeps (self copy)."""
    if isinstance(source, Given) or isinstance(target, Given):
        totals = schedule_of(source, target, shape).totals
        return totals.sent, totals.received, totals.kept
    (low, high), (new_low, new_high) = _both(source, target, shape)
    own, wanted = (np.prod(sizes, axis=0) for sizes in (high - low, new_high - new_low))
    kept = np.prod(np.maximum(np.minimum(high, new_high) - np.maximum(low, new_low), 0), axis=0)
    received = wanted - kept
    if source.replicas == 1:
        sent = own * target.replicas - kept
    elif target.replicas * math.prod(map(sum, zip(source.parts, target.parts, strict=True))) > MAX_PAIRS:
        sent = np.zeros_like(kept)
        sent[list(source.ranks)] = ceil_division(int(received.sum()), len(source.ranks))
    else:
        senders, _, elements = messages(source, target, shape)
        sent = np.bincount(senders, elements, len(kept)).astype(np.int64)
    return sent, received, kept


def busiest(source: Home, target: Home, shape: Sequence[int]) -> int:
    """Return the elements sent or received by the busiest rank, whichever is more."""
    sent, received, _ = traffic(source, target, shape)
    return int(max(sent.max(), received.max()))


@functools.lru_cache(maxsize=256)
def busiest_of_sum(partial: Placement, target: Home, shape: tuple[int, ...], itemsize: int) -> int:
    """Return the elements sent or received by the busiest rank, whichever is more, when partial results are reduced."""
    totals = schedule_of(partial, target, shape, dtype_of(itemsize), "sum").totals
    return int(max(totals.sent.max(), totals.received.max()))


def messages(source: Home, target: Home, shape: Sequence[int]) -> Array:
    """Return sender, receiver and elements of each message between two ranks: shape (3, messages)."""
    if isinstance(source, Given) or isinstance(target, Given):
        found = schedule_of(source, target, shape)
        sent = [(rank, *found.sent_to(rank)) for rank in range(found.ranks)]
        return np.hstack([np.stack([np.full_like(to, rank), to, elements]) for rank, to, elements in sent])
    rows = _core.messages(source.distribution(shape).core, target.distribution(shape).core)
    return np.asarray(rows[rows[:, 0] != rows[:, 1]].T)


def _both(source: Placement, target: Placement, shape: Sequence[int]) -> tuple[Array, Array]:
    """Return the bounds of both placements for one number of ranks."""
    ranks = max(max(source.ranks), max(target.ranks)) + 1
    return source.bounds_by_rank(shape, ranks), target.bounds_by_rank(shape, ranks)


@dataclasses.dataclass(frozen=True)
class Overlap:
    """
    A tensor that moves, ``weight`` times, between a group with unassigned ranks and known ranks.

    :param own: Placement at the group, with grid positions 0, 1, 2, ... as ranks.
    :param leaves: True if it moves from the group to the known ranks.
    """

    own: Placement
    other: Placement
    shape: tuple[int, ...]
    weight: int = 1
    leaves: bool = False

    def moved(self, ranks: Sequence[int]) -> int:
        """Return the elements through the busiest rank, over all moves, for an assignment of ranks to positions."""
        own = self.own.with_ranks([ranks[position] for position in self.own.ranks])
        source, target = (own, self.other) if self.leaves else (self.other, own)
        return self.weight * busiest(source, target, self.shape)


def overlap_matrix(overlaps: Sequence[Overlap], positions: int, ranks: int) -> Floats:
    """Return the weighted self copies, in elements, for each position on each rank: (positions, ranks)."""
    total = np.zeros((positions, ranks))
    for overlap in overlaps:
        common = np.full((positions, ranks), float(overlap.weight))
        own = overlap.own.bounds_by_rank(overlap.shape, positions)
        other = overlap.other.bounds_by_rank(overlap.shape, ranks)
        for axis in range(own.shape[1]):
            low, high, at = _distinct(own[:, axis])
            other_low, other_high, other_at = _distinct(other[:, axis])
            ends = np.minimum(high[:, None], other_high)
            lengths = np.maximum(ends - np.maximum(low[:, None], other_low), 0.0)
            common *= lengths if lengths.size == 1 else lengths[at].take(other_at, 1)
        total += common
    return total


def _distinct(bounds: Array) -> tuple[Array, Array, Array]:
    """Return first index and end of each distinct block along an axis, and the block number of each rank."""
    low, high = bounds
    _, first, which = np.unique(low * (high.max() + 1) + high, return_index=True, return_inverse=True)
    return low[first], high[first], which
