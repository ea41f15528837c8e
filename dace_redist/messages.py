"""Messages between ranks, the blocks they are made of, and the lengths of their contiguous runs."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided


@dataclasses.dataclass(frozen=True)
class Quantiles:
    """Smallest, median and largest of some lengths; half of all elements lie in lengths up to the median."""

    smallest: int
    median: int
    largest: int

    @classmethod
    def of(cls, lengths: Mapping[int, int]) -> Quantiles:
        """Return the quantiles of lengths, by how often each occurs; zeros if there are none."""
        if not lengths:
            return cls(0, 0, 0)
        ordered = sorted(lengths)
        seen = list(itertools.accumulate(length * lengths[length] for length in ordered))
        return cls(ordered[0], ordered[bisect.bisect_left(seen, seen[-1] / 2)], ordered[-1])

    def nbytes(self, itemsize: int) -> Quantiles:
        """Return the quantiles in bytes."""
        return Quantiles(self.smallest * itemsize, self.median * itemsize, self.largest * itemsize)


@dataclasses.dataclass(frozen=True)
class RunLengths:
    """Run lengths in elements, where messages are sent from and where they arrive."""

    sender: Quantiles
    receiver: Quantiles


@dataclasses.dataclass(frozen=True)
class Totals:
    """Elements and messages of every rank, arrays with one entry per rank."""

    sent: npt.NDArray[np.int64]
    received: npt.NDArray[np.int64]
    kept: npt.NDArray[np.int64]
    sends: npt.NDArray[np.int64]
    receives: npt.NDArray[np.int64]
    sizes: Counter[int]  # how many messages between ranks have each number of elements
    results: int  # elements sent from one replica of the result of a reduction to another


@dataclasses.dataclass
class _Runs:
    """Runs in packed order, in elements: the first, the last (may be the same one), and those between by length."""

    start: int  # position of the first element in the array
    end: int  # one past the last element
    first: int
    last: int
    single: bool
    between: Counter[int]

    def repeated(self, times: int, stride: int) -> _Runs:
        """Return these runs ``times`` times, ``stride`` elements apart."""
        if times == 1:
            return self
        end, joined = self.end + (times - 1) * stride, self.start + stride == self.end
        if self.single and joined:
            return _Runs(self.start, end, self.first * times, self.first * times, True, Counter())
        between = Counter({length: often * times for length, often in self.between.items()})
        if self.single:
            between[self.first] += times - 2
        elif joined:
            between[self.last + self.first] += times - 1
        else:
            between[self.first] += times - 1
            between[self.last] += times - 1
        return _Runs(self.start, end, self.first, self.last, False, between)


@lru_cache(maxsize=4096)
def _block_runs(counts: tuple[int, ...], strides: tuple[int, ...]) -> _Runs:
    runs = _Runs(0, 1, 1, 1, True, Counter())
    for count, stride in zip(reversed(counts), reversed(strides), strict=True):
        runs = runs.repeated(count, stride)
    return runs


def count_runs(sides: Iterable[tuple[int, tuple[int, ...], tuple[int, ...]]]) -> Counter[int]:
    """
    Return the number of runs on one side of a message by length, in elements.

    :param sides: Offset, counts and strides of each block on this side, in elements, in the order of the message.
    """
    lengths, end, tail = Counter[int](), -1, 0  # the run that may go on: where it ends, how long it is so far
    for offset, counts, strides in sides:
        runs = _block_runs(counts, strides)
        head = runs.first
        if offset == end:
            head += tail
        elif tail:
            lengths[tail] += 1
        if not runs.single:
            lengths[head] += 1
            lengths.update(runs.between)
        end, tail = offset + runs.end, head if runs.single else runs.last
    if tail:
        lengths[tail] += 1
    return +lengths


@dataclasses.dataclass(frozen=True)
class Block:
    """
    Box of elements and its places on both sides; all numbers in elements, outermost dimension first.

    Dimensions of one element are dropped, and neighbours are merged where contiguous on both sides.
    """

    source_offset: int
    target_offset: int
    counts: tuple[int, ...]
    source_strides: tuple[int, ...]
    target_strides: tuple[int, ...]

    @property
    def count(self) -> int:
        """Elements of the block."""
        return math.prod(self.counts)

    @property
    def run_length(self) -> int:
        """Elements that are contiguous on both sides."""
        contiguous = bool(self.counts) and self.source_strides[-1] == self.target_strides[-1] == 1
        return self.counts[-1] if contiguous else 1


@dataclasses.dataclass(frozen=True)
class Message:
    """
    Elements that one rank sends to another, or keeps (``source == target``).

    A packed message holds the blocks one after another, each in row-major order of its counts.
    """

    source: int
    target: int
    count: int
    blocks: tuple[Block, ...]

    def nbytes(self, itemsize: int) -> int:
        """Return the bytes of the message, for elements of ``itemsize`` bytes."""
        return self.count * itemsize

    @property
    def run_length(self) -> int:
        """Elements that are contiguous on both sides: of its blocks the one that holds the median element."""
        return Quantiles.of(self.common_runs).median

    @property
    def common_runs(self) -> Counter[int]:
        """Number of runs by length that are contiguous on both sides."""
        lengths = Counter[int]()
        for block in self.blocks:
            lengths[block.run_length] += block.count // block.run_length
        return lengths

    @property
    def source_runs(self) -> Counter[int]:
        """Number of runs by length at the sender: contiguous there and in the packed message."""
        return count_runs((block.source_offset, block.counts, block.source_strides) for block in self.blocks)

    @property
    def target_runs(self) -> Counter[int]:
        """Number of runs by length at the receiver: contiguous there and in the packed message."""
        return count_runs((block.target_offset, block.counts, block.target_strides) for block in self.blocks)


@dataclasses.dataclass(frozen=True, eq=False)
class MessageArrays:
    """
    Messages of one rank as NumPy arrays of 64-bit integers.

    Offsets and strides are in elements, of local arrays in C order.

    Message ``m`` is made of the blocks ``first_block[m]`` to ``first_block[m + 1] - 1``, one after another, each in
    row-major order of its counts. Both ranks of a message have its blocks in one order. Blocks with fewer dimensions
    than others begin with dimensions of one element.

    :param peers: Rank on the other side, [messages].
    :param elements: Number of elements, [messages].
    :param exchanges: Number of the exchange, see :attr:`Schedule.exchanges`, [messages].
    :param first_block: Number of the first block, [messages + 1].
    :param source_offsets: First element of a block in the sender's array, [blocks].
    :param target_offsets: First element of a block in the receiver's array, [blocks].
    :param counts: Elements of a block along each dimension, outermost first, [blocks, dimensions].
    :param source_strides: Strides of a block in the sender's array, [blocks, dimensions].
    :param target_strides: Strides of a block in the receiver's array, [blocks, dimensions].
    """

    peers: npt.NDArray[np.int64]
    elements: npt.NDArray[np.int64]
    exchanges: npt.NDArray[np.int64]
    first_block: npt.NDArray[np.int64]
    source_offsets: npt.NDArray[np.int64]
    target_offsets: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    source_strides: npt.NDArray[np.int64]
    target_strides: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.peers)

    def source_views(self, array: npt.NDArray[Any], message: int) -> list[npt.NDArray[Any]]:
        """
        Return the blocks of a message as views of the sender's array, in order.

        :param array: Local array of the source, in C order.
        :param message: Number of the message, from 0.
        :raises ValueError: If the array is not in C order, or too small for a block.
        """
        return self._views(array, message, self.source_offsets, self.source_strides)

    def target_views(self, array: npt.NDArray[Any], message: int) -> list[npt.NDArray[Any]]:
        """Return the blocks of a message as views of the receiver's array, see :meth:`source_views`."""
        return self._views(array, message, self.target_offsets, self.target_strides)

    def _views(self, array: npt.NDArray[Any], message: int, offsets: Any, strides: Any) -> list[npt.NDArray[Any]]:
        if not array.flags.c_contiguous:
            raise ValueError(
                f"array must be in C order, got strides {array.strides}: numpy.ascontiguousarray copies it"
            )
        blocks = slice(*self.first_block[message : message + 2].tolist())
        ends = offsets[blocks] + ((self.counts[blocks] - 1) * strides[blocks]).sum(axis=1)
        if ends.max(initial=-1) >= array.size:
            raise ValueError(f"array must have at least {ends.max() + 1} elements, got shape {array.shape}")
        flat, rows = array.reshape(-1), zip(offsets[blocks], self.counts[blocks], strides[blocks], strict=True)
        return [as_strided(flat[start:], counts, steps * array.itemsize) for start, counts, steps in rows]

    def blocks(self) -> list[tuple[Block, ...]]:
        """Return the blocks of each message, without dimensions of one element."""
        columns = (self.source_offsets, self.target_offsets, self.counts, self.source_strides, self.target_strides)
        blocks = [
            Block(source, target, *(tuple(row[counts.count(1) :]) for row in (counts, *strides)))
            for source, target, counts, *strides in zip(*(column.tolist() for column in columns), strict=True)
        ]
        return [tuple(blocks[start:end]) for start, end in itertools.pairwise(self.first_block.tolist())]


class RankArrays(NamedTuple):
    """Messages that a rank sends to others, receives from others, and keeps; by exchange and ascending peer."""

    sends: MessageArrays
    receives: MessageArrays
    kept: MessageArrays

    def messages(self, rank: int) -> tuple[list[Message], list[Message], Message]:
        """Return the messages that the rank sends, receives and keeps."""
        sends, receives, kept = (
            zip(side.peers.tolist(), side.elements.tolist(), side.blocks(), strict=True) for side in self
        )
        return (
            [Message(rank, *row) for row in sends],
            [Message(peer, rank, *row) for peer, *row in receives],
            next((Message(rank, *row) for row in kept), Message(rank, rank, 0, ())),
        )
