"""Maps of NumPy's elementwise functions and operators, in place of DaCe's. Start reading at: elementwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy
from dace import SDFG, SDFGState, data, dtypes
from dace.frontend.common import op_repository
from dace.frontend.python.nested_call import NestedCall

from dace_redist.transformations.distribute.ir import equal
from dace_redist.transformations.distribute.read.numpy_code import cast, code_of, resolved, text_of, type_of
from dace_redist.transformations.distribute.read.numpy_functions import Replacement, add_map, operand_shape

_DACE = op_repository.Replacements

#: Functions of Python's operators, by their names in DaCe.
OPERATORS = {
    **{"Add": "add", "Sub": "subtract", "Mult": "multiply", "Div": "divide", "FloorDiv": "floor_divide"},
    **{
        "Mod": "remainder",
        "PyMod": "remainder",
        "Pow": "power",
        "LShift": "left_shift",
        "RShift": "right_shift",
        "BitOr": "bitwise_or",
    },
    **{"BitXor": "bitwise_xor", "BitAnd": "bitwise_and", "Eq": "equal", "NotEq": "not_equal", "Lt": "less"},
    **{"LtE": "less_equal", "Gt": "greater", "GtE": "greater_equal", "And": "logical_and", "Or": "logical_or"},
    **{"USub": "negative", "UAdd": "positive", "Invert": "invert", "Not": "logical_not"},
}


def elementwise(visitor: Any, sdfg: SDFG, state: SDFGState, name: str, *operands: Any, by_sign: bool = False) -> str:
    """
    Add a function of NumPy, or the function of an operator.

    :param operands: Names of arrays, numbers and expressions of sizes.
    :param by_sign: True for an operator.
    :raises ValueError: If NumPy does not define it for these types, or this package cannot compute it as NumPy does.
    """
    return mapped(visitor, sdfg, state, name, operands, *code_of(sdfg, name, operands, by_sign))


def mapped(
    visitor: Any, sdfg: SDFG, state: SDFGState, name: str, operands: Sequence[Any], code: str, dtype: Any
) -> str:
    """Add a map over the elements of broadcast operands, which are called ``__in1``, ``__in2`` and so on."""
    arrays = {f"__in{n}": one for n, one in enumerate(operands, 1) if isinstance(one, str) and one in sdfg.arrays}
    shapes = {connector: operand_shape(sdfg, name, 0, array) for connector, array in arrays.items()}
    ndim = max(map(len, shapes.values()), default=0)
    aligned = [(1,) * (ndim - len(shape)) + shape for shape in shapes.values()]
    whole = [_common(extents) for extents in zip(*aligned, strict=True)]
    pairs = [(n, extent) for shape in aligned for n, extent in zip(shape, whole, strict=True)]
    if not all(n == 1 or equal(n, extent) or isinstance(extent, sympy.Max) for n, extent in pairs):
        raise ValueError(
            f"np.{name}: the shapes {', '.join(map(str, shapes.values()))} cannot be broadcast together; write them "
            "with the same symbols"
        )
    inputs = {
        connector: (array, [None if n == 1 else ndim - len(shapes[connector]) + axis for axis, n in enumerate(shape)])
        for (connector, array), shape in zip(arrays.items(), shapes.values(), strict=True)
    }
    target = visitor.get_target_name() or sdfg.temp_data_name()
    kind = dtypes.typeclass(np.dtype(dtype).type)
    if all(isinstance(sdfg.arrays[array], data.Scalar) for array in arrays.values()):
        output = sdfg.add_scalar(target, kind, transient=True, find_new_name=True)[0]
    else:
        output = sdfg.add_transient(target, whole or [1], kind, find_new_name=True)[0]
    return add_map(state, [] if whole == [1] else whole, inputs, str(output), code)


def _common(extents: Sequence[Any]) -> Any:
    """Return the extent of broadcast axes: the largest one of slices with steps, compared when sizes are known."""
    long = [extent for extent in extents if extent != 1] or [1]
    steps = any(sympy.sympify(extent).has(sympy.ceiling) for extent in long)
    return sympy.Max(*long) if steps and not all(equal(extent, long[0]) for extent in long) else long[0]


def where(visitor: Any, sdfg: SDFG, state: SDFGState, *operands: Any) -> str:
    """Add a choice between elements; DaCe has a node of its own for it, and does not choose between two numbers."""
    if len(operands) != 3:
        raise ValueError(f"np.where is known with a condition and two values, got {len(operands)} operands")
    dtype = resolved(sdfg, "maximum", operands[1:])[-1]
    chosen, otherwise = (text_of(sdfg, number, operands[number - 1], dtype) for number in (2, 3))
    code = f"{otherwise} if {code_of(sdfg, 'logical_not', operands[:1])[0]} else {chosen}"
    return mapped(visitor, sdfg, state, "where", operands, code, dtype)


def _operator(name: str) -> Replacement:
    def add(visitor: Any, sdfg: SDFG, state: SDFGState, left: Any, right: Any = None) -> str:
        operands = (left,) if right is None else (left, right)
        if name == "power" and isinstance(right, int) and right == 2:
            return elementwise(visitor, sdfg, state, "square", left)
        if name in ("logical_and", "logical_or") and any(one.kind != "b" for one in resolved(sdfg, name, operands)):
            raise ValueError(f"{name.removeprefix('logical_')} is known for two bools; write it as np.{name}")
        return elementwise(visitor, sdfg, state, name, *operands, by_sign=True)

    return add


def _function(visitor: Any, _: Any, sdfg: SDFG, state: SDFGState, name: str, operands: Any, options: Any) -> list[str]:
    name, count = getattr(np, name).__name__, getattr(np, name).nin
    flat = [part for one in operands for part in (one if isinstance(one, list) else [one])]
    if options or len(flat) != count:
        raise ValueError(f"np.{name} is known with {count} operands, without options; assign its result, as in a[:] =")
    return [elementwise(visitor, sdfg, state, name, *flat)]


def _method(visitor: Any, node: Any, sdfg: SDFG, state: SDFGState, name: str, *_: Any) -> list[str]:
    instead = f"a reduction as np.sum, np.max or np.min, outer(x, y) as np.{name}(x[:, None], y)"
    raise ValueError(f"methods of np.{name} cannot be distributed; write {instead}")


def _named(name: str) -> Replacement:
    def add(visitor: Any, sdfg: SDFG, state: SDFGState, *operands: Any) -> Any:
        return elementwise(visitor, sdfg, state, name, *operands)

    return add


def _clip(visitor: Any, sdfg: SDFG, state: SDFGState, a: Any, low: Any = None, high: Any = None) -> Any:
    if isinstance(type_of(sdfg, a, python=True), type):
        raise ValueError("np.clip makes an array of a number first; convert it, as in np.float64(1)")
    bounds = [bound for bound in (low, high) if bound is not None]
    name = ("positive", "maximum" if high is None else "minimum", "clip")[len(bounds)]
    return elementwise(visitor, sdfg, state, name, a, *bounds)


def _chosen(visitor: Any, sdfg: SDFG, state: SDFGState, sign: str, a: Any, b: Any) -> str:
    """Add Python's choice of the larger or smaller of two numbers."""
    dtype = resolved(sdfg, "maximum", [a, b])[-1]
    if dtype.kind == "c":
        raise ValueError("complex numbers have no order to go by; take those of their absolute values")
    first, second = text_of(sdfg, 1, a, dtype, True), text_of(sdfg, 2, b, dtype, True)
    return mapped(visitor, sdfg, state, "maximum", [a, b], f"{second} if {second} {sign} {first} else {first}", dtype)


def _largest(sign: str) -> Replacement:
    def add(visitor: Any, sdfg: SDFG, state: SDFGState, first: Any, *others: Any) -> Any:
        nest = NestedCall(visitor, sdfg, state)
        if not others:
            name = "max" if sign == ">" else "min"
            raise ValueError(
                f"cannot be distributed: {name} of one argument; write np.{name} for the elements of an array"
            )
        for other in others:
            first = nest(_chosen)(sign, first, other)
        return nest, first

    return add


def _ndim(_: Any, sdfg: SDFG, __: SDFGState, array: str) -> int:
    """Return the number of dimensions."""
    return len(sdfg.arrays[array].shape)


def _round(visitor: Any, sdfg: SDFG, state: SDFGState, a: Any) -> str:
    """Add the nearest integer, the even one of two."""
    code, dtype = code_of(sdfg, "rint", [a])
    return mapped(visitor, sdfg, state, "rint", [a], f"dace.int64({code})", np.int64)


def _part(name: str) -> Replacement:
    """Return ``real`` or ``imag``."""

    def add(visitor: Any, sdfg: SDFG, state: SDFGState, a: str) -> str:
        dtype = sdfg.arrays[a].dtype.as_numpy_dtype()
        of_real = "__in1" if name == "real" else f"{cast(dtype)}(0)"
        code = f"{name}(__in1)" if dtype.kind == "c" else of_real
        return mapped(visitor, sdfg, state, name, [a], code, np.zeros((), dtype).real.dtype)

    return add


def _conjugated(visitor: Any, sdfg: SDFG, state: SDFGState, a: str) -> str:
    """Add the method ``conj``, which keeps elements that are not complex; ``np.conj`` makes ``int8`` of bool."""
    dtype = sdfg.arrays[a].dtype.as_numpy_dtype()
    return mapped(visitor, sdfg, state, "conjugate", [a], "conj(__in1)" if dtype.kind == "c" else "__in1", dtype)


_ARRAYS, _NUMBERS = ("Array", "Scalar", "View", "ArrayView"), ("NumConstant", "BoolConstant", "symbol")
_PAIRS = [(a, b) for a in (*_ARRAYS, *_NUMBERS) for b in (*_ARRAYS, *_NUMBERS) if {a, b} & {*_ARRAYS}]

#: Operators by the kinds of their operands.
OPERATIONS = {
    (*pair, name): _operator(function)
    for name, function in OPERATORS.items()
    for pair in (_PAIRS if getattr(np, function).nin == 2 else [(kind, kind) for kind in _ARRAYS])
}
UFUNCS = {name: _function if name == "ufunc" else _method for name in _DACE._ufunc_rep}
FUNCTIONS: dict[str, Replacement] = {
    **{
        f"{module}.{name}": _named(name) for module in ("math", "dace") for name in "exp sin cos sqrt log log10".split()
    },
    **{name: _named(name) for name in "exp sin cos sqrt log log10".split()},
    **{f"{module}{name}": _part(name) for module in ("numpy.", "dace.", "") for name in ("real", "imag")},
    **{f"{module}conj": _named("conjugate") for module in ("numpy.", "dace.", "")},
    "abs": _named("absolute"),
    "max": _largest(">"),
    "min": _largest("<"),
    "round": _round,
    "numpy.clip": _clip,
    "numpy.where": where,
}
METHODS: dict[str, Replacement] = {"clip": _clip, "conj": _conjugated, "conjugate": _conjugated}
ATTRIBUTES = {**{name: _part(name) for name in ("real", "imag")}, "ndim": _ndim}
