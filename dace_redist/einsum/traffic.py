"""Elements that move between placements, and ranks for which they are fewest. Start reading at: traffic."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from dace_redist import _core
from dace_redist.einsum.placement import Array, Floats, Placement

#: Maximum pairs of a receiver and a block; above, the replicas of a source are assumed to send evenly.
MAX_PAIRS = 20_000_000


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Elements sent, received and kept (self copy) in one redistribution: arrays with one entry per rank."""

    sent: Array
    received: Array
    kept: Array

    @property
    def busiest(self) -> int:
        """Elements sent or received by the busiest rank, whichever is more."""
        return int(max(self.sent.max(), self.received.max()))


def traffic(source: Placement, target: Placement, shape: Sequence[int]) -> Traffic:
    """Return the elements of a tensor of this shape that each rank sends, receives and keeps."""
    (low, high), (new_low, new_high) = _both(source, target, shape)
    own, wanted = (np.prod(sizes, axis=0) for sizes in (high - low, new_high - new_low))
    kept = np.prod(np.maximum(np.minimum(high, new_high) - np.maximum(low, new_low), 0), axis=0)
    received = wanted - kept
    if source.replicas == 1:
        return Traffic(own * target.replicas - kept, received, kept)
    if target.replicas * math.prod(map(sum, zip(source.parts, target.parts, strict=True))) > MAX_PAIRS:
        share = np.zeros_like(kept)
        share[list(source.ranks)] = -(-int(received.sum()) // len(source.ranks))
        return Traffic(share, received, kept)
    senders, _, elements = messages(source, target, shape)
    return Traffic(np.bincount(senders, elements, len(kept)).astype(np.int64), received, kept)


def messages(source: Placement, target: Placement, shape: Sequence[int]) -> Array:
    """Return sender, receiver and elements of each message between two ranks: shape (3, messages)."""
    rows = _core.messages(source.distribution(shape).core, target.distribution(shape).core)
    return np.asarray(rows[rows[:, 0] != rows[:, 1]].T)


def same_place(source: Placement, target: Placement, shape: Sequence[int]) -> bool:
    """
    Check that every rank holds the same block under both placements, so that nothing has to be moved.

    Empty blocks must also have equal shapes, since operands of a contraction must conform.
    """
    if source == target:
        return True
    (low, high), (new_low, new_high) = _both(source, target, shape)
    some = (high > low).all(axis=0)
    return np.array_equal(high - low, new_high - new_low) and np.array_equal(low * some, new_low * some)


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
        return self.weight * traffic(source, target, self.shape).busiest


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
