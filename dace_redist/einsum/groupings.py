"""Division of the contractions of a program into groups. Start reading at: contraction_trees."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dace_redist.einsum.expression import Einsum, canonical
from dace_redist.einsum.statement import ContractionStep, Statement, contraction_steps

#: Maximum number of intermediates for which every grouping is tried.
MAX_FREE_INTERMEDIATES = 7
#: Maximum number of indices of a group, the letters.
MAX_INDICES = 52
#: Minimum operations per element of an intermediate; below, the contraction is memory-bound.
MIN_FLOPS_PER_ELEMENT = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class EinsumStep:
    """
    Contractions computed together on one grid, or another statement.

    :param einsum: Indices of the operands and of the result.
    :param statement: Number of the statement it comes from.
    :param number: Number of the result in the contraction tree of the statement, that of its last step.
    :param sizes: Size of each index of ``einsum.indices``.
    :param steps: The pairwise steps of the local evaluation, the last one last.
    :param path: These steps as opt_einsum writes them.
    :param whole: Indices that are never split. If these are all indices, every rank computes the whole.
    :param replicated: True if every rank computes the whole.
    :param equal: Pairs of equal indices of the only operand: only its diagonal is used. Each rank uses the diagonal
        elements in its own block.
    """

    einsum: Einsum
    operands: tuple[str, ...]
    result: str
    statement: int
    number: int
    sizes: tuple[int, ...]
    steps: tuple[ContractionStep, ...]
    path: tuple[tuple[int, ...], ...]
    whole: str = ""
    equal: tuple[tuple[str, str], ...] = ()
    elementwise: bool = False
    solves: bool = False
    replicated: bool = False

    @property
    def extents(self) -> dict[str, int]:
        """Size of every index."""
        return dict(zip(self.einsum.indices, self.sizes, strict=True))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        extents = self.extents
        return tuple(extents[index] for index in self.einsum.result)

    @property
    def mirrored(self) -> str:
        """
        Indices over which the result is symmetric, of a tensor's product with itself as in ``ij,kj->ik``; else empty.

        A rank that has all of them computes half of the products.
        """
        if (
            len(self.operands) != 2
            or len({*self.operands}) > 1
            or len(self.steps) > 1
            or self.elementwise
            or self.solves
        ):
            return ""
        pairs = [(x, y) for x, y in zip(*self.einsum.operands, strict=True) if x != y]
        rows, columns = ("".join(side) for side in zip(*pairs, strict=True)) if pairs else ("", "")
        adjacent = rows in self.einsum.operands[0] and self.einsum.summed in self.einsum.operands[0]
        free = {*rows}.isdisjoint(self.einsum.operands[1]) and {*columns}.isdisjoint(self.einsum.operands[0])
        return rows + columns if self.einsum.summed and adjacent and free else ""


@dataclasses.dataclass(frozen=True)
class ContractionTree:
    """
    The contraction order of a statement of a program.

    :param steps: The contractions in topological order; none for a linear system.
    :param names: Names of the operands' tensors, then of the results of the steps.
    """

    statement: Statement
    number: int
    extents: Mapping[str, int]
    steps: tuple[ContractionStep, ...]
    names: tuple[str, ...]

    @property
    def _count(self) -> int:
        return len(self.statement.operands)

    def memory_bound(self) -> dict[int, int]:
        """
        Return the memory traffic, in elements, of each intermediate whose contraction is memory-bound.

        :return: By number of the intermediate; 0 if the contraction is compute-bound. Intermediates made of a single
            operand are left out.
        """
        costs = {}
        for number, step in enumerate(self.steps[:-1], self._count):
            if len(step.children) == 1:
                continue
            consumer = next(other for other in self.steps if number in other.children)
            size = math.prod(self.extents[index] for index in step.result)
            least = min(step.flops(self.extents), consumer.flops(self.extents))
            costs[number] = 2 * size if least < MIN_FLOPS_PER_ELEMENT * size else 0
        return costs

    def groupings(self, shared: Collection[str] = ()) -> Iterator[tuple[EinsumStep, ...]]:
        """
        Yield the divisions of the contractions into connected groups, the largest number of groups first.

        With more than ``MAX_FREE_INTERMEDIATES`` intermediates, a memory-bound intermediate is never stored: the
        contractions that write and read it are in one group. With more than ``MAX_INDICES`` indices all are stored.

        :param shared: Names of intermediates that other groups read, too: stored unless they are memory-bound.
        :return: Groups in topological order.
        """
        if self.statement.solves:
            yield (self._linear_system(),)
            return
        bound = self.memory_bound()
        few = len(self.extents) <= MAX_INDICES
        inner = [number for number, elements in bound.items() if few and (elements or self.names[number] not in shared)]
        forced = [number for number in inner if bound[number]] if len(inner) > MAX_FREE_INTERMEDIATES else []
        free = [number for number in inner if number not in forced]
        for size in range(len(free) + 1 if len(free) <= MAX_FREE_INTERMEDIATES else 1):
            for chosen in itertools.combinations(free, size):
                merged = {*forced, *chosen}
                numbers = range(self._count, self._count + len(self.steps))
                yield tuple(self._group(number, merged) for number in numbers if number not in merged)

    def _group(self, number: int, merged: set[int]) -> EinsumStep:
        """Return the group whose last step has this number."""
        inside = sorted(self._inside(number, merged))
        steps = [self.steps[n - self._count] for n in inside]
        operands = sorted((c for step in steps for c in step.children if c not in inside), key=self._first)
        there, path = list(operands), []
        for n, step in zip(inside, steps, strict=True):
            positions = sorted(there.index(child) for child in step.children)
            for position in reversed(positions):
                there.pop(position)
            there.append(n)
            path.append(tuple(positions))
        einsum, equal = self.statement.einsum.distinct
        terms = (*einsum.operands, *(step.result for step in self.steps))
        own = Einsum(tuple(terms[c] for c in operands), terms[number])
        pairs = tuple((place, index) for place, index in equal.items() if place in own.indices)
        whole = "".join(place for place, index in pairs if index in self.statement.whole)
        return self._step(own, operands, number, whole, steps=tuple(steps), path=tuple(path), equal=pairs)

    def _step(self, einsum: Einsum, operands: Sequence[int], number: int, whole: str = "", **more: Any) -> EinsumStep:
        if len(einsum.indices) > MAX_INDICES:
            raise ValueError(
                f"einsum '{self.statement.einsum}': a step of its path has {len(einsum.indices)} indices, expected at "
                f'most {MAX_INDICES}: leave optimize at "auto"'
            )
        return EinsumStep(
            einsum=einsum,
            operands=tuple(self.names[operand] for operand in operands),
            result=self.names[number],
            statement=self.number,
            number=number,
            sizes=tuple(self.extents[index] for index in einsum.indices),
            elementwise=self.statement.elementwise,
            solves=self.statement.solves,
            replicated=self.statement.replicated,
            whole="".join(sorted({*whole, *self.statement.whole})),
            **more,
        )

    def _linear_system(self) -> EinsumStep:
        """
        Return a linear system, see :class:`Statement`, as one group: its matrix is never split.

        The factorisation of an n x n matrix counts as n^3 operations (2/3 n^3 exactly), each column as 2 n^2.
        """
        einsum, count = self.statement.einsum, self._count
        matrix = einsum.operands[0]
        columns = [index for index in einsum.result if index not in matrix] if count > 1 else [matrix[0]]
        factors = ContractionStep((0,), matrix, matrix + matrix[0])
        solution = ContractionStep((0, count - 1), einsum.result, matrix + "".join(columns))
        return self._step(einsum, range(count), count, matrix, steps=(factors, solution), path=())

    def _first(self, number: int) -> int:
        """Return the first operand of the statement that an operand or intermediate contains."""
        if number < self._count:
            return number
        return min(map(self._first, self.steps[number - self._count].children))

    def _inside(self, number: int, merged: set[int]) -> Iterator[int]:
        """Yield the steps of the group that ends with a step."""
        yield number
        for child in self.steps[number - self._count].children:
            if child in merged:
                yield from self._inside(child, merged)


def contraction_trees(
    statements: Sequence[Statement],
    extents: Sequence[Mapping[str, int]],
    taken: Iterable[str] = (),
    memory_elements: int | None = None,
    optimize: Any = "auto",
) -> list[ContractionTree]:
    """
    Return the contraction order of each statement of a program; equal intermediates have equal names.

    After a write a tensor counts as another one. Intermediates are not shared between different loops.

    :param taken: Names that intermediates must not have.
    :param memory_elements: Maximum elements of an intermediate.
    :param optimize: See :func:`dace_redist.einsum.plan_einsums`.
    """
    written: Counter[str] = Counter()
    names: dict[Hashable, str] = {}  # of intermediates, by value
    trees = []
    for number, (statement, sizes) in enumerate(zip(statements, extents, strict=True)):
        steps = () if statement.solves else contraction_steps(statement, sizes, memory_elements, optimize)
        own = list(statement.operands)
        for step, value in zip(steps[:-1], _values(statement, steps, written), strict=True):
            if value not in names:
                base = f"{statement.result}_{step.result}" if step.result else f"scalar_{number}"
                spare = itertools.chain([base], (f"{base}_{count}" for count in itertools.count(2)))
                known = {*taken, *names.values()}
                names[value] = next(name for name in spare if name not in known)
            own.append(names[value])
        trees.append(ContractionTree(statement, number, sizes, steps, (*own, statement.result)))
        written[statement.result] += 1
    return trees


def _values(statement: Statement, steps: Sequence[ContractionStep], written: Mapping[str, int]) -> list[Hashable]:
    """Return a key of each intermediate of a statement; equal keys mean equal tensors."""
    einsum, equal = statement.einsum.distinct
    values: list[Hashable] = [(name, written[name]) for name in statement.operands]
    terms = list(einsum.operands)
    for step in steps[:-1]:
        children = [(values[c], "".join(equal.get(index, index) for index in terms[c])) for c in step.children]
        values.append((statement.loops, canonical(children, step.result)))
        terms.append(step.result)
    return values[len(statement.operands) :]
