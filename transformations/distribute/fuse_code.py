"""Fusion of elementwise statements, so that their intermediate results are not stored."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import dace
from dace import SDFG

from dace_redist.einsum.expression import Einsum
from dace_redist.einsum.statement import Code, Statement
from dace_redist.transformations.distribute.ir import Item, operations
from dace_redist.transformations.distribute.rewrite import Items, Rule, earlier

#: Maximum number of operands of a fused statement.
MAX_OPERANDS = 24


def fuse_elementwise(sdfg: SDFG) -> Rule:
    """
    Return a rule that makes one statement of an elementwise one and another one that is its only use.

    The intermediate result is converted to the type that it would be stored in. No element is computed twice. Complex
    statements are left: the compiler rounds products otherwise where it has more than one in a loop.
    """

    def rule(before: list[Item], statement: Statement, after: list[Item], kept: Collection[str]) -> Items:
        if not _is_plain(statement, sdfg):
            return None
        items = [*before, statement, *after]
        uses = Counter(name for other in operations(items) for name in (*other.read, other.result))
        for number, name in enumerate(statement.read):
            if name in kept or uses[name] != 2 or Counter(_names(statement))[_inputs(statement)[number]] != 1:
                continue
            for item, changed in earlier(before):
                if item.result == name:
                    fused = None if changed & {name, *item.operands} else _fused(item, statement, number, sdfg)
                    if fused is not None:
                        return [*(other for other in before if other is not item), fused, *after]
        return None

    return rule


def _is_plain(statement: Statement, sdfg: SDFG) -> bool:
    """Return True for an elementwise statement of real numbers whose code is one assignment, without indices."""
    if statement.code is None or statement.code.indices or statement.einsum.summed:
        return False
    if any(sdfg.arrays[name].dtype.as_numpy_dtype().kind == "c" for name in (*statement.read, statement.result)):
        return False
    lines = ast.parse(statement.code.text).body
    return len(lines) == 1 and isinstance(lines[0], ast.Assign)


def _inputs(statement: Statement) -> tuple[str, ...]:
    assert statement.code is not None
    return statement.code.inputs


def _names(statement: Statement) -> list[str]:
    assert statement.code is not None
    return [node.id for node in ast.walk(ast.parse(statement.code.text)) if isinstance(node, ast.Name)]


def _fused(first: Statement, second: Statement, number: int, sdfg: SDFG) -> Statement | None:
    """Return both as one statement; ``number`` is that of the operand of the second that is the result of the first."""
    term, result = second.einsum.operands[number], second.einsum.result
    count = len(first.read) + len(second.read) - 1
    if not _is_plain(first, sdfg) or sorted(term) != sorted(result) or count > MAX_OPERANDS:
        return None
    letters = dict(zip(first.einsum.result, term, strict=True))
    terms = first.einsum.operands[: len(first.read)]
    pairs = [(name, "".join(map(letters.__getitem__, one))) for name, one in zip(first.read, terms, strict=True)]
    others = [n for n in range(len(second.read)) if n != number]
    pairs += [(second.read[n], second.einsum.operands[n]) for n in others]
    inputs = [f"__in{n}" for n in range(1, count + 1)]
    value = _value(first, dict(zip(_inputs(first), inputs, strict=False)), sdfg.arrays[first.result].dtype)
    names = zip((_inputs(second)[n] for n in others), inputs[len(first.read) :], strict=True)
    assert second.code is not None
    tree = _Replacing({**{old: ast.Name(new) for old, new in names}, _inputs(second)[number]: value})
    code = tree.visit(ast.parse(second.code.text))
    if set("".join(one for _, one in pairs)) != set(result):
        pairs.append((second.result, result))
    einsum, text = Einsum(tuple(term for _, term in pairs), result), ast.unparse(ast.fix_missing_locations(code))
    operands = tuple(name for name, _ in pairs)
    return replace(second, einsum=einsum, operands=operands, code=Code(text, tuple(inputs), second.code.output))


def _value(statement: Statement, names: dict[str, str], dtype: dace.typeclass) -> ast.expr:
    """Return the right-hand side of a statement's code, with other names of its inputs, converted to a type."""
    assert statement.code is not None
    (assignment,) = ast.parse(statement.code.text).body
    assert isinstance(assignment, ast.Assign)
    renamed: ast.expr = _Replacing({old: ast.Name(new) for old, new in names.items()}).visit(assignment.value)
    return ast.Call(ast.parse(f"dace.{dtype.to_string()}", mode="eval").body, [renamed], [])


class _Replacing(ast.NodeTransformer):
    """Replacement of names by expressions."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:  # noqa: N802
        return self._values.get(node.id, node)
