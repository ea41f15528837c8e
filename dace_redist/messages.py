"""What one rank sends to another: messages, and the blocks they are made of."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from dace_redist.run_lengths import Quantiles, count_runs


@dataclasses.dataclass(frozen=True)
class Block:
    """
    A box of elements and where it lies on both sides; all numbers in elements, outermost dimension first.

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
    All that one rank sends to another, or keeps (``source == target``).

    A packed message holds the blocks one after another, each in row-major order of its counts.
    """

    source: int
    target: int
    count: int
    blocks: tuple[Block, ...]

    def nbytes(self, itemsize: int) -> int:
        """Bytes of the message, for elements of ``itemsize`` bytes."""
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
        """How often each run length occurs where it is sent from: contiguous there and in the packed message."""
        return count_runs((block.source_offset, block.counts, block.source_strides) for block in self.blocks)

    @property
    def target_runs(self) -> Counter[int]:
        """How often each run length occurs where it arrives: contiguous there and in the packed message."""
        return count_runs((block.target_offset, block.counts, block.target_strides) for block in self.blocks)


def blocks_of(raw: Iterable[Any]) -> tuple[Block, ...]:
    """Blocks from the tuples that the planner returns."""
    return tuple(Block(source, target, *map(tuple, rest)) for source, target, *rest in raw)
