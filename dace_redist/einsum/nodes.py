"""Which positions of a grid share a node, so that least goes between nodes. Start reading at: node_tiles."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from dace_redist.assignment import assign
from dace_redist.einsum.grids import Floats
from dace_redist.einsum.placement import Array, Placement
from dace_redist.einsum.plan import Group, Move
from dace_redist.einsum.traffic import Pairs, row_major


@dataclasses.dataclass(frozen=True)
class Nodes:
    """
    Which grid positions share a node.

    :param tiles: Number of the node of each position; every node has ``size`` positions.
    :param size: Ranks per node; ranks are numbered node by node.
    """

    tiles: tuple[int, ...]
    size: int

    @cached_property
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


def shared_elements(group: Group, extents: Mapping[str, int]) -> tuple[int, ...]:
    """
    For each index: elements that a rank has in common with the ranks beside it along that axis of the grid.

    These are the blocks of the operands that lack the index and, if it is summed over, the partial result.
    """

    def block(indices: str) -> int:
        return math.prod(group.block(index, extents[index]) for index in indices)

    counts = []
    for index in group.einsum.indices:
        tensors = [operand for operand in group.einsum.operands if index not in operand]
        tensors += [group.einsum.result] if index in group.einsum.summed else []
        counts.append(sum(map(block, tensors)))
    return tuple(counts)


def tile_shape(grid: Sequence[int], shared: Sequence[float], size: int) -> tuple[int, ...] | None:
    """
    The part of a grid that shares a node: m_i positions along axis i with the least V = sum of W_i (p_i / m_i - 1).

    Source: Irmler et al., Optimizing Distributed Tensor Contractions using Node-Aware Processor Grids,
    arXiv 2307.08829, section 2.

    :param grid: The grid, p_i.
    :param shared: Elements shared along each axis, W_i.
    :param size: Ranks per node, the product of all m_i.
    :return: m_i for each axis, a divisor of p_i; None if no divisors have this product.
    """

    def volume(tile: tuple[int, ...]) -> float:
        return sum(w * (p / m - 1) for w, p, m in zip(shared, grid, tile, strict=True))

    return min(_tiles(tuple(grid), size), key=volume, default=None)


def _tiles(grid: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    """Every way to write a number as a product of divisors of the grid's sizes."""
    if not grid:
        if size == 1:
            yield ()
        return
    for divisor in range(1, min(grid[0], size) + 1):
        if grid[0] % divisor == 0 and size % divisor == 0:
            for rest in _tiles(grid[1:], size // divisor):
                yield (divisor, *rest)


def node_tiles(group: Group, extents: Mapping[str, int], size: int) -> Nodes | None:
    """
    Which positions of a group's grid share a node.

    :param group: The group.
    :param extents: Size of every index.
    :param size: Ranks per node.
    :return: None if the grid cannot be cut into nodes.
    """
    tile = tile_shape(group.grid, shared_elements(group, extents), size)
    if tile is None or size == 1:
        return None
    nodes = [p // m for p, m in zip(group.grid, tile, strict=True)]
    along = np.indices(group.grid).reshape(len(group.grid), -1) // np.array(tile)[:, None]
    return Nodes(tuple(row_major(along, nodes).tolist()), size)


def internode_bytes(
    groups: Sequence[Group], moves: Sequence[Move], sizes: Mapping[str, tuple[int, ...]], itemsize: int, size: int
) -> float:
    """
    Bytes that cross from node to node in one run of every step.

    A block with replicas on q nodes goes between nodes q - 1 times, as do partial sums that are reduced.

    :param groups: The groups on their ranks.
    :param moves: What is moved between them.
    :param sizes: Shape of every tensor.
    :param itemsize: Bytes of an element.
    :param size: Ranks per node.
    """
    total = 0.0
    seen: set[str] = set()
    for group in groups:
        for name, placement in zip(group.operands, group.operand_placements, strict=True):
            if name not in seen:
                total += _spread(placement, sizes[name], size)
            seen.add(name)
        seen.add(group.result)
        if group.reduction is not None:
            total += _spread(group.partial_placement, sizes[group.result], size)
    for move in moves:
        receivers, senders, elements = Pairs(move.source, move.target, sizes[move.tensor]).messages()
        total += float(elements[receivers // size != senders // size].sum())
    return total * itemsize


def _spread(placement: Placement, shape: tuple[int, ...], size: int) -> float:
    """Elements that cross between nodes if each block goes once to every node that holds a replica of it."""
    low, high = placement.bounds(shape)
    elements = np.prod(high - low, axis=0, dtype=np.int64)
    cells = row_major(placement.coordinates, placement.parts)
    on_node = np.unique(np.stack([cells, np.array(placement.ranks) // size]), axis=1)[0]
    blocks, first = np.unique(cells, return_index=True)
    return float(((np.bincount(on_node)[blocks] - 1) * elements[first]).sum())
