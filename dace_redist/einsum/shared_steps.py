"""Common subexpressions of a program: equal contractions are computed once. Start reading at: SharedSteps."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from string import ascii_letters
from typing import Any

from dace_redist.einsum.order import ContractionStep
from dace_redist.einsum.program import EinsumStep
from dace_redist.einsum.statement import Statement


def canonical(operands: Sequence[tuple[Any, str]], result: str) -> tuple[Any, ...]:
    """
    Return the canonical form of an einsum, equal for equal results: operands sorted, indices renamed in order.

    :param operands: Identity and indices of each operand.
    :param result: Indices of the result.
    """
    ordered = sorted(operands, key=repr)
    letters = dict(zip(dict.fromkeys("".join(term for _, term in ordered)), ascii_letters, strict=False))
    terms = tuple("".join(letters[index] for index in term) for _, term in ordered)
    return tuple(name for name, _ in ordered), terms, "".join(letters[index] for index in result)


class SharedSteps:
    """
    Intermediates that several contractions of a program use, within a statement or across statements.

    After a write a tensor counts as another one. Intermediates are not shared between different loops.

    :param statements: The program.
    :param trees: The contractions of each statement, none for linear systems.
    """

    def __init__(self, statements: Sequence[Statement], trees: Sequence[Sequence[ContractionStep]]) -> None:
        written: Counter[str] = Counter()
        self._computed: list[dict[int, Hashable]] = []
        for statement, tree in zip(statements, trees, strict=True):
            self._computed.append(_intermediates(statement, tree, written))
            written[statement.result] += 1
        often = Counter(key for found in self._computed for key in found.values())
        #: For each statement the numbers of its shared intermediates.
        self.numbers = [{number for number, key in found.items() if often[key] > 1} for found in self._computed]

    def once(self, steps: Sequence[EinsumStep]) -> tuple[EinsumStep, ...]:
        """Return the groups of the program; of equal intermediates stored by groups, only the first is computed."""
        kept: list[EinsumStep] = []
        first: dict[Hashable, str] = {}
        names: dict[str, str] = {}
        for step in steps:
            number = step.part.number
            if number in self.numbers[step.statement]:
                names[step.result] = first.setdefault(self._computed[step.statement][number], step.result)
            if names.get(step.result, step.result) == step.result:
                operands = tuple(names.get(name, name) for name in step.operands)
                kept.append(dataclasses.replace(step, operands=operands))
        return _without_unread(kept)


def _intermediates(
    statement: Statement, tree: Sequence[ContractionStep], written: Mapping[str, int]
) -> dict[int, Hashable]:
    """Return a key of each intermediate of a statement, by its number; equal keys mean equal tensors."""
    einsum, equal = statement.einsum.distinct
    known: dict[int, Any] = {n: (name, written.get(name, 0)) for n, name in enumerate(statement.operands)}
    terms = dict(enumerate(einsum.operands))
    for number, step in enumerate(tree, len(einsum.operands)):
        children = [(known[c], "".join(equal.get(index, index) for index in terms[c])) for c in step.children]
        known[number], terms[number] = canonical(children, step.result), step.result
    count = len(einsum.operands)
    return {number: (statement.loops, known[number]) for number in range(count, count + len(tree) - 1)}


def _without_unread(steps: Sequence[EinsumStep]) -> tuple[EinsumStep, ...]:
    """Remove intermediates that no step reads any more."""
    last = {step.statement: step.result for step in steps}
    kept: list[EinsumStep] = []
    read: set[str] = set()
    for step in reversed(steps):
        if step.result in read or step.result == last[step.statement]:
            kept.append(step)
            read |= set(step.operands)
    return tuple(reversed(kept))
