"""Contraction order of a statement. Start reading at: contraction_steps."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dace_redist.einsum.expression import Einsum
from dace_redist.einsum.statement import Statement

#: Maximum number of operands for an exhaustive search of the contraction order.
MAX_OPTIMAL_OPERANDS = 7


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


def contraction_steps(
    statement: Statement, extents: Mapping[str, int], memory_elements: int | None = None
) -> tuple[ContractionStep, ...]:
    """
    Return the contraction order: diagonals and sums of single operands first, then the order of opt_einsum.

    An index of only one operand that the result lacks is summed over first. An operand with a repeated index is
    replaced by its diagonal. With one operand, or elementwise, a statement is a single step.

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
    operands: Mapping[int, str],
    order: Sequence[int],
    result: str,
    extents: Mapping[str, int],
    memory_elements: int | None,
) -> Iterator[ContractionStep]:
    """Yield the steps of opt_einsum for operands by their numbers, taken in the given order."""
    import opt_einsum

    terms = [operands[number] for number in order]
    path, _ = opt_einsum.contract_path(
        f"{','.join(terms)}->{result}",
        *[tuple(extents[index] for index in term) for term in terms],
        shapes=True,
        optimize="optimal" if len(terms) <= MAX_OPTIMAL_OPERANDS else "auto",
        memory_limit=memory_elements,
    )
    there, names = list(order), dict(operands)
    for positions in path:
        children = sorted(there.pop(position) for position in sorted(positions, reverse=True))
        own, wanted = [names[child] for child in children], set(result).union(*(names[number] for number in there))
        number = max(names) + 1
        names[number] = _intermediate(own, wanted) if there else result
        there.append(number)
        yield ContractionStep(tuple(children), names[number], _union(own))


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
