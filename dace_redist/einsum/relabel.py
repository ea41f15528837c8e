"""Assignment of grid positions to ranks with the largest self copies. Start reading at: best_ranks."""

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
    A tensor that moves between a group with unassigned ranks and known ranks.

    :param own: Placement at the group, with grid positions 0, 1, 2, ... as ranks.
    :param other: Placement on the known ranks.
    :param shape: Shape of the tensor.
    :param weight: Number of times it moves.
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


def least_moved(overlaps: Sequence[Overlap], positions: int, bound: float, ranks: int) -> float:
    """
    Return the elements through the busiest rank for moves between two groups, relabelling one if that is better.

    :param overlaps: The tensors that move.
    :param positions: Number of grid positions of the group with unassigned ranks.
    :param bound: Lower bound over all assignments of ranks.
    :param ranks: Available ranks.
    """
    plain = sum(overlap.moved(range(positions)) for overlap in overlaps)
    if plain <= bound * (1 + 1e-12):
        return plain
    found = best_ranks(overlaps, positions, ranks)
    return min(plain, sum(overlap.moved(found) for overlap in overlaps))


def overlap_matrix(overlaps: Sequence[Overlap], positions: int, ranks: int) -> Floats:
    """Return the weighted self copies, in elements, for each position on each rank: (positions, ranks)."""
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
    """Return first index and end of each distinct block along an axis, and the block number of each rank."""
    _, first, which = np.unique(low * (extent + 1) + high, return_index=True, return_inverse=True)
    return low[first], high[first], which


def best_ranks(overlaps: Sequence[Overlap], positions: int, ranks: int, nodes: Nodes | None = None) -> tuple[int, ...]:
    """
    Return the assignment of ranks to grid positions with the largest self copies.

    :param overlaps: Tensors that move from or to known ranks.
    :param positions: Number of grid positions.
    :param ranks: Available ranks, at least as many.
    :param nodes: Assignment of positions to nodes, if any: whole nodes are permuted, then ranks within nodes.
    """
    start = tuple(range(positions)) if nodes is None else nodes.ranks
    if not overlaps or ranks > MAX_MATCHED_RANKS:
        return start
    matrix = overlap_matrix(overlaps, positions, ranks)
    if nodes is None:
        return tuple(assign(matrix).tolist())
    return nodes.assign(matrix)
