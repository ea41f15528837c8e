"""Contraction order of a statement, and its division into groups. Start reading at: groupings."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import opt_einsum

from dace_redist.einsum.expression import Einsum
from dace_redist.einsum.statement import Statement

#: Maximum number of operands for an exhaustive search of the contraction order.
MAX_OPTIMAL_OPERANDS = 7
#: Maximum number of intermediates for which every grouping is tried.
MAX_FREE_INTERMEDIATES = 7
#: Minimum operations per element of an intermediate; below, the contraction is memory-bound.
MIN_FLOPS_PER_ELEMENT = 16


@dataclasses.dataclass(frozen=True)
class ContractionStep:
    """
    A node of a contraction tree.

    :param children: Operands: operands of the statement by their numbers; earlier steps, numbered after these.
    :param result: Indices of the result.
    :param indices: All indices of the operands.
    """

    children: tuple[int, ...]
    result: str
    indices: str

    @property
    def flops_per_point(self) -> int:
        """Operations per point of the iteration space: a product for each further operand, an addition if it sums."""
        return max(len(self.children) - 1 + (len(self.indices) > len(self.result)), 1)

    def flops(self, extents: Mapping[str, int]) -> int:
        """Operations for these sizes."""
        return self.flops_per_point * math.prod(extents[index] for index in self.indices)


@dataclasses.dataclass(frozen=True)
class Part:
    """
    Contractions computed together on one grid, before the grid is known.

    :param einsum: Indices of the operands and of the result.
    :param operands: Operands and earlier parts, numbered as in :class:`ContractionStep`.
    :param number: Number of the result, that of its last step.
    :param steps: The pairwise steps of the local evaluation, the last one last.
    :param path: The steps as opt_einsum writes them.
    :param whole: Indices that are never split. If these are all indices, every rank computes the whole.
    :param equal: Pairs of equal indices of the only operand: only its diagonal is used.
    """

    einsum: Einsum
    operands: tuple[int, ...]
    number: int
    steps: tuple[ContractionStep, ...]
    path: tuple[tuple[int, ...], ...]
    whole: str = ""
    equal: tuple[tuple[str, str], ...] = ()


def linear_system(einsum: Einsum) -> Part:
    """
    Return a linear system, see :class:`Statement`, as one part: its matrix is never split.

    The factorisation of an n x n matrix counts as n^3 operations (2/3 n^3 exactly), each column as 2 n^2.

    :param einsum: Its indices.
    """
    count, matrix = len(einsum.operands), einsum.operands[0]
    columns = [index for index in einsum.result if index not in matrix] if count > 1 else [matrix[0]]
    factors = ContractionStep((0,), matrix, matrix + matrix[0])
    solution = ContractionStep((0, count - 1), einsum.result, matrix + "".join(columns))
    return Part(einsum, tuple(range(count)), count, (factors, solution), (), matrix)


def contraction_tree(
    statement: Statement, extents: Mapping[str, int], memory_elements: int | None = None
) -> tuple[ContractionStep, ...]:
    """
    Return the contraction order: diagonals and sums of single operands first, then the order of opt_einsum.

    An index of only one operand that the result lacks is summed over first. An operand with a repeated index is
    replaced by its diagonal.

    :param statement: A statement; with one operand, or elementwise, it is a single step.
    :param extents: Size of every index.
    :param memory_elements: Maximum elements of an intermediate.
    :return: The steps in topological order, with the indices of ``statement.einsum.distinct``.
    """
    einsum, _ = statement.einsum.distinct
    count = len(einsum.operands)
    if count == 1 or statement.elementwise:
        return (ContractionStep(tuple(range(count)), einsum.result, einsum.indices),)
    first = tuple(_alone(einsum))
    there = dict(enumerate(einsum.operands))
    for number, step in enumerate(first, count):
        there |= {number: step.result}
        del there[step.children[0]]
    numbers = sorted(there, key=lambda n: n if n < count else first[n - count].children[0])
    if count == 2:
        last = ContractionStep(tuple(numbers), einsum.result, _union(there[n] for n in numbers))
        return (*first, last)
    orders = [numbers, numbers[::-1]]  # ties are broken by the order of the operands
    trees = [(*first, *_tree(there, order, einsum.result, extents, memory_elements)) for order in orders]
    return min(trees, key=lambda tree: _effort(tree, einsum, extents))


def _alone(einsum: Einsum) -> Iterator[ContractionStep]:
    """Return the steps that take diagonals of operands, and sums over indices of only one operand."""
    for number, operand in enumerate(einsum.operands):
        elsewhere = set(einsum.result).union(*(o for n, o in enumerate(einsum.operands) if n != number))
        kept = "".join(index for index in operand if index in elsewhere)
        if kept != operand:
            yield ContractionStep((number,), kept, operand)


def _union(operands: Iterable[str]) -> str:
    return "".join(dict.fromkeys("".join(operands)))


def _tree(
    there: Mapping[int, str],
    order: Sequence[int],
    result: str,
    extents: Mapping[str, int],
    memory_elements: int | None,
) -> tuple[ContractionStep, ...]:
    """Return the steps of opt_einsum for operands by their numbers, taken in the given order."""
    operands = [there[number] for number in order]
    path, _ = opt_einsum.contract_path(
        f"{','.join(operands)}->{result}",
        *[tuple(extents[index] for index in operand) for operand in operands],
        shapes=True,
        optimize="optimal" if len(operands) <= MAX_OPTIMAL_OPERANDS else "auto",
        memory_limit=memory_elements,
    )
    return _steps(there, order, result, path)


def _steps(
    operands: Mapping[int, str], order: Sequence[int], result: str, path: Sequence[Sequence[int]]
) -> tuple[ContractionStep, ...]:
    """Return the steps of a path of opt_einsum over the operands in the given order."""
    there, names = list(order), dict(operands)
    steps: list[ContractionStep] = []
    for positions in path:
        children = sorted(there.pop(position) for position in sorted(positions, reverse=True))
        wanted = set(result).union(*(names[number] for number in there)) if there else set(result)
        indices = _union(names[child] for child in children)
        made = _intermediate([names[child] for child in children], wanted) if there else result
        number = max(names) + 1
        names[number] = made
        there.append(number)
        steps.append(ContractionStep(tuple(children), made, indices))
    return tuple(steps)


def _intermediate(operands: Sequence[str], wanted: set[str]) -> str:
    """
    Return an index order of an intermediate for which its product needs no transposes, if one exists.

    The indices of the longest operand keep their order. Those of the others replace the first summed index
    (``ijkle,ld->ijkde``), or come last. Without a sum, common indices come last (``ja,ka->jka``).
    """
    longest = max(operands, key=len)
    summed = [index for index in longest if index not in wanted]
    others = "".join(dict.fromkeys(i for o in operands for i in o if i in wanted and i not in longest))
    if summed:
        words = "".join(others if index == summed[0] else index for index in longest)
    else:
        common = [index for index in longest if sum(index in operand for operand in operands) > 1]
        words = "".join(index for index in longest if index not in common) + others + "".join(common)
    return "".join(dict.fromkeys(index for index in words if index in wanted))


def _effort(tree: Sequence[ContractionStep], einsum: Einsum, extents: Mapping[str, int]) -> tuple[int, int]:
    """Return the number of operations, in total and in contractions whose operands must be transposed first."""
    names = dict(enumerate(einsum.operands)) | {len(einsum.operands) + n: step.result for n, step in enumerate(tree)}
    flops = [step.flops(extents) for step in tree]
    awkward = [not _fits_matrix_product([names[c] for c in step.children], step.result) for step in tree]
    return sum(flops), sum(itertools.compress(flops, awkward))


def _fits_matrix_product(operands: Sequence[str], result: str) -> bool:
    """True if the summed indices are adjacent, and in the same order, in each operand."""
    summed = "".join(index for index in operands[0] if index not in result)
    return all(summed in operand for operand in operands)


def passes_unhidden(tree: Sequence[ContractionStep], operands: int, extents: Mapping[str, int]) -> dict[int, int]:
    """
    Return the memory traffic, in elements, of each intermediate whose contraction is memory-bound.

    :param tree: The steps.
    :param operands: Number of operands of the statement.
    :param extents: Size of every index.
    :return: By number of the intermediate; 0 if the contraction is compute-bound. Intermediates made of a single
        operand are left out.
    """
    costs = {}
    for number, step in enumerate(tree[:-1], operands):
        if len(step.children) == 1:
            continue
        consumer = next(other for other in tree if number in other.children)
        size = math.prod(extents[index] for index in step.result)
        least = min(step.flops(extents), consumer.flops(extents))
        costs[number] = 2 * size if least < MIN_FLOPS_PER_ELEMENT * size else 0
    return costs


def groupings(
    tree: Sequence[ContractionStep], einsum: Einsum, unhidden: Mapping[int, int]
) -> Iterator[tuple[Part, ...]]:
    """
    Yield the divisions of the contractions into connected groups, the largest number of groups first.

    With more than ``MAX_FREE_INTERMEDIATES`` intermediates, a memory-bound intermediate is never stored: the
    contractions that write and read it are in one group.

    :param tree: The steps.
    :param einsum: The statement's einsum.
    :param unhidden: From :func:`passes_unhidden`.
    :return: Parts in topological order.
    """
    inner, (einsum, equal) = list(unhidden), einsum.distinct
    forced = [n for n in inner if unhidden[n]] if len(inner) > MAX_FREE_INTERMEDIATES else []
    free = [number for number in inner if number not in forced]
    for size in range(len(free) + 1 if len(free) <= MAX_FREE_INTERMEDIATES else 1):
        for chosen in itertools.combinations(free, size):
            parts = _parts(tree, einsum, {*forced, *chosen})
            yield tuple(dataclasses.replace(part, equal=_equal(part.einsum, equal)) for part in parts)


def _equal(einsum: Einsum, equal: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((place, index) for place, index in equal.items() if place in einsum.indices)


def _parts(tree: Sequence[ContractionStep], einsum: Einsum, merged: set[int]) -> tuple[Part, ...]:
    count = len(einsum.operands)
    names = dict(enumerate(einsum.operands)) | {count + n: step.result for n, step in enumerate(tree)}
    parts = []
    for number in range(count, count + len(tree)):
        if number in merged:
            continue
        inside = sorted(_inside(tree, number, count, merged))
        operands = sorted(
            (c for n in inside for c in tree[n - count].children if c not in inside), key=_first(tree, count)
        )
        there, path = list(operands), []
        for n in inside:
            positions = sorted(there.index(child) for child in tree[n - count].children)
            for position in reversed(positions):
                there.pop(position)
            there.append(n)
            path.append(tuple(positions))
        steps = tuple(tree[n - count] for n in inside)
        own = Einsum(tuple(names[c] for c in operands), names[number])
        parts.append(Part(own, tuple(operands), number, steps, tuple(path)))
    return tuple(parts)


def _first(tree: Sequence[ContractionStep], count: int) -> Callable[[int], int]:
    """Return a sort key of operands and intermediates: the first operand of the statement that they contain."""

    def first(number: int) -> int:
        return number if number < count else min(map(first, tree[number - count].children))

    return first


def _inside(tree: Sequence[ContractionStep], number: int, count: int, merged: set[int]) -> Iterator[int]:
    """Return the steps of the part that ends with a step."""
    yield number
    for child in tree[number - count].children:
        if child in merged:
            yield from _inside(tree, child, count, merged)
