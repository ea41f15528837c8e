"""Reads operands that are transposed copies of other tensors from those: the copy is then not made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeGuard

from dace import symbolic

from dace_redist.einsum.expression import Einsum
from dace_redist.transformations.einsum.steps import Body, Item, Step, all_steps, blocks_of, with_blocks


def without_transposes(body: Body, kept: Sequence[str]) -> tuple[Item, ...]:
    """
    The same statements, with ``A.T @ B`` as one einsum.

    A transposed copy stays where an elementwise statement reads it, or a later one than the next write to the
    tensor it was copied from.

    :param body: The program.
    :param kept: Tensors that the caller gets; they are always computed.
    """
    return _folded(body, {*kept, *used_in_several_blocks(body)})


def used_in_several_blocks(body: Body) -> set[str]:
    """Tensors that are used inside and outside of a loop, or in several loops."""
    found: set[str] = set()
    inside = [block for item in body for block in blocks_of(item)]
    blocks = [_names([item for item in body if not blocks_of(item)]), *map(_names, inside)]
    for number, names in enumerate(blocks):
        found |= names & set().union(*blocks[:number])
    return found.union(*map(used_in_several_blocks, inside))


def _names(body: Body) -> set[str]:
    return {name for step in all_steps(body) for name in step.names}


def _folded(body: Body, kept: Collection[str]) -> tuple[Item, ...]:
    items = list(body)
    position = 0
    while position < len(items):
        item = items[position]
        if blocks_of(item):
            items[position] = with_blocks(item, lambda block: _folded(block, kept))
        elif _is_transpose(item) and item.statement.result not in kept and _can_be_read_through(items, position):
            del items[position]
            items[position:] = [_reading_through(later, item) for later in items[position:]]
            continue
        position += 1
    return tuple(items)


def _is_transpose(step: Item) -> TypeGuard[Step]:
    if not isinstance(step, Step) or step.reduction or len(step.statement.operands) != 1:
        return False
    statement, (operand,) = step.statement, step.statement.einsum.operands
    if statement.elementwise or statement.solves or not symbolic.equal_valued(1, step.alpha):
        return False
    return sorted(operand) == sorted(statement.einsum.result) and not statement.einsum.repeated


def _can_be_read_through(items: Sequence[Item], position: int) -> bool:
    """Whether no elementwise statement and no other block reads the copy, and none after the original changes."""
    transpose = items[position]
    assert isinstance(transpose, Step)
    original, copied = transpose.statement.operands[0], transpose.statement.result
    if copied in _names(items[:position]):
        return False
    changed = False
    for item in items[position + 1 :]:
        steps = list(all_steps([item]))
        uses = copied in _names(steps)
        if uses and (changed or not isinstance(item, Step) or item.statement.elementwise or item.reduction):
            return False
        if any(step.statement.result == copied for step in steps):
            return False
        changed = changed or any(step.statement.result == original for step in steps)
    return True


def _reading_through(item: Item, transpose: Step) -> Item:
    """The item with operands read from the original, under permuted indices."""
    if not isinstance(item, Step) or transpose.statement.result not in item.statement.operands:
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
