"""Reads operands that are transposed copies of other tensors from those: the copy is then not made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from dace_redist.einsum.expression import Einsum
from dace_redist.transformations.einsum.steps import Body, Loop, Step, all_steps


def without_transposes(body: Body, kept: Sequence[str]) -> tuple[Step | Loop, ...]:
    """
    The same statements, with ``A.T @ B`` as one einsum.

    A transposed copy stays where an elementwise statement reads it, or a later one than the next write to the
    tensor it was copied from.

    :param body: Statements and loops.
    :param kept: Tensors that the caller gets; they are always computed.
    """
    return _folded(body, {*kept, *used_in_several_blocks(body)})


def used_in_several_blocks(body: Body) -> set[str]:
    """Tensors that are used inside and outside of a loop, or in several loops."""
    found: set[str] = set()
    inside = [_names(item.body) for item in body if isinstance(item, Loop)]
    blocks = [_names([item for item in body if not isinstance(item, Loop)]), *inside]
    for number, names in enumerate(blocks):
        found |= names & set().union(*blocks[:number])
    return found.union(*(used_in_several_blocks(item.body) for item in body if isinstance(item, Loop)))


def _names(body: Body) -> set[str]:
    return {name for step in all_steps(body) for name in (*step.statement.operands, step.statement.result)}


def _folded(body: Body, kept: Collection[str]) -> tuple[Step | Loop, ...]:
    items = list(body)
    position = 0
    while position < len(items):
        item = items[position]
        if isinstance(item, Loop):
            items[position] = replace(item, body=_folded(item.body, kept))
        elif _is_transpose(item) and item.statement.result not in kept and _can_be_read_through(items, position):
            del items[position]
            items[position:] = [_reading_through(later, item) for later in items[position:]]
            continue
        position += 1
    return tuple(items)


def _is_transpose(step: Step) -> bool:
    statement, (operand, *others) = step.statement, step.statement.einsum.operands
    if others or statement.elementwise or statement.solves or step.alpha != 1:
        return False
    return sorted(operand) == sorted(statement.einsum.result) and not statement.einsum.repeated


def _can_be_read_through(items: Sequence[Step | Loop], position: int) -> bool:
    """Whether no elementwise statement and no other block reads the copy, and none after the original changes."""
    transpose = items[position]
    assert isinstance(transpose, Step)
    original, copied = transpose.statement.operands[0], transpose.statement.result
    if any(
        step.statement.result == copied or copied in step.statement.operands for step in all_steps(items[:position])
    ):
        return False
    changed = False
    for item in items[position + 1 :]:
        steps = list(all_steps([item]))
        uses = any(copied in step.statement.operands for step in steps)
        if uses and (changed or isinstance(item, Loop) or steps[0].statement.elementwise):
            return False
        if any(step.statement.result == copied for step in steps):
            return False
        changed = changed or any(step.statement.result == original for step in steps)
    return True


def _reading_through(item: Step | Loop, transpose: Step) -> Step | Loop:
    """The item with operands read from the original, under permuted indices."""
    if isinstance(item, Loop) or transpose.statement.result not in item.statement.operands:
        return item
    source, target = transpose.statement.einsum.operands[0], transpose.statement.einsum.result
    names, indices = list(item.statement.operands), list(item.statement.einsum.operands)
    for number, name in enumerate(names):
        if name == transpose.statement.result:
            letters = dict(zip(target, indices[number], strict=True))
            indices[number] = "".join(letters[index] for index in source)
            names[number] = transpose.statement.operands[0]
    einsum = Einsum(tuple(indices), item.statement.einsum.result)
    return replace(item, statement=replace(item.statement, einsum=einsum, operands=tuple(names)))
