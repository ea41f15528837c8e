"""Statement of a program over whole tensors, the input of the planner, and the order of its contractions."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import ascii_letters
from typing import Any, NamedTuple

from dace_redist.einsum.expression import Einsum


@dataclasses.dataclass(frozen=True)
class Code:
    """
    Python code of an elementwise statement.

    :param text: One assignment, as in ``"_out = _a + 2 * _b"``.
    :param inputs: Name in ``text`` of each operand that is read. If the operands lack an index of the result, as for
        constants and broadcasts, the statement has its result as a further operand, which is not read.
    :param output: Name in ``text`` of the result.
    :param indices: Names in ``text`` of indices of the result: the name, the index, and the index's first value.
    """

    text: str
    inputs: tuple[str, ...]
    output: str
    indices: tuple[tuple[str, str, Any], ...] = ()


COPY = Code("_out = _in", ("_in",), "_out")


class Loop(NamedTuple):
    """
    Loop around statements; the branches of a condition, of which one runs; or one of these branches.

    :param name: Unique in the program.
    :param iterations: Mean number of its iterations.
    :param is_branch: True for one of several branches, around which is a loop of one iteration.
    """

    name: str
    iterations: float = 1
    is_branch: bool = False


def repeats_in(loops: Iterable[Loop]) -> int:
    """Return the number of runs, at least 1, of what is in loops."""
    return max(1, round(math.prod(loop.iterations for loop in loops)))


@dataclasses.dataclass(frozen=True)
class Statement:
    """
    An einsum, an elementwise expression, or a linear system, on whole tensors.

    :param einsum: Indices of the operands and of the result.
    :param operands: Name of each operand's tensor; a tensor may occur twice.
    :param result: Name of the tensor that is written.
    :param where: File, line and text of the statement, for error messages.
    :param elementwise: True for an expression such as ``2 * A + B``; no index is summed over. An index in
        ``whole`` that the result lacks is that of an operand any of whose elements along it may be read.
    :param solves: True for the solution of a linear system: ``ij,ik->jk`` or ``ij,i->j`` is the X of
        ``G X = B``, ``ij->ji`` the inverse of G.
    :param loops: Loops and branches around it, the outermost first.
    :param alpha: Factor of a product.
    :param beta: Factor of ``added``.
    :param added: Name of a tensor that is added to a product; empty for none, which the planner requires.
    :param reduction: ``"max"`` or ``"min"`` instead of a sum.
    :param code: Expression of an elementwise statement, whose inputs are the operands that are read.
    :param replicated: True if each rank computes the whole.
    :param whole: Indices that are never split.
    :param at_home: Names of the tensors that a copy of boxes reads at their homes. Its operands are then not read, and
        its result is written at home.
    :raises ValueError: If the number of operands differs from the einsum, an elementwise statement sums, or the indices
        are not those of a linear system.
    """

    einsum: Einsum
    operands: tuple[str, ...]
    result: str
    where: str = ""
    elementwise: bool = False
    loops: tuple[Loop, ...] = ()
    solves: bool = False
    alpha: Any = 1
    beta: Any = 0
    added: str = ""
    reduction: str = ""
    code: Code | None = None
    replicated: bool = False
    whole: str = ""
    at_home: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.operands) != len(self.einsum.operands):
            raise ValueError(
                f"{self.label}: the einsum has {len(self.einsum.operands)} operands, got {len(self.operands)} tensors"
            )
        if self.elementwise and ({*self.einsum.summed} - {*self.whole} or self.einsum.repeated):
            raise ValueError(
                f"{self.label}: an elementwise statement neither sums nor takes a diagonal, "
                f"but this one does over {self.einsum.summed or self.einsum.repeated!r}"
            )
        if self.solves and (self.elementwise or not _is_linear_system(self.einsum)):
            raise ValueError(
                f"{self.label}: expected a linear system, as ij,ik->jk, ij,i->j or ij->ji, got {self.einsum}"
            )

    @property
    def read(self) -> tuple[str, ...]:
        """Names of the tensors read, one per operand."""
        if self.at_home:
            return ()
        return self.operands if self.code is None else self.operands[: len(self.code.inputs)]

    @property
    def repeats(self) -> int:
        """Number of runs: the weight of its bytes and operations."""
        return repeats_in(self.loops)

    @property
    def names(self) -> set[str]:
        """Names of all tensors of the statement."""
        return {*self.operands, self.result}

    @property
    def is_product(self) -> bool:
        """True for a product or sum of the operands."""
        return not (self.elementwise or self.solves or self.reduction)

    @classmethod
    def copy(cls, source: str, target: str, dimensions: int, **place: Any) -> Statement:
        """
        Return ``target = source``.

        :param place: ``where`` and ``loops``; further fields.
        """
        indices = ascii_letters[:dimensions]
        return cls(Einsum((indices,), indices), (source,), target, elementwise=True, code=COPY, **place)

    @property
    def place(self) -> dict[str, Any]:
        """Location and loops, as arguments of another statement at this place."""
        return {"where": self.where, "loops": self.loops}

    @property
    def label(self) -> str:
        """Name of the statement in error messages."""
        return self.where or f"{self.result} = einsum '{self.einsum}'"

    def extents(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """
        Return the size of every index, including those of ``einsum.distinct``.

        :param shapes: Shape of every tensor by name; the shape of the result is optional, and checked.
        :raises ValueError: If a shape is missing, has negative sizes, or is inconsistent; names the statement.
        """
        missing = [name for name in self.operands if name not in shapes]
        if missing:
            raise ValueError(f"{self.label}: the shape of {missing[0]!r} is missing")
        try:
            extents = self.einsum.extents([shapes[name] for name in self.operands])
        except ValueError as error:
            raise ValueError(f"{self.label}: {error}" if self.where else str(error)) from None
        for index, size in extents.items():
            if size < 0:
                raise ValueError(f"{self.label}: index {index!r} has size {size}, expected at least 0")
        if self.solves and len({extents[index] for index in self.einsum.operands[0]}) > 1:
            raise ValueError(f"{self.label}: {self.operands[0]!r} must be square, got {shapes[self.operands[0]]}")
        expected = tuple(extents[index] for index in self.einsum.result)
        if tuple(shapes.get(self.result, expected)) != expected:
            raise ValueError(
                f"{self.label}: the result {self.result!r} has shape {tuple(shapes[self.result])}, expected {expected}"
            )
        return extents | {place: extents[index] for place, index in self.einsum.distinct[1].items()}


def _is_linear_system(einsum: Einsum) -> bool:
    """True for ``G X = B`` or the inverse of G, in any order of each tensor's indices."""
    matrix, *right = einsum.operands
    if len(matrix) != 2 or len(set(matrix)) != 2 or len(right) > 1:
        return False
    if not right:
        return set(einsum.result) == set(matrix)
    rows, columns = set(matrix) & set(right[0]), set(right[0]) - set(matrix)
    if len(rows) != 1 or len(columns) > 1 or len(right[0]) != 1 + len(columns):
        return False
    return set(einsum.result) == (set(matrix) - rows) | columns


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
    statement: Statement, extents: Mapping[str, int], memory_elements: int | None, optimize: Any = "auto"
) -> tuple[ContractionStep, ...]:
    """
    Return the contraction order: diagonals and sums of single operands first, then the order of opt_einsum.

    An index of only one operand that the result lacks is summed over first. An operand with a repeated index is
    replaced by its diagonal. With one operand, or elementwise, a statement is a single step.

    :param memory_elements: Maximum elements of an intermediate.
    :param optimize: See :func:`dace_redist.einsum.plan_einsums`.
    :return: The steps in topological order, with the indices of ``statement.einsum.distinct``.
    """
    einsum, _ = statement.einsum.distinct
    count = len(einsum.operands)
    if count == 1 or statement.elementwise:
        points = einsum.result if statement.elementwise else einsum.indices
        return (ContractionStep(tuple(range(count)), einsum.result, points),)
    first = tuple(_alone(einsum))
    there = dict(enumerate(einsum.operands))
    for number, step in enumerate(first, count):
        there |= {number: step.result}
        del there[step.children[0]]
    numbers = sorted(there, key=lambda n: n if n < count else first[n - count].children[0])
    if count == 2:
        last = ContractionStep(tuple(numbers), einsum.result, _union(there[n] for n in numbers))
        return (*first, last)
    # Ties are broken by the order of the operands, to which a path refers.
    orders = [numbers, numbers[::-1]] if isinstance(optimize, str | bool) else [numbers]
    trees = [(*first, *_tree(there, order, einsum.result, extents, memory_elements, optimize)) for order in orders]
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
    optimize: Any,
) -> Iterator[ContractionStep]:
    """Yield the steps of opt_einsum for operands by their numbers, taken in the given order."""
    import opt_einsum

    terms = [operands[number] for number in order]
    if isinstance(optimize, str) and optimize == "auto" and len(terms) <= MAX_OPTIMAL_OPERANDS:
        optimize = "optimal"
    path, _ = opt_einsum.contract_path(
        f"{','.join(terms)}->{result}",
        *[tuple(extents[index] for index in term) for term in terms],
        shapes=True,
        optimize=optimize,
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
