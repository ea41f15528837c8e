"""Messages between ranks, the blocks they are made of, and the lengths of their contiguous runs."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt


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
        lengths: Counter[int] = Counter()
        for block in self.blocks:
            lengths[block.run_length] += block.count // block.run_length
        return Quantiles.of(lengths).median

    @property
    def source_runs(self) -> Counter[int]:
        """Number of runs by length at the sender: contiguous there and in the packed message."""
        return count_runs((block.source_offset, block.counts, block.source_strides) for block in self.blocks)

    @property
    def target_runs(self) -> Counter[int]:
        """Number of runs by length at the receiver: contiguous there and in the packed message."""
        return count_runs((block.target_offset, block.counts, block.target_strides) for block in self.blocks)


def blocks_of(raw: Iterable[Any]) -> tuple[Block, ...]:
    """Return blocks from the tuples of the planner."""
    return tuple(Block(source, target, *map(tuple, rest)) for source, target, *rest in raw)
