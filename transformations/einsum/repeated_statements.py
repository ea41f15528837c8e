"""Computes once what several statements compute of the same tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable
from dataclasses import replace
from string import ascii_letters

from dace import SDFG, symbolic

from dace_redist.einsum.expression import Einsum
from dace_redist.einsum.shared_steps import canonical
from dace_redist.transformations.einsum.steps import Assignment, Body, Item, Step, all_steps, with_blocks
from dace_redist.transformations.einsum.transposed_operands import used_in_several_blocks


def without_repeats(body: Body, kept: Collection[str], sdfg: SDFG) -> tuple[Item, ...]:
    """
    The same statements, each that was computed before read from there.

    A tensor that is kept becomes a copy, if it is an einsum's result.

    :param body: The program.
    :param kept: Tensors that the caller gets.
    :param sdfg: Has their types.
    """
    moved = {name for step in all_steps(body) if step.moved is not None for name in step.names}
    return _in_block(body, {*kept, *moved, *used_in_several_blocks(body)}, sdfg)


def _in_block(body: Body, kept: Collection[str], sdfg: SDFG) -> tuple[Item, ...]:
    writes = Counter(step.statement.result for step in all_steps(body))
    known: dict[Hashable, Step] = {}
    names: dict[str, str] = {}
    items: list[Item] = []
    seen: set[str] = set()
    for item in body:
        if isinstance(item, Assignment):  # another value of a symbol may be part of what is computed
            known = {}
        if not isinstance(item, Step) or item.moved is not None:
            item = with_blocks(item, lambda block: _in_block(block, kept, sdfg))
            changed = {step.statement.result for step in all_steps([item])}
        else:
            item = _reading(item, names)
            name, key = item.statement.result, _computed(item, sdfg)
            first = known.get(key)
            if first is not None and name not in {*kept, *seen} and writes[name] == writes[first.statement.result] == 1:
                names[name] = first.statement.result
                continue
            changed = {name}
            if first is None and name not in item.statement.operands:
                known[key] = item
            elif first is not None and not item.statement.elementwise:
                item = _copied(item, first.statement.result)
        seen |= {name for step in all_steps([item]) for name in step.names}
        known = {key: step for key, step in known.items() if step is item or not changed & step.names}
        items.append(item)
    return tuple(items)


def _reading(step: Step, names: dict[str, str]) -> Step:
    """The step with other names of operands."""
    operands = tuple(names.get(name, name) for name in step.statement.operands)
    return replace(step, statement=replace(step.statement, operands=operands))


def _computed(step: Step, sdfg: SDFG) -> Hashable:
    """What a step computes, and with which elements: the same for steps whose results are the same."""
    statement = step.statement
    ordered = statement.elementwise or statement.solves
    operands = [(name, number if ordered else 0) for number, name in enumerate(statement.operands)]
    terms = list(zip(operands, statement.einsum.operands, strict=True))
    alpha = float(step.alpha) if symbolic.issymbolic(step.alpha) is False else str(step.alpha)
    how = (statement.elementwise, statement.solves, alpha, step.code, step.inputs, step.output, step.reduction)
    how = (*how, tuple((name, index, str(first)) for name, (index, first) in step.indices.items()))
    return canonical(terms, statement.einsum.result), how, sdfg.arrays[statement.result].dtype.to_string()


def _copied(step: Step, source: str) -> Step:
    """The step as a copy of what another one computed."""
    indices = ascii_letters[: len(step.statement.einsum.result)]
    statement = replace(
        step.statement, einsum=Einsum((indices,), indices), operands=(source,), elementwise=True, solves=False
    )
    return Step(statement, 1, "_out = _in", ("_in",), "_out")
