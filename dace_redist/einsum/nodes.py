"""Node-aware process grids: assignment of grid positions to nodes with least traffic; traffic between nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dace_redist.einsum.grids import Candidates, factorisations
from dace_redist.einsum.placement import Array, Floats, Placement, dtype_of, schedule_of
from dace_redist.einsum.program import Group, PlannedProgram
from dace_redist.relabelling import assign

#: A tensor on K grids: the grid axes along which it is split, and the elements of its largest block, (K,). Along the
#: other grid axes lie replicas, or partial results, of a block.
Blocks = tuple[Sequence[int], Floats]


def least_internode(grids: Array, tensors: Sequence[Blocks], size: int) -> tuple[Array, Floats]:
    """
    Return the tile of each grid that shares a node, m_i positions along axis i, with least traffic between nodes.

    A fibre along axis i then lies on q_i = p_i / m_i nodes. A block with replicas on q nodes crosses between nodes
    q - 1 times. The traffic V is a sum over all tensors: the number of blocks (the product of p_i over the axes along
    which the tensor is split) times the elements of a block times (the product of q_i over the other axes, minus 1).
    All tiles are tried. Source: Irmler et al., Optimizing Distributed Tensor Contractions using Node-Aware Processor
    Grids, arXiv 2307.08829, section 2, whose V is this one where each tensor lacks one axis.

    :param grids: The grids, p_i: (K, axes).
    :param tensors: Operands, and the result where partial results of it are added.
    :param size: Ranks per node, the product of all m_i.
    :return: m_i, (K, axes), divisors of p_i; zeros if no divisors have this product. V in elements, (K,); without
        divisors an estimate for ranks numbered in row-major order.
    """
    tiles, least = np.zeros_like(grids), np.full(len(grids), np.inf)
    sides = [divisor for divisor in range(1, size + 1) if size % divisor == 0]
    divides = {side: grids % side == 0 for side in sides}
    along = [frozenset(side for side in sides if divides[side][:, axis].any()) for axis in range(grids.shape[1])]
    for tile in sorted(map(tuple, factorisations(size, along).tolist())):
        fits = np.logical_and.reduce([divides[side][:, axis] for axis, side in enumerate(tile)])
        rows = np.flatnonzero(np.broadcast_to(fits, len(grids)))
        found = _between(grids[rows], grids[rows] // np.array(tile, np.int64), [(at, e[rows]) for at, e in tensors])
        better = found < least[rows]
        least[rows[better]], tiles[rows[better]] = found[better], tile
    without = np.isinf(least)
    length = np.cumprod(grids[:, ::-1], axis=1)[:, ::-1]  # ranks spanned by a fibre along each axis
    nodes = -(-length // size) + (
        (length % size != 0) & (size % length != 0)
    )  # an unaligned fibre touches one more node
    rough = _between(grids, np.minimum(grids, nodes), tensors)
    return tiles, np.where(without, rough, least)


def _between(grids: Array, nodes: Array, tensors: Sequence[Blocks]) -> Floats:
    total = np.zeros(len(grids))
    for at, elements in tensors:
        others = [axis for axis in range(grids.shape[1]) if axis not in at]
        total += elements * np.prod(grids[:, list(at)], axis=1) * (np.prod(nodes[:, others], axis=1) - 1)
    return total


def internode_elements(found: Candidates, size: int, counts: Sequence[int]) -> Floats:
    """
    Return a lower bound on the elements of operands and partial results sent between nodes, per candidate: (K,).

    :param counts: How often each operand, and the result, is moved.
    """
    names = [*found.step.einsum.operands, found.step.einsum.result]
    blocks = [count * found.block_product(name) for name, count in zip(names, counts, strict=True)]
    return least_internode(found.parts, list(zip(map(found.at, names), blocks, strict=True)), size)[1]


def ranks_on_nodes(group: Group, size: int, kept: Floats | None) -> tuple[int, ...] | None:
    """
    Return ranks for the positions of a group's grid, such that its tiles lie on nodes; None if it has no such tiles.

    :param size: Ranks per node; ranks are numbered node by node.
    :param kept: Elements that stay, for each position on each rank, (positions, ranks): nodes are chosen by the
        elements that stay on a node, then ranks within each. None: nodes in order, and row-major within each.
    """
    terms, indices = [*group.einsum.operands, group.einsum.result], group.einsum.indices
    blocks = [np.array([math.prod(group.blocks[i] for i in term)], np.float64) for term in terms]
    axes = [[indices.index(index) for index in term] for term in terms]
    tile = least_internode(np.array([group.grid], np.int64), list(zip(axes, blocks, strict=True)), size)[0][0]
    if size == 1 or not len(tile) or not tile.all():
        return None
    along = np.indices(group.grid).reshape(len(group.grid), -1) // tile[:, None]
    tiles = np.ravel_multi_index(tuple(along), tuple(np.array(group.grid) // tile))
    members = np.argsort(tiles, kind="stable").reshape(-1, size)  # positions of each tile
    nodes = np.arange(len(members))
    if kept is not None:
        by_node = kept[:, : kept.shape[1] // size * size].reshape(len(kept), -1, size).max(axis=2)
        nodes = assign(by_node[members].sum(axis=1))
    ranks = np.empty(members.size, np.int64)
    for positions, node in zip(members, nodes, strict=True):
        there = node * size + np.arange(size)
        ranks[positions] = there if kept is None else there[assign(kept[np.ix_(positions, there)])]
    return tuple(ranks.tolist())


def bytes_between_nodes(plan: PlannedProgram, size: int) -> float:
    """
    Return the bytes that a plan sends between nodes.

    A block with replicas on q nodes crosses between nodes q - 1 times, as do partial sums that are reduced. A tensor
    that is read before it is written is fetched once, unless it is moved to where it is read.

    :param size: Ranks per node; 1: count the bytes sent between ranks.
    """
    total = 0.0
    seen: set[str] = set()
    moved_to = {(move.group, move.tensor) for move in plan.moves}
    for number, group in enumerate(plan.groups):
        for name, placement in zip(group.operands, group.operand_placements, strict=True):
            if name not in seen and (number, name) not in moved_to:
                total += _spread(placement, plan.sizes[name], size)
            seen.add(name)
        seen.add(group.result)
        if group.reduction is not None:
            total += plan.repeats(number) * _reduced(group, plan.sizes[group.result], size, plan.itemsize)
    for move in plan.moves:
        moved = schedule_of(move.source, move.target, plan.sizes[move.tensor])
        total += move.repeats * moved.bytes_between_nodes(np.arange(moved.ranks) // size)
    return total * plan.itemsize


def _reduced(group: Group, shape: tuple[int, ...], size: int, itemsize: int) -> float:
    """Return the elements of partial results sent between nodes."""
    if group.sums_at is None:
        return _spread(group.partial_placement, shape, size)
    moved = schedule_of(group.partial_placement, group.sums_at, shape, dtype_of(itemsize), "sum")
    return moved.bytes_between_nodes(np.arange(moved.ranks) // size) / itemsize


def _spread(placement: Placement, shape: tuple[int, ...], size: int) -> float:
    """Return the elements sent between nodes if each block is sent once to every node with a replica of it."""
    low, high = placement.bounds_by_rank(shape)
    held = np.flatnonzero((high > low).all(axis=0))
    if not len(held):
        return 0.0
    elements, low = np.prod(high - low, axis=0)[held], low[:, held]
    on_nodes, once = (np.unique(key, axis=1, return_index=True)[1] for key in (np.vstack([low, held // size]), low))
    return float(elements[on_nodes].sum() - elements[once].sum())
