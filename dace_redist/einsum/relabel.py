"""Which rank takes which grid position, so that most of a tensor stays where it is. Start reading at: best_ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from dace_redist.einsum.grids import Floats
from dace_redist.einsum.placement import Array, Placement
from dace_redist.einsum.traffic import held

#: Up to so many ranks the assignment is optimal: Jonker and Volgenant's method as in SciPy, doi 10.1109/TAES.2016.140952.
MAX_EXACT_RANKS = 2048
#: Up to so many ranks the largest overlaps are matched; more ranks stay as they are.
MAX_MATCHED_RANKS = 4096


@dataclasses.dataclass(frozen=True)
class Overlap:
    """
    A tensor that moves between a group whose ranks are free and ranks that are known.

    :param own: Where the group has or wants it, with grid positions 0, 1, 2, ... as ranks.
    :param other: Where it is, or is wanted.
    :param shape: Its shape.
    :param weight: How often it moves.
    """

    own: Placement
    other: Placement
    shape: tuple[int, ...]
    weight: float = 1.0


def overlap_matrix(overlaps: Sequence[Overlap], positions: int, ranks: int) -> Floats:
    """Weighted elements that stay where they are if a rank takes a position: (positions, ranks)."""
    total = np.zeros((positions, ranks))
    for overlap in overlaps:
        low, high = held(overlap.own, overlap.shape, positions)
        other_low, other_high = held(overlap.other, overlap.shape, ranks)
        common = np.full((positions, ranks), float(overlap.weight))
        for axis, extent in enumerate(overlap.shape):
            if low[axis].max() == other_low[axis].max() == 0 and high[axis].min() == other_high[axis].min() == extent:
                common *= extent
                continue
            ends = np.minimum(high[axis][:, None], other_high[axis][None, :])
            common *= np.maximum(ends - np.maximum(low[axis][:, None], other_low[axis][None, :]), 0)
        total += common
    return total


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


def assign(matrix: Floats) -> Array:
    """
    A column for each row, each at most once, with the largest sum.

    If every row can have its largest entry, this is found by a matching, which is fast; else by an optimal assignment
    or, where there are too many rows for that, by completing the matching in order.

    :param matrix: At least as many columns as rows, no negative entries.
    """
    largest = matrix.max(axis=1, keepdims=True)
    if (matrix == largest)[np.arange(len(matrix)), np.arange(len(matrix))].all():
        return np.arange(len(matrix))
    matched = np.asarray(maximum_bipartite_matching(csr_matrix(matrix == largest), perm_type="column"), np.int64)
    if (matched >= 0).all():
        return matched
    if len(matrix) <= MAX_EXACT_RANKS:
        return np.asarray(linear_sum_assignment(matrix, maximize=True)[1], np.int64)
    free = np.setdiff1d(np.arange(matrix.shape[1]), matched)
    matched[matched < 0] = free[: (matched < 0).sum()]
    return matched


@dataclasses.dataclass(frozen=True)
class Nodes:
    """
    Which grid positions share a node.

    :param tiles: Number of the node of each position; every node has ``size`` positions.
    :param size: Ranks per node; ranks are numbered node by node.
    :param count: Nodes at hand.
    """

    tiles: tuple[int, ...]
    size: int
    count: int

    @property
    def members(self) -> Array:
        """Positions of each node: (nodes used, positions of a node)."""
        order = np.argsort(np.array(self.tiles), kind="stable")
        return order.reshape(max(self.tiles) + 1, -1)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks with the nodes in order and row-major within each."""
        members = self.members
        ranks = np.empty(members.size, np.int64)
        ranks[members] = np.arange(len(members))[:, None] * self.size + np.arange(members.shape[1])[None, :]
        return tuple(ranks.tolist())

    def assign(self, matrix: Floats) -> tuple[int, ...]:
        """Nodes to nodes by what may stay on the node, then ranks to positions within each node."""
        members = self.members
        columns = matrix.shape[1] // self.size * self.size
        by_node = matrix[:, :columns].reshape(len(matrix), -1, self.size).max(axis=2)
        node_of = assign(by_node[members].sum(axis=1))
        ranks = np.empty(len(matrix), np.int64)
        for positions, node in zip(members, node_of, strict=True):
            there = node * self.size + np.arange(self.size)
            ranks[positions] = there[assign(matrix[np.ix_(positions, there)])]
        return tuple(ranks.tolist())
