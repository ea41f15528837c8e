"""The process grids on which a group may be computed, and what each costs by itself. Start reading at: candidates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dace_redist.einsum.expression import Einsum
from dace_redist.einsum.factorisations import factorisations, useful_parts
from dace_redist.einsum.order import ContractionStep
from dace_redist.einsum.placement import Array, block_length, ceil_division

Floats = npt.NDArray[np.float64]

#: Grids whose busiest rank has more than this share of additional work are not considered.
LOAD_TOLERANCE = 0.10
#: Of grids with at most this share of additional work the one that moves least is best; more work counts as time.
EQUAL_LOAD = 0.02
#: Largest number of grids per group; of more, those of fewer ranks are left out.
MAX_GRIDS = 20_000
#: Largest number of rank counts below that of all ranks for which grids are made.
MAX_RANK_COUNTS = 1000

#: How partial results are put together: entries of :attr:`Candidates.scatter` that are no axis of the result.
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
        """Those at some positions."""
        if which == slice(None):
            return self
        return Layouts(self.parts[which], self.blocks[which], self.replicas[which])

    @cached_property
    def distinct(self) -> list[tuple[Array, Array]]:
        """Per axis the distinct block sizes, and which of them each of the K grids has."""
        return [np.unique(column, return_inverse=True) for column in self.blocks.T]

    @cached_property
    def ranks(self) -> Array:
        """Ranks that hold anything: (K,)."""
        return np.asarray(np.prod(self.parts, axis=1, dtype=np.int64) * self.replicas)


@dataclasses.dataclass(frozen=True)
class Candidates:
    """
    K ways to compute a group: its grid, and how partial results are put together.

    :param einsum: The group's einsum.
    :param extents: Size of every index.
    :param steps: The steps of the local evaluation.
    :param parts: Blocks along every index: (K, indices).
    :param scatter: Axis of the result along which partial results are scattered, or one of the constants above: (K,).
    :param least_load: Operations of the busiest rank with the grid that splits the work best.
    :param replicas: How many ranks do the same for each position of a grid.
    """

    einsum: Einsum
    extents: Mapping[str, int]
    steps: tuple[ContractionStep, ...]
    parts: Array
    scatter: Array
    least_load: float = math.inf
    replicas: int = 1

    def __len__(self) -> int:
        return len(self.parts)

    def chosen(self, which: npt.NDArray[np.bool_] | Array) -> Candidates:
        """Those at some positions."""
        return dataclasses.replace(self, parts=self.parts[which], scatter=self.scatter[which])

    def at(self, indices: str) -> list[int]:
        """Positions of indices among all of the einsum."""
        return [self.einsum.indices.index(index) for index in indices]

    @cached_property
    def partial(self) -> Array:
        """How many ranks hold partial sums of each element of the result: (K,)."""
        return np.asarray(np.prod(self.parts[:, self.at(self.einsum.summed)], axis=1, dtype=np.int64))

    @cached_property
    def multiples(self) -> Array:
        """The number of pieces of which the blocks of an index hold a multiple: (K, indices)."""
        multiples = np.ones_like(self.parts)
        for axis, index in enumerate(self.at(self.einsum.result)):
            multiples[:, index] = np.where(self.scatter == axis, self.partial, 1)
        return multiples

    @cached_property
    def sizes(self) -> Array:
        """Size of every index."""
        return np.array([self.extents[index] for index in self.einsum.indices], np.int64)

    @cached_property
    def pieces(self) -> Array:
        """Elements of the pieces of which the blocks hold a multiple: (K, indices)."""
        return np.asarray(ceil_division(self.sizes, self.parts * self.multiples))

    @cached_property
    def blocks(self) -> Array:
        """Elements of the largest block along every index: (K, indices)."""
        return np.asarray(np.minimum(block_length(self.sizes, self.parts, self.multiples), self.sizes))

    @cached_property
    def load(self) -> Floats:
        """Operations of the busiest rank: (K,)."""
        return np.asarray(sum(step.flops_per_point * self.block_product(step.indices) for step in self.steps))

    @cached_property
    def excess_load(self) -> Floats:
        """Operations of the busiest rank beyond what counts as the least possible: (K,)."""
        return np.maximum(self.load - (1 + EQUAL_LOAD) * self.least_load, 0)

    def block_product(self, indices: str) -> Floats:
        """Elements of the largest block of a tensor with these indices: (K,)."""
        return np.asarray(np.prod(self.blocks[:, self.at(indices)], axis=1, dtype=np.float64))

    @cached_property
    def operands(self) -> tuple[Layouts, ...]:
        """The operands' blocks as the group wants them."""
        return tuple(self._layouts(number) for number in range(len(self.einsum.operands)))

    def _layouts(self, number: int) -> Layouts:
        at = self.at(self.einsum.operands[number])
        others = [index for index in range(len(self.einsum.indices)) if index not in at]
        replicas = self.replicas * np.prod(self.parts[:, others], axis=1, dtype=np.int64)
        return Layouts(self.parts[:, at], self.blocks[:, at], replicas)

    @cached_property
    def result(self) -> Layouts:
        """The result's blocks after the reduction."""
        at = self.at(self.einsum.result)
        parts = self.parts[:, at] * self.multiples[:, at]
        return Layouts(parts, np.minimum(self.pieces[:, at], self.sizes[at]), np.full(len(self), self.replicas))

    def fetched(self, number: int) -> Floats:
        """Elements of an operand that a rank fetches if it was evenly spread before: (K,)."""
        layout = self.operands[number]
        return np.asarray(layout.elements * (layout.replicas - 1) / layout.replicas)

    @cached_property
    def reduced(self) -> Floats:
        """Elements of partial results that a rank sends: (K,)."""
        whole = self.block_product(self.einsum.result)
        scattered = whole * (self.partial - 1) / self.partial
        return np.where(self.scatter == TO_ROOT, whole, np.where(self.scatter >= 0, scattered, 0.0))

    @cached_property
    def footprint(self) -> Floats:
        """Elements of all operands, of the result and, where it is reduced, of the reduced result: (K,)."""
        operands = sum(layouts.elements for layouts in self.operands)
        reduced = np.where(self.scatter == NO_REDUCTION, 0.0, self.result.elements)
        return np.asarray(operands + self.block_product(self.einsum.result) + reduced)


def candidates(
    einsum: Einsum,
    extents: Mapping[str, int],
    steps: Sequence[ContractionStep],
    ranks: int,
    *,
    whole: str = "",
    footprint: float | None = None,
    load: float = math.inf,
) -> Candidates:
    """
    Every grid of at most so many ranks whose busiest rank has nearly the least possible work.

    Considered are grids of p ranks, from all ranks downwards until even a perfect split would be too much work.
    An index has never more parts than elements, nor more than its blocks need.

    :param einsum: The group's einsum.
    :param extents: Size of every index.
    :param steps: The steps of the local evaluation.
    :param ranks: Ranks at hand.
    :param whole: Indices that are not split; if these are all, every rank computes the whole.
    :param footprint: Elements that fit the memory of a rank; grids that need more are left out.
    :param load: Operations that the busiest rank may have at most.
    :return: None at all if nothing fits.
    """
    allowed = [useful_parts(extents[i], ranks) if i not in whole else frozenset((1,)) for i in einsum.indices]
    total = sum(step.flops_per_point * math.prod(extents[i] for i in step.indices) for step in steps)
    most = min(ranks, math.prod(max(parts) for parts in allowed))
    none, replicas = np.zeros((0, len(allowed)), np.int64), replicas_of(einsum, whole, ranks)
    space = Candidates(einsum, extents, tuple(steps), none, np.zeros(0, np.int64), replicas=replicas)
    elements = sum(math.prod(extents[i] for i in tensor) for tensor in (*einsum.operands, einsum.result))

    def may_fit(count: int) -> bool:
        """Whether a perfect split would."""
        return total / count <= load * (1 + 1e-9) and (footprint is None or elements / count <= footprint)

    best, used = space, most + 1
    while not len(best) and used > 1 and may_fit(used - 1):  # the most ranks with which anything fits
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
    return dataclasses.replace(found, least_load=least)


def _fitting(space: Candidates, grids: Array, footprint: float | None, load: float) -> Candidates:
    """Grids with each way to put partial results together, as far as memory and work allow."""
    found = _with_reductions(dataclasses.replace(space, parts=grids, scatter=np.zeros(len(grids), np.int64)))
    fits = found.load <= load * (1 + 1e-9)
    if footprint is not None:
        fits &= found.footprint <= footprint
    return found.chosen(fits)


def replicas_of(einsum: Einsum, whole: str, ranks: int) -> int:
    """How many ranks compute the same: all, where no index can be split."""
    return ranks if whole and set(einsum.indices) <= set(whole) else 1


def given_grid(
    einsum: Einsum,
    extents: Mapping[str, int],
    steps: Sequence[ContractionStep],
    parts: Mapping[str, int],
    replicas: int = 1,
) -> Candidates:
    """The candidates with one grid, that of the user; indices left out are not split."""
    row = np.array([[parts.get(index, 1) for index in einsum.indices]], np.int64)
    return _with_reductions(Candidates(einsum, extents, tuple(steps), row, np.zeros(1, np.int64), replicas=replicas))


def _with_reductions(grids: Candidates) -> Candidates:
    """Each grid with each way to put its partial results together."""
    reduces = grids.partial > 1
    options = [(grids.parts[~reduces], NO_REDUCTION), (grids.parts[reduces], TO_ROOT)]
    sizes = [grids.extents[index] for index in grids.einsum.result]
    at = grids.at(grids.einsum.result)
    for axis, (size, index) in enumerate(zip(sizes, at, strict=True)):
        long_enough = reduces & (grids.parts[:, index] * grids.partial <= size)
        options.append((grids.parts[long_enough], axis))
    scatter = [np.full(len(parts), axis, np.int64) for parts, axis in options]
    parts = np.concatenate([parts for parts, _ in options])
    return dataclasses.replace(grids, parts=parts, scatter=np.concatenate(scatter))
