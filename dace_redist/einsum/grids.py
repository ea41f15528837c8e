"""Candidate process grids of a group, and the cost of each by itself. Start reading at: candidates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dace_redist.einsum.groupings import EinsumStep
from dace_redist.einsum.placement import Array, Floats, block_length, ceil_division
from dace_redist.einsum.program import Group, Reduction

#: Maximum relative excess work of the busiest rank; grids with more are not considered. 6 of 7 ranks have 17 % more.
LOAD_TOLERANCE = 0.20
#: Relative excess work that costs nothing: among such grids the one with least traffic is best.
EQUAL_LOAD = 0.001
#: Maximum number of grids per group; grids of the fewest ranks are dropped first.
MAX_GRIDS = 20_000
#: Maximum number of rank counts, below the number of ranks, for which grids are enumerated.
MAX_RANK_COUNTS = 1000

#: Entries of :attr:`Candidates.scatter` that are not an axis of the result.
NO_REDUCTION, TO_ROOT = -1, -2


@dataclasses.dataclass(frozen=True)
class Layouts:
    """A tensor's blocks on each of K grids: arrays of shape (K, axes), and replicas and ranks, of shape (K,)."""

    parts: Array
    blocks: Array
    replicas: Array

    @cached_property
    def elements(self) -> Floats:
        """Elements of the largest block: (K,)."""
        return np.asarray(np.prod(self.blocks, axis=1, dtype=np.float64))

    def __len__(self) -> int:
        return len(self.replicas)

    def chosen(self, which: slice) -> Layouts:
        """Return the layouts at some positions."""
        if which == slice(None):
            return self
        return Layouts(self.parts[which], self.blocks[which], self.replicas[which])

    @cached_property
    def distinct(self) -> list[tuple[Array, Array]]:
        """Per axis the distinct block sizes, and the index into them of each of the K grids."""
        return [np.unique(column, return_inverse=True) for column in self.blocks.T]

    @cached_property
    def ranks(self) -> Array:
        """Number of ranks that hold elements: (K,)."""
        return np.asarray(np.prod(self.parts, axis=1, dtype=np.int64) * self.replicas)


@dataclasses.dataclass(frozen=True)
class Candidates:
    """
    K candidates for a group: its grid and the reduction of its partial results.

    :param parts: Blocks along every index: (K, indices).
    :param scatter: Axis of the result along which partial results are scattered, or one of the constants above: (K,).
    :param least_work: Minimum of :attr:`work` over all grids.
    :param replicas: Number of ranks that compute the block of one grid position redundantly.
    """

    step: EinsumStep
    parts: Array
    scatter: Array
    least_work: float = math.inf
    replicas: int = 1

    def __len__(self) -> int:
        return len(self.parts)

    def group(self, row: int) -> Group:
        """Return a candidate as a group on ranks 0, 1, 2, ..."""
        einsum, grid = self.step.einsum, tuple(self.parts[row].tolist())
        partial, scatter = int(self.partial[row]), int(self.scatter[row])
        over = "".join(index for index in einsum.summed if grid[einsum.indices.index(index)] > 1)
        return Group(
            **vars(self.step),
            grid=grid,
            ranks=tuple(range(math.prod(grid) * self.replicas)),
            multiples=tuple(self.multiples[row].tolist()),
            reduction=Reduction(over, partial, scatter if scatter >= 0 else None) if partial > 1 else None,
            replicas=self.replicas,
        )

    def chosen(self, which: npt.NDArray[np.bool_] | Array) -> Candidates:
        """Return the candidates at some positions."""
        return dataclasses.replace(self, parts=self.parts[which], scatter=self.scatter[which])

    def at(self, indices: str) -> list[int]:
        """Return the positions of indices in ``einsum.indices``."""
        return [self.step.einsum.indices.index(index) for index in indices]

    @cached_property
    def partial(self) -> Array:
        """Number of ranks that hold partial sums of one element of the result: (K,)."""
        return np.asarray(np.prod(self.parts[:, self.at(self.step.einsum.summed)], axis=1, dtype=np.int64))

    @cached_property
    def multiples(self) -> Array:
        """Number of equal pieces of a block along every index: (K, indices)."""
        multiples = np.ones_like(self.parts)
        for axis, index in enumerate(self.at(self.step.einsum.result)):
            multiples[:, index] = np.where(self.scatter == axis, self.partial, 1)
        return multiples

    @cached_property
    def sizes(self) -> Array:
        """Size of every index."""
        return np.array(self.step.sizes, np.int64)

    @cached_property
    def pieces(self) -> Array:
        """Elements of a piece of a block along every index: (K, indices)."""
        return np.asarray(ceil_division(self.sizes, self.parts * self.multiples))

    @cached_property
    def blocks(self) -> Array:
        """Elements of the largest block along every index: (K, indices)."""
        return np.asarray(np.minimum(block_length(self.sizes, self.parts, self.multiples), self.sizes))

    @cached_property
    def load(self) -> Floats:
        """Operations of the busiest rank, of which symmetric results save none: (K,)."""
        return np.asarray(sum(step.flops_per_point * self.block_product(step.indices) for step in self.step.steps))

    @cached_property
    def work(self) -> Floats:
        """Operations of the busiest rank: (K,)."""
        mirrored = self.step.mirrored
        whole = (self.parts[:, self.at(mirrored)] == 1).all(axis=1)
        return np.where(whole, 0.5, 1.0) * self.load if mirrored else self.load

    @cached_property
    def excess_work(self) -> Floats:
        """Operations of the busiest rank above the minimum and its tolerance ``EQUAL_LOAD``: (K,)."""
        return np.maximum(self.work - (1 + EQUAL_LOAD) * self.least_work, 0)

    def block_product(self, indices: str) -> Floats:
        """Return the elements of the largest block of a tensor with these indices: (K,)."""
        return np.asarray(np.prod(self.blocks[:, self.at(indices)], axis=1, dtype=np.float64))

    @cached_property
    def operands(self) -> tuple[Layouts, ...]:
        """Blocks of the operands as the group requires them."""
        return tuple(self._layouts(number) for number in range(len(self.step.einsum.operands)))

    def _layouts(self, number: int) -> Layouts:
        at = self.at(self.step.einsum.operands[number])
        others = [index for index in range(len(self.step.einsum.indices)) if index not in at]
        replicas = self.replicas * np.prod(self.parts[:, others], axis=1, dtype=np.int64)
        return Layouts(self.parts[:, at], self.blocks[:, at], replicas)

    @cached_property
    def result(self) -> Layouts:
        """Blocks of the result after the reduction."""
        at = self.at(self.step.einsum.result)
        parts = self.parts[:, at] * self.multiples[:, at]
        return Layouts(parts, np.minimum(self.pieces[:, at], self.sizes[at]), np.full(len(self), self.replicas))

    def fetched(self, number: int) -> Floats:
        """Return the elements of an operand that a rank receives if its replicas shared it evenly before: (K,)."""
        layout = self.operands[number]
        return np.asarray(layout.elements * (layout.replicas - 1) / layout.replicas)

    @cached_property
    def reduced(self) -> Floats:
        """Elements of partial results that a rank sends: (K,)."""
        whole = self.block_product(self.step.einsum.result)
        scattered = whole * (self.partial - 1) / self.partial
        return np.where(self.scatter == TO_ROOT, whole, np.where(self.scatter >= 0, scattered, 0.0))

    @cached_property
    def footprint(self) -> Floats:
        """Elements of all operands, of the result and, where it is reduced, of the reduced result: (K,)."""
        operands = sum(layouts.elements for layouts in self.operands)
        reduced = np.where(self.scatter == NO_REDUCTION, 0.0, self.result.elements)
        return np.asarray(operands + self.block_product(self.step.einsum.result) + reduced)


def candidates(step: EinsumStep, ranks: int, *, footprint: float = math.inf, load: float = math.inf) -> Candidates:
    """
    Return the grids of at most ``ranks`` ranks whose busiest rank has nearly the minimum work.

    Grids of p ranks are tried for decreasing p, until even an even split exceeds the limit on work. An index has at
    most as many parts as elements, and no more than its block size requires.

    :param footprint: Maximum elements on a rank.
    :param load: Maximum operations of the busiest rank.
    :return: The candidates; empty if no grid fits.
    """
    extents, tensors = step.extents, (*step.einsum.operands, step.einsum.result)
    whole = extents if step.replicated else step.whole
    allowed = [useful_parts(n, ranks) if i not in whole else frozenset((1,)) for i, n in extents.items()]
    total = sum(contraction.flops(extents) for contraction in step.steps)
    elements = sum(math.prod(extents[i] for i in tensor) for tensor in tensors)
    most = min(ranks, math.prod(max(parts) for parts in allowed))
    space = _on_grids(step, np.zeros((0, len(allowed)), np.int64), ranks)

    def may_fit(count: int) -> bool:
        """True if an even split over this many ranks would fit."""
        return total / count <= load * (1 + 1e-9) and elements / count <= footprint

    best, used = space, most + 1
    while not len(best) and used > 1 and may_fit(used - 1):  # the largest number of ranks for which a grid fits
        used -= 1
        best = _fitting(space, factorisations(used, allowed), footprint, load)
    if not len(best):
        return best
    limit = min(load, (1 + LOAD_TOLERANCE) * best.load.min())
    grids = [factorisations(used, allowed)]
    while used > max(1, most - MAX_RANK_COUNTS) and total / (used - 1) <= limit and sum(map(len, grids)) < MAX_GRIDS:
        used -= 1
        grids.append(factorisations(used, allowed))
    found = _fitting(space, np.concatenate(grids), footprint, limit)
    least = float(found.load.min(initial=math.inf))
    found = found.chosen(found.load <= (1 + LOAD_TOLERANCE) * least * (1 + 1e-9))
    return dataclasses.replace(found, least_work=float(found.work.min(initial=math.inf)))


def _fitting(space: Candidates, grids: Array, footprint: float, load: float) -> Candidates:
    """Return each grid with each reduction, as far as memory and work allow."""
    found = _with_reductions(dataclasses.replace(space, parts=grids, scatter=np.zeros(len(grids), np.int64)))
    return found.chosen((found.load <= load * (1 + 1e-9)) & (found.footprint <= footprint))


def given_grid(step: EinsumStep, parts: Mapping[str, int], ranks: int) -> Candidates:
    """Return the candidates of the user's grid; indices it leaves out are not split."""
    row = np.array([[parts.get(index, 1) for index in step.einsum.indices]], np.int64)
    return _with_reductions(_on_grids(step, row, ranks))


def _on_grids(step: EinsumStep, grids: Array, ranks: int) -> Candidates:
    everywhere = step.replicated or (step.whole and set(step.einsum.indices) <= set(step.whole))
    replicas = ranks if everywhere else 1
    return Candidates(step, grids, np.zeros(len(grids), np.int64), replicas=replicas)


def _with_reductions(grids: Candidates) -> Candidates:
    """Return each grid with each reduction of its partial results."""
    reduces = grids.partial > 1
    options = [(grids.parts[~reduces], NO_REDUCTION), (grids.parts[reduces], TO_ROOT)]
    for axis, (size, index) in enumerate(zip(grids.step.shape, grids.at(grids.step.einsum.result), strict=True)):
        long_enough = reduces & (grids.parts[:, index] * grids.partial <= size)
        if grids.step.einsum.result[axis] not in grids.step.whole:
            options.append((grids.parts[long_enough], axis))
    scatter = [np.full(len(parts), axis, np.int64) for parts, axis in options]
    parts = np.concatenate([parts for parts, _ in options])
    return dataclasses.replace(grids, parts=parts, scatter=np.concatenate(scatter))


def useful_parts(extent: int, ranks: int) -> frozenset[int]:
    """Return the numbers of blocks of an axis, up to ``ranks``, for which no smaller number gives blocks as small."""
    extent = max(extent, 1)
    root = math.isqrt(extent)
    blocks = {*range(1, root + 1), *(ceil_division(extent, parts) for parts in range(1, root + 2))}
    return frozenset(parts for block in blocks if (parts := ceil_division(extent, block)) <= ranks)


def factorisations(number: int, allowed: Sequence[frozenset[int]]) -> Array:
    """Return all factorisations of a number with one allowed factor per index: shape (factorisations, indices)."""
    small = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    divisors = {*small, *(number // divisor for divisor in small)}
    grids, rest = np.zeros((1, 0), np.int64), np.array([number], np.int64)
    for position, factors in enumerate(allowed):
        last = position == len(allowed) - 1
        rows, values = [], []
        for factor in sorted(factors.intersection(divisors)):
            fits = np.flatnonzero(rest == factor if last else rest % factor == 0)
            rows.append(fits)
            values.append(np.full(len(fits), factor, np.int64))
        if not rows:
            return np.zeros((0, len(allowed)), np.int64)
        row, value = np.concatenate(rows), np.concatenate(values)
        grids, rest = np.column_stack([grids[row], value]), rest[row] // value
    return grids if len(allowed) or number == 1 else grids[:0]
