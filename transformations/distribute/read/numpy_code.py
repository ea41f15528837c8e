"""
Code of elementwise functions and operators, in NumPy's types and with its values. Start reading at: code_of.

NumPy resolves the types. Where C++ has other values, ``dace_redist_numpy.hpp`` has a function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dace import SDFG, data, dtypes, symbolic

from dace_redist.transformations.distribute.read.sizes import text_of_sizes, type_of_sizes

_SIGNS = {
    **{"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "remainder": "%"},
    **{"power": "**", "left_shift": "<<", "right_shift": ">>", "bitwise_or": "|", "bitwise_xor": "^"},
    **{"bitwise_and": "&", "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">"},
    **{"greater_equal": ">="},
}
#: Functions of binary operators.
BY_SIGN = {sign: name for name, sign in _SIGNS.items()}

_COMPARISONS, _ORDERS = "equal not_equal", "less less_equal greater greater_equal"
#: Functions, kinds of their operands (``?`` for bool), and their code; ``T`` is the type of the operands. The other
#: functions of DaCe have no code with NumPy's values.
_CODE = (
    ("floor ceil trunc conjugate", "?iu", "{0}"),
    ("conjugate", "f", "{0}"),
    ("positive", "iufc", "{0}"),
    ("conjugate", "c", "conj({0})"),
    ("negative", "fc", "-{0}"),
    ("negative", "iu", "numpy_negative({0})"),
    ("absolute", "?iufc", "abs({0})"),
    ("invert", "?", "not {0}"),
    ("invert", "iu", "~{0}"),
    ("square", "iuf", "{0} * {0}"),
    ("square", "c", "numpy_multiply({0}, {0})"),
    ("reciprocal", "f", "{T}(1) / {0}"),
    ("sign", "iufc", "numpy_sign({0})"),
    ("degrees rad2deg", "f", f"{{0}} * {{T}}({180 / np.pi!r})"),
    ("radians deg2rad", "f", f"{{0}} * {{T}}({np.pi / 180!r})"),
    ("floor ceil trunc rint cbrt exp2 expm1 log2 log1p fabs signbit isnan isinf isfinite", "f", "{name}({0})"),
    ("sqrt exp log log10 sin cos tan sinh cosh tanh", "fc", "{name}({0})"),
    ("arcsin arccos arctan arcsinh arccosh arctanh", "fc", "{short}({0})"),
    ("isnan isinf isfinite", "c", "{name}({0})"),
    ("isnan isinf", "?iu", "{0} != {0}"),
    ("isfinite", "?iu", "{0} == {0}"),
    ("hypot copysign nextafter arctan2", "f", "{short}({0}, {1})"),
    ("gcd lcm", "iu", "{name}({0}, {1})"),
    (f"add subtract {_COMPARISONS}", "?iufc", "{0} {sign} {1}"),
    (f"multiply {_ORDERS}", "?iuf", "{0} {sign} {1}"),
    ("divide", "f", "{0} {sign} {1}"),
    ("bitwise_and bitwise_or bitwise_xor", "?iu", "{0} {sign} {1}"),
    (f"multiply divide maximum minimum power {_ORDERS}", "c", "numpy_{name}({0}, {1})"),
    ("maximum minimum fmax fmin", "?iuf", "numpy_{name}({0}, {1})"),
    ("clip", "?iufc", "numpy_clip({0}, {1}, {2})"),
    ("floor_divide remainder fmod power", "iuf", "numpy_{name}({0}, {1})"),
    ("float_power", "fc", "numpy_power({0}, {1})"),
    ("left_shift right_shift", "iu", "numpy_{name}({0}, {1})"),
    ("heaviside", "f", "{0} if {0} != {0} else ({1} if {0} == {T}(0) else {T}({0} > {T}(0)))"),
    ("logical_not", "?", "not {0}"),
    ("logical_and", "?", "{0} and {1}"),
    ("logical_or", "?", "{0} or {1}"),
    ("logical_xor", "?", "numpy_not_equal({0}, {1})"),
    ("logical_not", "iufc", "{0} == {T}(0)"),
    ("logical_and", "iufc", "{0} != {T}(0) and {1} != {T}(0)"),
    ("logical_or", "iufc", "{0} != {T}(0) or {1} != {T}(0)"),
    ("logical_xor", "iufc", "({0} != {T}(0)) != ({1} != {T}(0))"),
)
#: The code of each function, by name and kind of its operands.
CODE_OF = {(name, kind): code for names, kinds, code in _CODE for name in names.split() for kind in kinds}

#: Remedies for functions without code.
REMEDIES = {
    "divmod": "write a // b and a % b",
    "exp2": "write np.exp(np.log(2) * a)",
    "expm1": "write np.exp(a) - 1",
    "log1p": "write np.log(1 + a)",
    "log2": "write np.log(a) / np.log(2)",
    "logaddexp": "write np.maximum(a, b) + np.log1p(np.exp(-np.abs(a - b)))",
    "modf": "write np.trunc(a) and a - np.trunc(a)",
    "power": "its exponents must not be negative: convert one operand, as in a.astype(np.float64)",
    "reciprocal": "write 1 / a",
    "rint": "write np.rint(a.real) + 1j * np.rint(a.imag)",
}


def code_of(sdfg: SDFG, name: str, operands: Sequence[Any], by_sign: bool = False) -> tuple[str, Any]:
    """
    Return the code of a function of operands ``__in1``, ``__in2`` and so on, and the type of its result.

    :param by_sign: True if the program has the operator of the function.
    """
    *loop, result = resolved(sdfg, name, operands)
    kind = loop[0].kind.replace("b", "?")
    code = CODE_OF.get((name, kind))
    exponent = operands[1] if name == "power" else None
    if exponent is not None and loop[1].kind == "i" and _may_be_negative(sdfg, exponent):
        code = None
    if code is None or "float16" in [*loop, result]:
        what = " and ".join(map(str, loop))
        remedy = "convert the array first, as in a.astype(np.float32)" if "float16" in loop else REMEDIES.get(name)
        raise ValueError(f"np.{name} computed with {what} cannot be distributed; {remedy or 'write it otherwise'}")
    scalars = kind in "f?" and name in _COMPARISONS.split() and all(_is_scalar(sdfg, one) for one in operands)
    if len({*loop}) > 1 or scalars:  # a comparison of int64 and uint64; or one that DaCe may read as one of integers
        code = "numpy_{name}({0}, {1})"
    if exponent is not None and _is_scalar_power(sdfg, kind, operands, by_sign):
        code = "numpy_scalar_power({0}, {1})"
        if isinstance(exponent, int | float | np.number) and (exponent == 0.5 or kind == "f" and exponent in (2, 3, 4)):
            code = "sqrt({0})" if exponent == 0.5 else " * ".join(["{0}"] * int(exponent))  # faster than a power
    exact = "{sign}" not in code  # templates of C++ take arguments of one type
    texts = [text_of(sdfg, number, operand, loop[number - 1], exact) for number, operand in enumerate(operands, 1)]
    facts = {"name": name, "short": name.replace("arc", "a"), "sign": _SIGNS.get(name), "T": cast(loop[0])}
    text = code.format(*texts, **facts)
    narrow = result.kind in "iu" and result.itemsize < 4  # C++ computes in int
    return f"{cast(result)}({text})" if narrow else text, result


def augmented(sdfg: SDFG, sign: str, target: str, operand: Any, held: np.dtype[Any]) -> str:
    """Return the code of ``target += operand``, or of another sign, for elements of a type."""
    code, dtype = code_of(sdfg, BY_SIGN[sign], [target, operand], by_sign=True)
    if not np.can_cast(dtype, held, "same_kind"):
        raise ValueError(
            f"a {sign}= b computes elements of {dtype}, which {held} cannot hold, as in NumPy; write a = a {sign} b, "
            f"or convert a before, as in a.astype(np.{dtype})"
        )
    return code


def _is_scalar(sdfg: SDFG, operand: Any) -> bool:
    return not isinstance(operand, str) or isinstance(sdfg.arrays.get(operand, data.Scalar), data.Scalar)


def _is_scalar_power(sdfg: SDFG, kind: str, operands: Sequence[Any], by_sign: bool) -> bool:
    """Return True for a power of an array that NumPy computes in another way if its scalar exponent is 0.5 or -1."""
    base, exponent = operands
    weak = isinstance(type_of(sdfg, exponent, python=True), type)
    known = kind == "f" or (kind == "c" and by_sign and weak)
    return known and _is_scalar(sdfg, exponent) and not _is_scalar(sdfg, base)


def _may_be_negative(sdfg: SDFG, exponent: Any) -> bool:
    if isinstance(exponent, str) and exponent in sdfg.arrays:
        return bool(sdfg.arrays[exponent].dtype.as_numpy_dtype().kind == "i")
    return not symbolic.issymbolic(exponent) and exponent < 0


def resolved(sdfg: SDFG, name: str, operands: Sequence[Any]) -> tuple[np.dtype[Any], ...]:
    """Return the types in which NumPy computes a function, and that of its result."""
    found = []
    declared, python = ([type_of(sdfg, operand, weak) for operand in operands] for weak in (False, True))
    arrays = any(isinstance(one, np.dtype) for one in python)
    for types in (declared, python) if arrays else (declared,):
        types = types if any(isinstance(one, np.dtype) for one in types) else list(map(np.dtype, types))
        try:
            found.append(_loop(name, types))
        except TypeError as error:
            raise ValueError(f"as in NumPy, np.{name} is not defined for {_names(types)}: {error}") from error
    if found[0] != found[-1]:
        raise ValueError(
            f"np.{name} of {_names(declared)} has elements of {found[-1][-1]} if the scalar argument is a number of "
            f"Python, and of {found[0][-1]} if it is one of NumPy: declare it as int, float or complex, or convert the "
            f"array, as in a.astype(np.{found[0][-1]})"
        )
    return found[0]


def _loop(name: str, types: Sequence[Any]) -> tuple[np.dtype[Any], ...]:
    if name == "clip":  # no function whose types can be asked for
        common = np.result_type(*(one if isinstance(one, np.dtype) else one() for one in types))
        return (common,) * 4
    function = getattr(np, name)
    return tuple(function.resolve_dtypes((*types, *[None] * function.nout)))


def _names(types: Sequence[Any]) -> str:
    return " and ".join(getattr(one, "name", "") or f"Python's {one.__name__}" for one in types)


def type_of(sdfg: SDFG, operand: Any, python: bool) -> Any:
    """
    Return the type of an operand in NumPy; of a number of Python, which has a weak type, its class.

    :param python: True if scalar arguments of unknown kind count as numbers of Python.
    """
    array = sdfg.arrays.get(operand) if isinstance(operand, str) else None
    if array is not None:
        number = getattr(array, "of_literals", False)
        weak = number or (python and number is None)
        return _weak(array.dtype) if weak else array.dtype.as_numpy_dtype()
    if symbolic.issymbolic(operand):
        return _weak(type_of_sizes(operand))
    return np.result_type(operand) if isinstance(operand, np.generic | bool) else type(operand)


def _weak(dtype: dtypes.typeclass) -> Any:
    kind = type(dtype.type(1).item())
    return np.dtype(bool) if kind is bool else kind


def cast(dtype: np.dtype[Any]) -> str:
    """Return the name of a type in code."""
    return f"dace.{dtype}" if dtype.kind != "b" else "dace.bool_"


def text_of(sdfg: SDFG, number: int, operand: Any, dtype: Any, exact: bool = False) -> str:
    """Return the code of an operand in a type: a connector or number; an integer may be shorter unless ``exact``."""
    if isinstance(operand, str) and operand in sdfg.arrays:
        name, own = f"__in{number}", sdfg.arrays[operand].dtype.as_numpy_dtype()
        if own != dtype and dtype.kind == "b":
            return f"({name} != {cast(own)}(0))"
        # DaCe may put the value of a scalar integer in its place, as a number of another type
        number_later = exact and dtype.kind in "iu" and _is_scalar(sdfg, operand)
        return f"{cast(dtype)}({name})" if own != dtype or number_later else name
    if symbolic.issymbolic(operand):
        return f"{cast(dtype)}({text_of_sizes(operand)})"
    value = operand.item() if isinstance(operand, np.generic) else operand
    value = bool(value) if dtype.kind == "b" else value
    if isinstance(value, int) and dtype.kind in "fc" and abs(value) >= 2**63:  # no literal in C++
        value = float(value)
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise ValueError(f"{value} is no {dtype}, to which it would be converted; convert the array to a larger type")
    if isinstance(value, complex):
        return f"({text_of(sdfg, number, value.real, dtype)} + {cast(dtype)}({_digits(value.imag)}j))"
    plain = dtype == np.dtype(type(value)) and not (exact and dtype.kind == "i")
    return _digits(value) if plain else f"{cast(dtype)}({_digits(value)})"


def _digits(value: Any) -> str:
    """Return a number as an expression; infinities and NaN have no literals."""
    return "(1e999 - 1e999)" if value != value else repr(value).replace("inf", "1e999")
