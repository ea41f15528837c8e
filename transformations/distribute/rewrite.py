"""Rewriting of statements by rules: equal types, transposed operands, reduced products, common subexpressions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import replace
from string import ascii_letters
from typing import TypeAlias

import numpy as np
from dace import SDFG, dtypes, symbolic

from dace_redist.einsum.expression import Einsum, canonical
from dace_redist.einsum.statement import Statement
from dace_redist.library_nodes import Contraction, LinearSolve
from dace_redist.transformations.distribute.ir import (
    Assignment,
    Block,
    Body,
    Item,
    Move,
    Operation,
    common_type,
    equal,
    is_complex,
    logical_shape,
    names_of,
    operations,
    written_by,
)

Items: TypeAlias = list[Item] | None
#: Function of the items of a block before a statement, the statement, the items after it, and the tensors that must be
#: computed. It returns the items of the block after the rule was applied; None if it does not apply.
Rule: TypeAlias = Callable[[list[Item], Statement, list[Item], Collection[str]], Items]


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
    def inside(block: Block) -> Block:
        return replace(block, bodies=tuple(_apply(rule, inner, kept) for inner in block.bodies))

    items = [inside(item) if isinstance(item, Block) else item for item in body]
    position = 0
    while position < len(items):
        before, item, after = items[:position], items[position], items[position + 1 :]
        changed = rule(before, item, after, kept) if isinstance(item, Statement) else None
        if changed is None:
            position += 1
        else:  # the rule may apply to its result, which moves up where an earlier item was removed
            items, position = changed, max(position - 1, 0)
    return tuple(items)


def _used_in_several_blocks(body: Body) -> set[str]:
    """Return the tensors that are used inside and outside of a loop or branch, or in several of them."""
    inside = [block for item in body if isinstance(item, Block) for block in item.bodies]
    outside: list[Operation] = [item for item in body if isinstance(item, Operation)]
    blocks = Counter(name for block in (outside, *inside) for name in names_of(block))
    shared = {name for name, count in blocks.items() if count > 1}
    return shared.union(*map(_used_in_several_blocks, inside))


def equal_types(sdfg: SDFG) -> Rule:
    """
    Return a rule that converts operands and results to the type in which NumPy computes: BLAS requires equal types.

    The rule raises an error for types without arithmetic, and for complex results that would be stored as real ones.
    """

    def rule(before: list[Item], statement: Statement, after: list[Item], _: Collection[str]) -> Items:
        if statement.elementwise or statement.reduction:
            return None
        converted = list(_converted(statement, sdfg))
        return [*before, *converted, *after] if len(converted) > 1 else None

    return rule


def check_copies(body: Body, sdfg: SDFG) -> None:
    """Raise an error for moves and copies of complex numbers to real tensors."""
    for operation in operations(body):
        result = sdfg.arrays[operation.result].dtype
        if (isinstance(operation, Move) or _copies(operation)) and not is_complex(result):
            if any(is_complex(sdfg.arrays[name].dtype) for name in operation.read):
                raise _not_real(operation, result)


def _not_real(operation: Statement | Move, dtype: dtypes.typeclass) -> ValueError:
    return ValueError(
        f"{operation.label}: complex numbers would be written to elements of {dtype.to_string()}; take their real "
        "part, as in np.real(A)"
    )


def _copies(statement: Statement) -> bool:
    """Return True for a copy, including copies that DaCe makes for expressions and for ``astype``."""
    if statement.code is None:
        return False
    copied = re.fullmatch(r"\w+ = (?:dace\.\w+)?\(?(\w+)\)?", statement.code.text.strip())
    return copied is not None and copied[1] in statement.code.inputs


def _converted(statement: Statement, sdfg: SDFG) -> Iterator[Statement]:
    common = _type_to_compute_with(statement, sdfg)

    def of_common_type(name: str) -> str:
        array = sdfg.arrays[name]
        return name if array.dtype == common else str(sdfg.add_temp_transient(logical_shape(array) or [1], common)[0])

    def copy(source: str, target: str) -> Statement:
        return Statement.copy(source, target, len(logical_shape(sdfg.arrays[target])), **statement.place)

    operands, result = tuple(map(of_common_type, statement.operands)), of_common_type(statement.result)
    for name, operand in zip(statement.operands, operands, strict=True):
        if name != operand:
            yield copy(name, operand)
    yield replace(statement, operands=operands, result=result)
    if result != statement.result:
        yield copy(result, statement.result)


def _type_to_compute_with(statement: Statement, sdfg: SDFG) -> dtypes.typeclass:
    """Return the type that holds all operands and the result."""
    types = [sdfg.arrays[name].dtype for name in (*statement.operands, statement.result)]
    possible = (LinearSolve if statement.solves else Contraction).element_types
    if all(dtype == types[0] for dtype in types) and types[0] in possible:
        return types[0]
    common = common_type(types)
    if common.type is np.bool_ and _moves_only(statement, sdfg):
        return dtypes.uint8
    if common not in possible:
        known = ", ".join(dtype.to_string() for dtype in possible)
        raise ValueError(
            f"{statement.label}: cannot compute with elements of {common.to_string()}; convert them to one of {known}"
        )
    if is_complex(common) and not is_complex(types[-1]):
        raise _not_real(statement, types[-1])
    return common


def _moves_only(statement: Statement, sdfg: SDFG) -> bool:
    """Return True for an einsum that computes nothing: it permutes dimensions, or takes a diagonal."""
    if len(statement.operands) != 1:
        return False
    shape = logical_shape(sdfg.arrays[statement.operands[0]])
    extents = zip(statement.einsum.operands[0], shape, strict=True)
    return all(equal(extent, 1) for index, extent in extents if index in statement.einsum.summed)


def fold_transposes(before: list[Item], transpose: Statement, after: list[Item], kept: Collection[str]) -> Items:
    """
    Make ``A.T @ B`` one einsum.

    A transposed copy is kept if an elementwise statement or another block reads it, or a statement after the next
    write to the tensor it was copied from.
    """
    if not _is_transpose(transpose) or transpose.result in {*kept, *names_of(before)}:
        return None
    (original,), copied = transpose.operands, transpose.result
    changed = False
    for item in after:
        foldable = isinstance(item, Statement) and not changed and (item.is_product or item.solves)
        if (copied in names_of([item]) and not foldable) or copied in written_by(item):
            return None
        changed = changed or original in written_by(item)
    return [*before, *(_reading_through(item, transpose) for item in after)]


def _is_transpose(statement: Statement) -> bool:
    einsum = statement.einsum
    if len(einsum.operands) != 1 or not statement.is_product or not symbolic.equal_valued(1, statement.alpha):
        return False
    return sorted(einsum.operands[0]) == sorted(einsum.result) and not einsum.repeated


def _reading_through(item: Item, transpose: Statement) -> Item:
    """Return the item with the transposed copy replaced by the original, under permuted indices."""
    if not isinstance(item, Statement) or transpose.result not in item.operands:
        return item
    source, target = transpose.einsum.operands[0], transpose.einsum.result
    names, terms = list(item.operands), list(item.einsum.operands)
    for number, name in enumerate(names):
        if name == transpose.result:
            letters = dict(zip(target, terms[number], strict=True))
            terms[number] = "".join(letters[index] for index in source)
            names[number] = transpose.operands[0]
    return replace(item, einsum=Einsum(tuple(terms), item.einsum.result), operands=tuple(names))


def fuse_reductions(before: list[Item], reduction: Statement, after: list[Item], kept: Collection[str]) -> Items:
    """Make one einsum of a product and the sum or diagonal that is its only use: ``np.trace(A @ B)`` is ``ij,ji->``."""
    einsum = reduction.einsum
    if len(einsum.operands) != 1 or not reduction.is_product or not (einsum.summed or einsum.repeated):
        return None
    (name,) = reduction.operands
    product = None if name in kept else _unchanged_product(before, name)
    uses = [name for other in operations([*before, *after]) for name in (*other.read, other.result)].count(name)
    if product is None or uses > 1:
        return None
    fused = _fused(product, reduction)
    return fused and [*(item for item in before if item is not product), fused, *after]


def earlier(items: list[Item]) -> Iterator[tuple[Statement, set[str]]]:
    """Yield statements, the last one first, with the tensors written since; none before an assignment to a symbol."""
    changed: set[str] = set()
    for item in reversed(items):
        if isinstance(item, Assignment):  # values and factors may depend on the symbol that changes
            return
        if isinstance(item, Statement):
            yield item, changed
        changed |= written_by(item)


def _unchanged_product(items: list[Item], name: str) -> Statement | None:
    """Return the last product that is ``name``, if its operands have not changed since."""
    item, changed = next((found for found in earlier(items) if found[0].result == name), (None, set()))
    return item if item and item.is_product and not {name, *changed} & set(item.operands) else None


def _fused(product: Statement, reduction: Statement) -> Statement | None:
    inner, outer = product.einsum, reduction.einsum
    names = dict(zip(inner.result, outer.operands[0], strict=True))
    free = [letter for letter in ascii_letters if letter not in outer.indices]
    if len(free) < len(inner.summed):  # an einsum has at most 52 indices
        return None
    names |= dict(zip(inner.summed, free, strict=False))
    terms = tuple("".join(names[index] for index in operand) for operand in inner.operands)
    alpha = product.alpha * reduction.alpha
    return replace(reduction, einsum=Einsum(terms, outer.result), operands=product.operands, alpha=alpha)


def share_subexpressions(sdfg: SDFG) -> Rule:
    """
    Return a rule that computes common subexpressions once: later statements read the first result.

    A tensor that is kept, or written several times, becomes a copy, if it is not an elementwise statement's result.
    """

    def rule(before: list[Item], statement: Statement, after: list[Item], kept: Collection[str]) -> Items:
        first = _computed_before(before, statement, sdfg)
        if first is None:
            return None
        name, items = statement.result, [*before, statement, *after]
        writes = Counter(operation.result for operation in operations(items))
        moved = {tensor for item in items if isinstance(item, Move) for tensor in item.names}
        if name not in {*kept, *moved, *names_of(before)} and writes[name] == writes[first.result] == 1:
            return [*before, *(_reading(item, name, first.result) for item in after)]
        if statement.elementwise:
            return None
        copy = Statement.copy(first.result, name, len(statement.einsum.result), **statement.place)
        return [*before, copy, *after]

    return rule


def _computed_before(before: list[Item], statement: Statement, sdfg: SDFG) -> Statement | None:
    """Return an earlier statement of equal value whose operands and result have not changed since."""
    value = _value(statement, sdfg)
    for item, changed in earlier(before):
        if (
            Counter(item.operands) == Counter(statement.operands)
            and item.result not in {*item.operands, *changed}
            and not changed & set(item.operands)
            and _value(item, sdfg) == value
        ):
            return item
    return None


def _value(statement: Statement, sdfg: SDFG) -> Hashable:
    """Return the value of a statement, as a key: statements with equal keys have equal results."""
    ordered = statement.elementwise or statement.solves
    operands = [(name, number if ordered else 0) for number, name in enumerate(statement.operands)]
    terms = list(zip(operands, statement.einsum.operands, strict=True))
    alpha = float(statement.alpha) if symbolic.issymbolic(statement.alpha) is False else str(statement.alpha)
    how = (statement.elementwise, statement.solves, statement.reduction, alpha, str(statement.code))
    return canonical(terms, statement.einsum.result), how, sdfg.arrays[statement.result].dtype.to_string()


def _reading(item: Item, name: str, other: str) -> Item:
    if not isinstance(item, Statement):
        return item
    return replace(item, operands=tuple(other if operand == name else operand for operand in item.operands))
