"""Makes one einsum of a product and of the sum or diagonal that is all that is used of it: ``np.trace(A @ B)``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from string import ascii_letters

from dace_redist.einsum.expression import Einsum
from dace_redist.transformations.einsum.steps import Assignment, Body, Item, Step, all_steps, with_blocks
from dace_redist.transformations.einsum.transposed_operands import used_in_several_blocks


def without_reduced_products(body: Body, kept: Collection[str]) -> tuple[Item, ...]:
    """
    The same statements, with ``ij,jk->ik`` and ``ii->`` as ``ij,ji->``: the product itself is not computed.

    :param body: The program.
    :param kept: Tensors that are always computed.
    """
    return _in_block(body, {*kept, *used_in_several_blocks(body)})


def _in_block(body: Body, kept: Collection[str]) -> tuple[Item, ...]:
    items = [with_blocks(item, lambda block: _in_block(block, kept)) for item in body]
    uses = Counter(name for step in all_steps(items) for name in (*step.read, step.statement.result))
    position = 0
    while position < len(items):
        item = items[position]
        first = _product(items[:position], item) if isinstance(item, Step) and _is_reduction(item) else None
        if first is None or uses[items[first].statement.result] != 2 or items[first].statement.result in kept:
            position += 1
            continue
        items[position] = _joined(items[first], item)
        del items[first]  # and look at what was joined again: its operand may be such a product, too
        position -= 1
    return tuple(items)


def _is_reduction(step: Step) -> bool:
    """Whether it takes sums or diagonals of one tensor."""
    statement = step.statement
    one = len(statement.operands) == 1 and not statement.elementwise and not statement.solves and not step.reduction
    return one and bool(statement.einsum.summed or statement.einsum.repeated)


def _product(items: Sequence[Item], reduction: Step) -> int | None:
    """Where the operand of a reduction is computed as an einsum, of tensors that are still the same."""
    (name,) = reduction.statement.operands
    changed: set[str] = set()
    for position in range(len(items) - 1, -1, -1):
        item = items[position]
        if isinstance(item, Assignment):  # the factor of the product may have another value now
            return None
        if isinstance(item, Step) and item.statement.result == name:
            statement = item.statement
            is_einsum = not statement.elementwise and not statement.solves and not item.reduction
            is_product = is_einsum and name not in statement.operands
            return position if is_product and not changed & set(statement.operands) else None
        changed |= {step.statement.result for step in all_steps([item])}
    return None


def _joined(product: Step, reduction: Step) -> Step:
    inner, outer = product.statement.einsum, reduction.statement.einsum
    names = dict(zip(inner.result, outer.operands[0], strict=True))
    free = (letter for letter in ascii_letters if letter not in outer.indices)
    names |= {index: next(free) for index in inner.summed}
    terms = tuple("".join(names[index] for index in operand) for operand in inner.operands)
    einsum = Einsum(terms, outer.result)
    statement = replace(reduction.statement, einsum=einsum, operands=product.statement.operands)
    return replace(reduction, statement=statement, alpha=product.alpha * reduction.alpha)
