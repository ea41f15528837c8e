"""Which rank takes which grid position, so that most of a tensor stays where it is. Start reading at: best_ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from dace_redist.einsum.assignment import assign
from dace_redist.einsum.grids import Floats
from dace_redist.einsum.nodes import Nodes
from dace_redist.einsum.placement import Placement
from dace_redist.einsum.traffic import held

#: Up to so many ranks are relabelled; more stay as they are.
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
