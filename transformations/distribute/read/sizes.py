"""Expressions of sizes, and their types, as in Python."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Any

import sympy
from dace import SDFG, data, dtypes, symbolic
from dace.frontend.python import astutils, newast
from dace.sdfg import nodes
from dace.subsets import Range

_unparse, _sym_type = astutils.unparse, newast.sym_type  # before they are replaced


def text_of_sizes(expression: sympy.Basic) -> str:
    """Return an expression of sizes in Python, see :func:`with_floats`."""
    quotient = (lambda *_: True, lambda left, right: f"(({left}) // ({right}))")
    return f"({with_floats(sympy.pycode(expression, user_functions={'int_floor': [quotient]}))})"


def with_floats(text: str, floats: Collection[str] = ()) -> str:
    """
    Return an expression in Python whose quotients and roots are no integers in C++.

    Functions compare floating-point numbers for equality, as SymPy takes variables for integers.

    :param floats: Names of floating-point variables.
    """
    return ast.unparse(_Floats(floats).visit(ast.parse(text, mode="eval")))


class _Floats(ast.NodeTransformer):
    def __init__(self, floats: Collection[str]) -> None:
        self._floats = floats

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        left, right = node.left, node.right
        if isinstance(node.op, ast.Div):
            numbers = isinstance(left, ast.Constant) and isinstance(right, ast.Constant)
            return ast.Constant(left.value / right.value) if numbers else ast.BinOp(left, ast.Div(), _float(right))
        if isinstance(node.op, ast.Pow) and isinstance(right, ast.UnaryOp):  # DaCe misprints negative powers
            power = ast.BinOp(_float(left), ast.Pow(), right.operand)
            return ast.BinOp(ast.Constant(1), ast.Div(), _float(power))
        if isinstance(node.op, ast.Pow) and not isinstance(getattr(right, "value", None), int):
            return ast.BinOp(_float(left), ast.Pow(), right)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        name = {ast.Eq: "numpy_equal", ast.NotEq: "numpy_not_equal"}.get(type(node.ops[0]))
        if name is None or len(node.ops) > 1 or not any(map(self._is_float, ast.walk(node))):
            return node
        return ast.Call(ast.Name(name, ast.Load()), [node.left, *node.comparators], [])

    def _is_float(self, part: ast.AST) -> bool:
        if isinstance(part, ast.BinOp):
            return isinstance(part.op, ast.Div)
        return isinstance(getattr(part, "value", None), float) or getattr(part, "id", None) in self._floats


def _float(node: ast.expr) -> ast.expr:
    return ast.Call(ast.parse("dace.float64", mode="eval").body, [node], [])


def type_of_sizes(expression: Any) -> dtypes.typeclass:
    """Return the type of an expression of sizes."""
    if isinstance(expression, sympy.Basic) and expression.has(sympy.I):
        return dtypes.complex128
    symbols = getattr(expression, "free_symbols", ())
    integers = all(symbol.is_integer for symbol in symbols)
    quotient = integers and isinstance(expression, sympy.Add | sympy.Mul | sympy.Pow) and not expression.is_integer
    return dtypes.float64 if quotient else _sym_type(expression)


def unparse(node: Any) -> Any:
    """Return the text of a node or of an expression of sizes."""
    return text_of_sizes(node) if isinstance(node, sympy.Basic) else _unparse(node)


def in_integers(expression: Any) -> Any:
    """Return an expression of sizes with divisions of integers: DaCe prints others as quotients, which C++ rounds."""

    def divided(rounded: Any) -> Any:
        divide = symbolic.int_ceil if isinstance(rounded, sympy.ceiling) else symbolic.int_floor
        return divide(*rounded.args[0].together().as_numer_denom())

    expression = sympy.sympify(expression)
    return expression.replace(lambda part: isinstance(part, sympy.ceiling | sympy.floor), divided)


def count_in_integers(sdfg: SDFG) -> None:
    """Apply :func:`in_integers` to all shapes, maps and memlets of an SDFG."""
    for array in sdfg.arrays.values():
        if isinstance(array, data.Array):
            array.shape, array.strides = (tuple(map(in_integers, one)) for one in (array.shape, array.strides))
    for state in sdfg.states():
        ranges = [node.map.range for node in state.nodes() if isinstance(node, nodes.MapEntry)]
        ranges += [one for edge in state.edges() for one in (edge.data.subset, edge.data.other_subset)]
        for one in ranges:
            if isinstance(one, Range):
                one.ranges = [tuple(map(in_integers, ends)) for ends in one.ranges]
