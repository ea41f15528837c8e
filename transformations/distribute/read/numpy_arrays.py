"""Frontend replacements of NumPy's functions that make arrays, choose elements and change shapes."""

from __future__ import annotations

import math
from string import ascii_letters
from typing import Any

import numpy as np
from dace import SDFG, SDFGState, dtypes, symbolic
from dace.frontend.common import op_repository
from dace.frontend.python.nested_call import NestedCall

from dace_redist.library_nodes.node import simplified
from dace_redist.transformations.distribute.ir import equal
from dace_redist.transformations.distribute.read.numpy_functions import (
    Replacement,
    add_einsum,
    add_map,
    new_array,
    operand_shape,
    shapes_of,
)

_dace_empty = op_repository.Replacements.get("numpy.empty")
_dace_reshape = op_repository.Replacements.get("numpy.reshape")


def _empty(visitor: Any, sdfg: SDFG, state: SDFGState, shape: Any, dtype: Any = dtypes.float64) -> Any:
    """Add an array; DaCe has no default type."""
    return _dace_empty(visitor, sdfg, state, shape, dtype)


def _reshape(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, shape: Any, *rest: Any, **options: Any) -> Any:
    """Add a view of another shape; DaCe supports neither a number nor -1."""
    shape = list(shape) if isinstance(shape, tuple | list) else [shape]
    if -1 in shape:
        known = math.prod(extent for extent in shape if extent != -1)
        shape[shape.index(-1)] = simplified(math.prod(operand_shape(sdfg, "reshape", 0, a)) / known)
    return _dace_reshape(visitor, sdfg, state, a, shape, *rest, **options)


def _reshape_method(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, *shape: Any, **options: Any) -> Any:
    return _reshape(visitor, sdfg, state, a, shape[0] if len(shape) == 1 else shape, **options)


def _where(visitor: Any, sdfg: SDFG, state: SDFGState, *operands: Any) -> str:
    """Add a choice between elements; DaCe has a node of its own for it, and does not choose between two numbers."""
    if len(operands) != 3:
        raise ValueError(f"np.where is known with a condition and two values, got {len(operands)} operands")
    names = [name if isinstance(name, str) and name in sdfg.arrays else None for name in operands]
    shapes = [() if name is None else operand_shape(sdfg, "where", 0, name) for name in names]
    ndim = max(map(len, shapes))
    aligned = [(1,) * (ndim - len(shape)) + shape for shape in shapes]
    whole = [next((n for n in extents if n != 1), 1) for extents in zip(*aligned, strict=True)]
    if not all(n == 1 or equal(n, extent) for shape in aligned for n, extent in zip(shape, whole, strict=True)):
        raise ValueError(f"np.where: the shapes {', '.join(map(str, shapes))} cannot be broadcast together")
    code, inputs, types = [], {}, []
    for number, (name, shape, operand) in enumerate(zip(names, shapes, operands, strict=True)):
        if name is None:
            symbol = symbolic.issymbolic(operand)
            code.append(symbolic.symstr(operand) if symbol else str(operand))
            types.append(np.int64 if symbol else operand)
        else:
            code.append(f"__in{number}")
            types.append(sdfg.arrays[name].dtype.as_numpy_dtype())
            first = ndim - len(shape)
            inputs[code[-1]] = name, [None if n == 1 else first + axis for axis, n in enumerate(shape)]
    output = new_array(visitor, sdfg, whole, dtypes.typeclass(np.result_type(*types[1:]).type))
    return add_map(state, whole or [1], inputs, output, f"{code[1]} if {code[0]} else {code[2]}")


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


#: Methods of arrays.
METHODS: dict[str, Replacement] = {
    "clip": op_repository.Replacements.get("numpy.clip"),
    "conjugate": op_repository.Replacements.get_method("Array", "conj"),
    "reshape": _reshape_method,
}

#: Functions by their names in DaCe.
FUNCTIONS: dict[str, Replacement] = {
    "numpy.empty": _empty,
    "numpy.kron": _kron,
    "numpy.reshape": _reshape,
    "numpy.where": _where,
    **{f"numpy.{name}": _triangle(name) for name in ("tril", "triu")},
}
