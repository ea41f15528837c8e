"""Rewriting of the statements of a program by rules, block by block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from dace_redist.einsum.statement import Statement
from dace_redist.transformations.distribute.ir import Body, Item, Operation, blocks_of, operations, with_blocks

#: Function of the items of a block before a statement, the statement, the items after it, and the tensors that must be
#: computed. It returns the items of the block after the rule was applied; None if it does not apply.
Rule: TypeAlias = Callable[[list[Item], Statement, list[Item], Collection[str]], list[Item] | None]


def rewrite(body: Body, rules: Sequence[Rule], kept: Collection[str] = ()) -> tuple[Item, ...]:
    """
    Apply rules to a program, one after the other, each until it applies to no statement.

    A rule sees one block: the items of the program, of a loop, or of a branch, with loops and branches as items.

    :param kept: Tensors that must be computed under their names, in addition to those used in several blocks.
    """
    for rule in rules:
        body = _apply(rule, body, {*kept, *_used_in_several_blocks(body)})
    return tuple(body)


def _apply(rule: Rule, body: Body, kept: Collection[str]) -> tuple[Item, ...]:
    items = [with_blocks(item, lambda block: _apply(rule, block, kept)) for item in body]
    position = 0
    while position < len(items):
        item, changed = items[position], None
        if isinstance(item, Statement):
            changed = rule(items[:position], item, items[position + 1 :], kept)
        if changed is None:
            position += 1
        else:  # the rule may apply to its result, which moves up where an earlier item was removed
            items, position = changed, max(position - 1, 0)
    return tuple(items)


def names_of(body: Body) -> set[str]:
    """Return the names of all tensors that are used."""
    return {name for operation in operations(body) for name in operation.names}


def written_by(item: Item) -> set[str]:
    """Return the names of the tensors that an item, or what is in it, writes."""
    return {operation.result for operation in operations([item])}


def _used_in_several_blocks(body: Body) -> set[str]:
    """Return the tensors that are used inside and outside of a loop or branch, or in several of them."""
    inside = [block for item in body for block in blocks_of(item)]
    outside: list[Operation] = [item for item in body if isinstance(item, Operation)]
    shared: set[str] = set()
    seen: set[str] = set()
    for names in (names_of(outside), *map(names_of, inside)):
        shared |= names & seen
        seen |= names
    return shared.union(*map(_used_in_several_blocks, inside))
