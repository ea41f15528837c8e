"""Which rank takes which grid position, so that most of a tensor stays where it is. Start reading at: best_ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from dace_redist.einsum.grids import Floats
from dace_redist.einsum.nodes import Nodes
from dace_redist.einsum.placement import Array, Placement
from dace_redist.einsum.traffic import held, traffic
from dace_redist.relabelling import MAX_MATCHED_RANKS, assign


@dataclasses.dataclass(frozen=True)
class Overlap:
    """
    A tensor that moves between a group whose ranks are free and ranks that are known.

    :param own: Where the group has or wants it, with grid positions 0, 1, 2, ... as ranks.
    :param other: Where it is, or is wanted.
    :param shape: Its shape.
    :param weight: How often it moves.
    :param leaves: Whether it moves from the group to the known ranks, not from these to the group.
    """

    own: Placement
    other: Placement
    shape: tuple[int, ...]
    weight: int = 1
    leaves: bool = False

    def moved(self, ranks: Sequence[int]) -> int:
        """Elements through the busiest rank, in all, if the group's positions are on these ranks."""
        own = self.own.with_ranks([ranks[position] for position in self.own.ranks])
        source, target = (own, self.other) if self.leaves else (self.other, own)
        return self.weight * traffic(source, target, self.shape).busiest


def least_moved(overlaps: Sequence[Overlap], positions: int, bound: float, ranks: int) -> float:
    """
    Elements through the busiest rank for what moves between two groups, with one of them relabelled if that is better.

    :param overlaps: What moves.
    :param positions: Number of grid positions of the group whose ranks are free.
    :param bound: What moves at least, whatever its ranks are.
    :param ranks: Ranks at hand.
    """
    plain = sum(overlap.moved(range(positions)) for overlap in overlaps)
    if plain <= bound * (1 + 1e-12):
        return plain
    found = best_ranks(overlaps, positions, ranks)
    return min(plain, sum(overlap.moved(found) for overlap in overlaps))


def overlap_matrix(overlaps: Sequence[Overlap], positions: int, ranks: int) -> Floats:
    """Weighted elements that stay where they are if a rank takes a position: (positions, ranks)."""
    total = np.zeros((positions, ranks))
    for overlap in overlaps:
        common = np.full((positions, ranks), float(overlap.weight))
        blocks, others = held(overlap.own, overlap.shape, positions), held(overlap.other, overlap.shape, ranks)
        for axis, extent in enumerate(overlap.shape):
            low, high, at = _distinct(blocks[0][axis], blocks[1][axis], extent)
            other_low, other_high, other_at = _distinct(others[0][axis], others[1][axis], extent)
            ends = np.minimum(high[:, None], other_high)
            lengths = np.maximum(ends - np.maximum(low[:, None], other_low), 0.0)
            common *= lengths if lengths.size == 1 else lengths[at].take(other_at, 1)
        total += common
    return total


def _distinct(low: Array, high: Array, extent: int) -> tuple[Array, Array, Array]:
    """First index and end of each different block along an axis, and which of these each rank holds."""
    _, first, which = np.unique(low * (extent + 1) + high, return_index=True, return_inverse=True)
    return low[first], high[first], which


def best_ranks(overlaps: Sequence[Overlap], positions: int, ranks: int, nodes: Nodes | None = None) -> tuple[int, ...]:
    """
    The rank of each grid position with which most elements stay where they are.

    :param overlaps: What moves from or to ranks that are known already.
    :param positions: Number of grid positions.
    :param ranks: Ranks at hand, at least as many.
    :param nodes: Positions that must share a node, if any: whole nodes are exchanged, and ranks within nodes.
    """
    start = tuple(range(positions)) if nodes is None else nodes.ranks
    if not overlaps or ranks > MAX_MATCHED_RANKS:
        return start
    matrix = overlap_matrix(overlaps, positions, ranks)
    if nodes is None:
        return tuple(assign(matrix).tolist())
    return nodes.assign(matrix)
