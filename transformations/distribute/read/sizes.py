"""Functions in place of DaCe's: expressions of sizes, and types, where its frontend differs from Python and NumPy."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import dace
import sympy
from dace import dtypes
from dace.frontend.python import newast
from dace.frontend.python.replacements import array_creation, operators, ufunc


def dace_attribute(kind: Any, name: str) -> Any:
    """Return an attribute of one of DaCe's classes or modules, if this version of DaCe has it."""
    if not hasattr(kind, name):
        raise ImportError(
            f"dace_redist.distribute cannot read programs with DaCe {dace.__version__}, whose {kind.__name__} has no "
            f"{name!r}: install dace==2.0.0b1, or pass an SDFG instead of a @dace.program"
        )
    return getattr(kind, name)


_unparse = dace_attribute(operators, "astutils").unparse
_sym_type = dace_attribute(newast, "sym_type")


def text_of_sizes(expression: sympy.Basic) -> str:
    """Return an expression of sizes in Python, see :func:`with_floats`; DaCe prints no floor divisions."""
    quotient = (lambda *_: True, lambda left, right: f"(({left}) // ({right}))")
    return f"({with_floats(sympy.pycode(expression, user_functions={'int_floor': [quotient]}))})"


def with_floats(text: str) -> str:
    """Return an expression in Python whose quotients and roots are no integers in C++."""
    return ast.unparse(_Floats().visit(ast.parse(text, mode="eval")))


class _Floats(ast.NodeTransformer):
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


def _float(node: ast.expr) -> ast.expr:
    return ast.Call(ast.parse("dace.float64", mode="eval").body, [node], [])


def type_of_sizes(expression: Any) -> dtypes.typeclass:
    """Return the type of an expression of sizes; DaCe takes that of the value where all sizes are 1."""
    symbols = getattr(expression, "free_symbols", ())
    integers = all(symbol.is_integer for symbol in symbols)
    quotient = integers and isinstance(expression, sympy.Add | sympy.Mul | sympy.Pow) and not expression.is_integer
    return dtypes.float64 if quotient else _sym_type(expression)


def _text(node: Any) -> Any:
    return text_of_sizes(node) if isinstance(node, sympy.Basic) else _unparse(node)


#: Replacement and original of each function, by class or module, and name.
PATCHES: dict[tuple[Any, str], tuple[Any, Any]] = {
    **{(module, "astutils"): (SimpleNamespace(unparse=_text), module.astutils) for module in (operators, ufunc)},
    **{(module, "sym_type"): (type_of_sizes, _sym_type) for module in (newast, operators, ufunc, array_creation)},
}


def in_place_of(kind: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that stands in for one of DaCe's during parsing; its first argument is the original."""
    original = dace_attribute(kind, name)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        PATCHES[kind, name] = (lambda *arguments, **options: function(original, *arguments, **options), original)
        return function

    return register
