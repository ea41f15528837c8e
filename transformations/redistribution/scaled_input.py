"""Analysis of tasklets that scale, convert or conjugate their input. Start reading at: scaled_input."""

from __future__ import annotations

import ast
import math
from typing import Any, NamedTuple

from dace import SDFG, dtypes, symbolic
from dace.sdfg import nodes

_CONJUGATES = ("conj", "conjugate")


class ScaledInput(NamedTuple):
    """
    ``alpha * x`` or ``alpha * conj(x)``.

    :param alpha: A real number, or an expression of symbols.
    :param conj: True if the input is conjugated.
    :param is_double: True if a factor is a ``double`` in the generated code, whatever the type of the input.
    """

    alpha: Any = 1
    conj: bool = False
    is_double: bool = False


def scaled_input(tasklet: nodes.Tasklet, sdfg: SDFG, types: set[dtypes.typeclass]) -> ScaledInput | None:
    """
    Return the scaling that a tasklet applies to its only input.

    :param tasklet: The tasklet.
    :param sdfg: Its SDFG, whose symbols may be factors.
    :param types: Types of its input and its output.
    :return: The scaling; None if the tasklet computes something else.
    """
    statements = tasklet.code.code
    if tasklet.language != dtypes.Language.Python or len(statements) != 1 or len(tasklet.in_connectors) != 1:
        return None
    assigned = statements[0]
    if not isinstance(assigned, ast.Assign) or len(assigned.targets) != 1:
        return None
    (name,) = tasklet.in_connectors
    found = _Reader(name, set(sdfg.symbols), types).value(assigned.value)
    return found if isinstance(found, ScaledInput) else None


def is_power_of_two(factor: Any) -> bool:
    """Return True if a product with a factor is exact; False for a symbolic factor."""
    try:
        return math.frexp(abs(float(factor)))[0] == 0.5
    except TypeError:
        return False


class _Reader:
    """
    Evaluation of an expression of one input.

    :param name: Name of the input.
    :param symbols: Names of symbols.
    :param types: Types allowed in conversions.
    """

    def __init__(self, name: str, symbols: set[str], types: set[dtypes.typeclass]) -> None:
        self._name, self._symbols, self._types = name, symbols, types

    def value(self, expression: ast.expr) -> Any:
        """Return a :class:`ScaledInput`, a factor (a number or a symbol), or None for other expressions."""
        if isinstance(expression, ast.Constant):
            real = isinstance(expression.value, int | float) and not isinstance(expression.value, bool)
            return expression.value if real else None
        if isinstance(expression, ast.Name):
            if expression.id == self._name:
                return ScaledInput()
            return symbolic.pystr_to_symbolic(expression.id) if expression.id in self._symbols else None
        if isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.USub | ast.UAdd):
            sign = -1 if isinstance(expression.op, ast.USub) else 1
            return _product(sign, self.value(expression.operand))
        if isinstance(expression, ast.BinOp):
            return self._binary(expression)
        return self._call(expression) if isinstance(expression, ast.Call) else None

    def _binary(self, expression: ast.BinOp) -> Any:
        left, right = self.value(expression.left), self.value(expression.right)
        if left is None or right is None:
            return None
        if isinstance(expression.op, ast.Mult):
            return _product(right, left) if isinstance(left, ScaledInput) else _product(left, right)
        exact = isinstance(expression.op, ast.Div) and not isinstance(right, ScaledInput) and is_power_of_two(right)
        return _product(1 / right, left) if exact else None

    def _call(self, expression: ast.Call) -> Any:
        """Return the value of a conjugation, or of a conversion of a number or of the input."""
        if len(expression.args) != 1 or expression.keywords:
            return None
        function, value = ast.unparse(expression.func).split(".")[-1], self.value(expression.args[0])
        if function in _CONJUGATES:
            return value._replace(conj=not value.conj) if isinstance(value, ScaledInput) else None
        if value is None or getattr(dtypes, function, None) not in self._types:
            return None
        if isinstance(value, ScaledInput):  # the conversion must come first
            return value if value == ScaledInput() else None
        return _Typed(value) if isinstance(value, int | float) else value


class _Typed(float):
    """Number that has the type of the input, or of the result, in generated code."""


def _product(factor: Any, value: Any) -> Any:
    if value is None or isinstance(factor, ScaledInput):
        return None
    if not isinstance(value, ScaledInput):
        return factor * value
    is_double = value.is_double or (isinstance(factor, float) and not isinstance(factor, _Typed))
    alpha = factor * value.alpha
    whole = isinstance(alpha, float) and alpha.is_integer()
    return value._replace(alpha=int(alpha) if whole else alpha, is_double=is_double)
