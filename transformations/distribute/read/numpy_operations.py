"""Frontend replacements of NumPy's functions other than einsums: shapes, choices, reductions, linear systems."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from string import ascii_letters
from typing import Any

import numpy as np
from dace import SDFG, InterstateEdge, Memlet, SDFGState, dtypes
from dace.frontend.common import op_repository
from dace.frontend.python.nested_call import NestedCall
from dace.libraries.standard.nodes.reduce import Reduce
from dace.sdfg.state import LoopRegion

from dace_redist.library_nodes.indexed import LinearSolve
from dace_redist.library_nodes.node import simplified
from dace_redist.transformations.distribute.ir import common_type, is_complex, neutral_element
from dace_redist.transformations.distribute.read.numpy_code import text_of
from dace_redist.transformations.distribute.read.numpy_functions import (
    Replacement,
    Shape,
    add_einsum,
    add_map,
    add_node,
    new_array,
    operand_shape,
    shapes_of,
    summed,
)
from dace_redist.transformations.distribute.read.ufuncs import elementwise

_DACE = op_repository.Replacements
_dace_astype = _DACE.get_method("Array", "astype")
_dace_empty = _DACE.get("numpy.empty")
_dace_reshape = _DACE.get("numpy.reshape")
_elementwise = _DACE.get("dace.elementwise")


def _empty(visitor: Any, sdfg: SDFG, state: SDFGState, shape: Any, dtype: Any = dtypes.float64) -> Any:
    """Add an array; DaCe has no default type."""
    return _dace_empty(visitor, sdfg, state, shape, dtype)


def _linspace(visitor: Any, sdfg: SDFG, state: SDFGState, start: Any, stop: Any, num: Any = 50, **options: Any) -> str:
    """Add numbers at equal distances; DaCe gives them a second axis."""
    if {*options} - {"dtype"} or getattr(options.get("dtype"), "to_string", lambda: "float64")() != "float64":
        raise ValueError("np.linspace is known for float64, with start, stop and num; write it by np.arange")
    ends = [text_of(sdfg, number, end, np.dtype(float)) for number, end in enumerate((start, stop), 1)]
    given = {f"__in{number}": (end, []) for number, end in enumerate((start, stop), 1) if end in sdfg.arrays}
    output, last = new_array(visitor, sdfg, [num], dtypes.float64), f"dace.float64({simplified(num - 1)})"
    step = f"({ends[1]} - {ends[0]}) / ({last} if {last} > 0 else dace.float64(1))"
    code = f"{ends[1]} if __i0 > 0 and __i0 == {last} else __i0 * ({step}) + {ends[0]}"
    return add_map(state, [num], given, output, code)


def _astype(visitor: Any, sdfg: SDFG, state: SDFGState, array: str, dtype: Any, *rest: Any, **options: Any) -> Any:
    """Add a conversion; DaCe supports NumPy's types but not their names, nor Python's types."""
    named = getattr(dtype, "value", dtype)
    if isinstance(named, str | type) and not isinstance(dtype, dtypes.typeclass):
        try:
            dtype = dtypes.typeclass(np.dtype(named).type)
        except TypeError as error:
            raise ValueError(f"astype: {error}; write a type of NumPy, as in {array}.astype(np.float64)") from error
    return _dace_astype(visitor, sdfg, state, array, dtype, *rest, **options)


def _reshape(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, shape: Any, *rest: Any, **options: Any) -> Any:
    """Add a view of another shape; DaCe supports neither a number nor -1."""
    shape = list(shape) if isinstance(shape, tuple | list) else [shape]
    if -1 in shape:
        known = math.prod(extent for extent in shape if extent != -1)
        shape[shape.index(-1)] = simplified(math.prod(operand_shape(sdfg, "reshape", 0, a)) / known)
    return _dace_reshape(visitor, sdfg, state, a, shape, *rest, **options)


def _reshape_method(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, *shape: Any, **options: Any) -> Any:
    return _reshape(visitor, sdfg, state, a, shape[0] if len(shape) == 1 else shape, **options)


def _triangle(function: str) -> Replacement:
    """Return ``tril`` or ``triu``: the elements on one side of a diagonal, and zeros."""

    def add(visitor: Any, sdfg: SDFG, state: SDFGState, m: str, k: Any = 0) -> str:
        shape = operand_shape(sdfg, function, 0, m)
        if len(shape) < 2:
            raise ValueError(f"np.{function} takes a matrix, got shape {shape}")
        output = new_array(visitor, sdfg, shape, sdfg.arrays[m].dtype)
        row, column = (f"__i{len(shape) - axis}" for axis in (2, 1))
        code = f"__inp if {column} {'<=' if function == 'tril' else '>='} {row} + ({k}) else 0"
        return add_map(state, shape, {"__inp": (m, range(len(shape)))}, output, code)

    return add


def _kron(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, b: str) -> Any:
    """Add the products of all pairs of elements, and give them the shape of a block matrix."""
    left, right = shapes_of(sdfg, "kron", (a, b))
    if len(left) != len(right):
        raise ValueError(f"np.kron is known for two arrays of as many dimensions, got {left} and {right}")
    ndim, nest = len(left), NestedCall(visitor, sdfg, state)
    rows, columns = ascii_letters[:ndim], ascii_letters[ndim : 2 * ndim]
    pairs = "".join(map("".join, zip(rows, columns, strict=True)))
    products = nest(add_einsum)(f"{rows},{columns}->{pairs}", a, b)
    return nest, nest(_reshape)(products, [m * n for m, n in zip(left, right, strict=True)])


def _axes(function: str, name: str, shape: Shape, axis: Any) -> list[int]:
    given = range(len(shape)) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    for number in given:
        if not isinstance(number, int) or not -len(shape) <= number < len(shape):
            raise ValueError(f"np.{function}: {name} has no axis {number}, but {len(shape)} dimensions")
    return sorted({number % len(shape) for number in given})


def _reduced(nest: NestedCall, function: str, name: str, axes: Sequence[int], keepdims: bool, factors: int = 1) -> str:
    """Reduce an array, or the product of ``factors`` times it, along axes."""
    shape = operand_shape(nest.sdfg, function, 0, name)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    if function in ("max", "min"):
        reduced = nest(_extreme)(function, name, axes, [shape[axis] for axis in kept])
    else:
        letters = ascii_letters[: len(shape)]
        subscripts = ",".join([letters] * factors) + "->" + "".join(letters[axis] for axis in kept)
        reduced = nest(add_einsum)(subscripts, *[name] * factors)
    return nest(_with_axes)(reduced, shape, axes) if keepdims else reduced


def _extreme(
    visitor: Any, sdfg: SDFG, state: SDFGState, function: str, a: str, axes: Sequence[int], shape: Sequence[Any]
) -> str:
    dtype = sdfg.arrays[a].dtype
    if is_complex(dtype):
        raise ValueError(f"np.{function} of complex numbers has no order to go by; take it of np.abs({a})")
    output = new_array(visitor, sdfg, shape, dtype)
    node = Reduce(function, f"lambda x, y: {function}(x, y)", axes, neutral_element(function, dtype))
    return add_node(visitor, sdfg, state, node, {None: a}, output)


def _with_axes(
    visitor: Any, sdfg: SDFG, state: SDFGState, reduced: str, shape: Sequence[Any], axes: Sequence[int]
) -> str:
    """Add the reduced axes with one element."""
    wanted = [1 if axis in axes else extent for axis, extent in enumerate(shape)]
    result = str(sdfg.add_temp_transient(wanted, sdfg.arrays[reduced].dtype)[0])
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    return add_map(state, wanted, {"__inp": (reduced, kept)}, result, "__inp")


def _reduction(function: str) -> Replacement:
    def add(
        visitor: Any, sdfg: SDFG, state: SDFGState, a: str, axis: Any = None, keepdims: bool = False, **options: Any
    ) -> Any:
        _check_options(function, "axis and keepdims", options)
        shape = operand_shape(sdfg, function, 0, a)
        axes = _axes(function, a, shape, axis)
        nest = NestedCall(visitor, sdfg, state)
        if function in ("sum", "mean"):
            a = summed(nest, a, function == "mean")
        extreme = {"any": "max", "all": "min"}.get(function)
        if extreme and sdfg.arrays[a].dtype != dtypes.bool_:
            a = nest(elementwise)("not_equal", a, 0)
        result = _reduced(nest, extreme or function, a, axes, keepdims)
        if function == "mean":
            result = nest(elementwise)("divide", result, math.prod(shape[number] for number in axes))
        return nest, result

    return add


def _running_sum(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, axis: Any = None, **options: Any) -> Any:
    _check_options("cumsum", "axis", options)
    shape = operand_shape(sdfg, "cumsum", 0, a)
    if axis is None and len(shape) > 1:
        raise ValueError(f"np.cumsum of shape {shape} is known along one axis, as in np.cumsum({a}, axis=0)")
    (along,) = _axes("cumsum", a, shape, axis)
    nest = NestedCall(visitor, sdfg, state)
    return nest, nest(_add_running_sum)(summed(nest, a), shape, along)


def _add_running_sum(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, shape: Shape, along: int) -> str:
    """Add a loop along an axis, of sums of whole slices."""
    dtype = sdfg.arrays[a].dtype
    output = new_array(visitor, sdfg, shape, dtype)
    inner = SDFG("cumsum")
    for name in (a, output):
        inner.add_array(name, shape, dtype)
    ranges = {f"__i{axis}": f"0:{extent}" for axis, extent in enumerate(shape) if axis != along} or {"__i": "0:1"}

    def element(name: str, position: str) -> Memlet:
        indices = (position if axis == along else f"__i{axis}" for axis in range(len(shape)))
        return Memlet(f"{name}[{', '.join(indices)}]")

    first = inner.add_state("first")
    loop = LoopRegion("along", f"__k < {shape[along]}", "__k", "__k = 1", "__k = __k + 1")
    inner.add_edge(first, loop, InterstateEdge())
    for at, position, code in ((first, "0", "__inp"), (loop.add_state("next"), "__k", "__sum + __inp")):
        reads = {"__inp": element(a, position)} | ({"__sum": element(output, "__k - 1")} if at is not first else {})
        written = {"__out": element(output, position)}
        at.add_mapped_tasklet(
            "sum", ranges, reads, f"__out = {code}", written, external_edges=True, debuginfo=visitor.current_lineinfo
        )
    node = state.add_nested_sdfg(inner, {a}, {output}, symbol_mapping={name: name for name in inner.symbols})
    node.debuginfo = visitor.current_lineinfo
    state.add_edge(state.add_read(a), None, node, a, Memlet.from_array(a, sdfg.arrays[a]))
    state.add_edge(node, output, state.add_write(output), None, Memlet.from_array(output, sdfg.arrays[output]))
    return output


def _check_options(function: str, known: str, options: Collection[str]) -> None:
    if options:
        raise ValueError(f"np.{function} is known with {known}, got {', '.join(options)} besides; leave it out")


def _variance(function: str) -> Replacement:
    """Return ``var``, the mean square of the deviations from the mean, or ``std``, its root."""

    def add(
        visitor: Any,
        sdfg: SDFG,
        state: SDFGState,
        a: str,
        axis: Any = None,
        keepdims: bool = False,
        ddof: Any = 0,
        **options: Any,
    ) -> Any:
        _check_options(function, "axis, keepdims and ddof", options)
        shape, element = operand_shape(sdfg, function, 0, a), sdfg.arrays[a].dtype.to_string()
        if "float" not in element:
            raise ValueError(
                f"np.{function} is known for real floating-point numbers, got {element}; convert the array"
            )
        axes = _axes(function, a, shape, axis)
        nest = NestedCall(visitor, sdfg, state)
        deviation = nest(elementwise)("subtract", a, nest(_reduction("mean"))(a, axes, keepdims=True))
        squares = _reduced(nest, function, deviation, axes, keepdims, factors=2)
        mean = f"x / ({math.prod(shape[number] for number in axes) - ddof})"
        code = f"sqrt({mean})" if function == "std" else mean
        return nest, nest(_elementwise)(f"lambda x: {code}", squares)

    return add


def _norm(
    visitor: Any, sdfg: SDFG, state: SDFGState, a: str, ord: Any = None, axis: Any = None, keepdims: bool = False
) -> Any:
    axes = _axes("linalg.norm", a, operand_shape(sdfg, "linalg.norm", 0, a), axis)
    order, element = getattr(ord, "value", ord), sdfg.arrays[a].dtype.to_string()
    if order is not None and (order != "fro" or len(axes) != 2) and (order != 2 or len(axes) != 1):
        raise ValueError(
            f"np.linalg.norm is known for the square root of the sum of squares, got ord={order!r} along "
            f"{len(axes)} axes; write it as np.max or np.sum of np.abs({a})"
        )
    nest = NestedCall(visitor, sdfg, state)
    if "complex" in element:
        a = nest(elementwise)("absolute", a)
    elif "float" not in element:
        raise ValueError(f"np.linalg.norm of {element} would be floating-point; convert the array first")
    return nest, nest(_elementwise)("lambda x: sqrt(x)", _reduced(nest, "linalg.norm", a, axes, keepdims, factors=2))


def _position(function: str) -> Replacement:
    """Return ``argmax`` or ``argmin``: the smallest of the indices at which the extreme element stands."""

    def add(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, axis: Any = None, **options: Any) -> Any:
        _check_options(function, "axis", options)
        shape = operand_shape(sdfg, function, 0, a)
        axes = _axes(function, a, shape, axis)
        nest = NestedCall(visitor, sdfg, state)
        extreme = _reduced(nest, function.removeprefix("arg"), a, axes, keepdims=False)
        positions = nest(_positions)(a, extreme, shape, axes)
        return nest, _reduced(nest, "min", positions, axes, keepdims=False)

    return add


def _positions(
    visitor: Any, sdfg: SDFG, state: SDFGState, a: str, extreme: str, shape: Shape, axes: Sequence[int]
) -> str:
    """Add the position of each element along the axes if it equals the extreme one, else their length."""
    output = str(sdfg.add_temp_transient(list(shape), dtypes.int64)[0])
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    steps = [math.prod(shape[later] for later in axes if later > axis) for axis in axes]
    position = " + ".join(f"__i{axis} * ({step})" for axis, step in zip(axes, steps, strict=True))
    # a slice with a NaN has NaN as its extreme element: its first one counts
    code = f"{position} if __inp == __extreme or __inp != __inp else {math.prod(shape[axis] for axis in axes)}"
    return add_map(state, shape, {"__inp": (a, range(len(shape))), "__extreme": (extreme, kept)}, output, code)


def _invert(visitor: Any, sdfg: SDFG, state: SDFGState, a: str) -> str:
    return _linear_system(visitor, sdfg, state, "inv", a)


def _solve(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, b: str) -> str:
    return _linear_system(visitor, sdfg, state, "solve", a, b)


def _linear_system(visitor: Any, sdfg: SDFG, state: SDFGState, function: str, *operands: str) -> str:
    """Add a linear system; DaCe supports neither vectors nor operands of different types."""
    matrix, *right = shapes = shapes_of(sdfg, f"linalg.{function}", operands)
    square = len(matrix) == 2 and matrix[0] == matrix[1]
    if not square or any(len(b) not in (1, 2) or b[0] != matrix[0] for b in right):
        columns = " and a vector or matrix of as many rows" if right else ""
        raise ValueError(f"np.linalg.{function} takes a square matrix{columns}, got {' and '.join(map(str, shapes))}")
    dtype = common_type([sdfg.arrays[operand].dtype for operand in operands])
    if np.issubdtype(dtype.type, np.integer):
        dtype = dtypes.float64  # as NumPy does
    output = new_array(visitor, sdfg, shapes[-1], dtype)
    einsum = "ij->ji" if not right else "ij,i->j" if len(right[0]) == 1 else "ij,ik->jk"
    node = LinearSolve(function, einsum)
    return add_node(visitor, sdfg, state, node, dict(zip(node.operand_connectors, operands, strict=True)), output)


#: Functions by their names in DaCe.
FUNCTIONS: dict[str, Replacement] = {
    **{f"numpy.{name}": _reduction(name) for name in ("sum", "mean", "any", "all")},
    **{f"numpy.{name}": _reduction(name.removeprefix("a")) for name in ("max", "min", "amax", "amin")},
    **{f"numpy.{name}": _position(name) for name in ("argmax", "argmin")},
    **{f"numpy.{name}": _variance(name) for name in ("std", "var")},
    **{f"numpy.{name}": _triangle(name) for name in ("tril", "triu")},
    "numpy.cumsum": _running_sum,
    "numpy.empty": _empty,
    "numpy.kron": _kron,
    "numpy.linspace": _linspace,
    "numpy.linalg.inv": _invert,
    "numpy.linalg.norm": _norm,
    "numpy.linalg.solve": _solve,
    "numpy.reshape": _reshape,
}

#: Methods of arrays.
METHODS: dict[str, Replacement] = {
    **{name: FUNCTIONS[f"numpy.{name}"] for name in "all any argmax argmin cumsum max mean min std sum var".split()},
    "astype": _astype,
    "reshape": _reshape_method,
}
