"""
Bytes that a redistribution moves, from the product structure of the blocks.

``schedule`` computes messages rank by rank. The search over grids needs the totals of thousands of redistributions on
up to 10^5 ranks, so this module is vectorised. A test checks that both agree, message by message.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from dace_redist.einsum.placement import Array, Placement

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


def held(placement: Placement, shape: Sequence[int], ranks: int) -> tuple[Array, Array]:
    """Return first index and end of each rank's block, arrays of shape (axes, ranks); zero without elements."""
    low, high = np.zeros((2, len(shape), ranks), np.int64)
    at = np.array(placement.ranks)
    own_low, own_high = placement.bounds(shape)
    some = (own_high > own_low).all(axis=0)
    low[:, at], high[:, at] = own_low * some, own_high * some
    return low, high


def traffic(source: Placement, target: Placement, shape: Sequence[int]) -> Traffic:
    """
    Return the elements that each rank sends, receives and keeps.

    As in ``schedule``, elements that a rank holds already are a self copy; otherwise replica number
    ``receiver mod replicas`` sends.

    :param source: Placement before.
    :param target: Placement after.
    :param shape: Global shape.
    """
    ranks = max(max(source.ranks), max(target.ranks)) + 1
    before, after = held(source, shape, ranks), held(target, shape, ranks)
    own, wanted = np.zeros((2, ranks), np.int64)
    own[list(source.ranks)] = np.prod(np.subtract(*source.bounds(shape)[::-1]), axis=0, dtype=np.int64)
    wanted[list(target.ranks)] = np.prod(np.subtract(*target.bounds(shape)[::-1]), axis=0, dtype=np.int64)
    common = np.minimum(before[1], after[1]) - np.maximum(before[0], after[0])
    kept = np.prod(np.maximum(common, 0), axis=0, dtype=np.int64) * (own > 0) * (wanted > 0)
    received = wanted - kept
    if source.replicas == 1:
        return Traffic(own * target.replicas - kept, received, kept)
    pairs = Pairs(source, target, shape)
    if pairs.count > MAX_PAIRS:
        share = np.zeros(ranks, np.int64)
        share[list(source.ranks)] = -(-int(received.sum()) // len(source.ranks))
        return Traffic(share, received, kept)
    receivers, senders, counts = pairs.messages()
    return Traffic(np.bincount(senders, counts, ranks).astype(np.int64), received, kept)


class Pairs:
    """Pairs of overlapping blocks of target and source."""

    def __init__(self, source: Placement, target: Placement, shape: Sequence[int]) -> None:
        self.source, self.target, self.shape = source, target, shape
        self.low, self.high = target.bounds(shape)
        self.blocks = [max(source.block(axis, extent), 1) for axis, extent in enumerate(shape)]
        steps = np.array(self.blocks, np.int64)[:, None]
        self.first, self.last = self.low // steps, (self.high - 1) // steps
        empty = (self.high <= self.low).any(axis=0)
        self.meets = np.where(empty, 0, self.last - self.first + 1)
        self.count = int(np.prod(self.meets, axis=0, dtype=np.float64).sum())

    def messages(self) -> tuple[Array, Array, Array]:
        """Return receiver, sender and elements of each message; two ranks may exchange several messages."""
        source, target = self.source, self.target
        at = np.arange(len(target.ranks))[(self.high > self.low).all(axis=0)]
        elements, blocks = np.ones(len(at), np.int64), np.zeros((0, len(at)), np.int64)
        for axis, step in enumerate(self.blocks):
            meets = self.meets[axis, at]
            which = np.repeat(np.arange(len(at)), meets)
            inner = np.arange(len(which)) - np.repeat(np.cumsum(meets) - meets, meets)
            at, elements, blocks = at[which], elements[which], blocks[:, which]
            block = self.first[axis, at] + inner
            low = np.maximum(self.low[axis, at], block * step)
            elements = elements * (np.minimum(self.high[axis, at], (block + 1) * step) - low)
            blocks = np.vstack([blocks, block])
        cells = row_major(blocks, source.parts)
        receivers = np.array(target.ranks)[at]
        senders = _rank_table(source)[cells, receivers % source.replicas]
        others = ~self._holds(cells, receivers) & (senders != receivers)
        return receivers[others], senders[others], elements[others]

    def _holds(self, cells: Array, receivers: Array) -> Array:
        """True where the receiver itself holds the source's block."""
        cell_of = np.full(max(max(self.source.ranks), max(self.target.ranks)) + 1, -1)
        cell_of[list(self.source.ranks)] = _cells(self.source)
        return np.asarray(cell_of[receivers] == cells)


def row_major(coordinates: Array, shape: Sequence[int]) -> Array:
    """Return positions in a row-major array, for coordinates of shape (axes, n)."""
    position = np.zeros(coordinates.shape[1], np.int64)
    for along, size in zip(coordinates, shape, strict=True):
        position = position * size + along
    return position


def _cells(placement: Placement) -> Array:
    """Return the block number of each grid position."""
    return row_major(placement.coordinates, placement.parts)


def _rank_table(placement: Placement) -> Array:
    """Return the rank of each block and replica: shape (blocks, replicas)."""
    table = np.zeros((math.prod(placement.parts), placement.replicas), np.int64)
    table[_cells(placement), placement.replica_numbers] = placement.ranks
    return table


def same_place(source: Placement, target: Placement, shape: Sequence[int]) -> bool:
    """
    Check that every rank holds the same block under both placements, so that nothing has to be moved.

    Empty blocks must also have equal shapes, since operands of a contraction must conform.
    """
    if source == target:
        return True
    if not shape and set(source.ranks) != set(target.ranks):
        return False
    ranks = max(max(source.ranks), max(target.ranks)) + 1
    ends = held(source, shape, ranks), held(target, shape, ranks)
    extents = _extents(source, shape, ranks), _extents(target, shape, ranks)
    return all(np.array_equal(*pair) for pair in (*zip(*ends, strict=True), extents))


def _extents(placement: Placement, shape: Sequence[int], ranks: int) -> Array:
    """Return the shape of every rank's block, array of shape (axes, ranks); zero for ranks outside of the grid."""
    extents = np.zeros((len(shape), ranks), np.int64)
    low, high = placement.bounds(shape)
    extents[:, np.array(placement.ranks)] = high - low
    return extents
