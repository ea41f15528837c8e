"""What the frontend adds to an SDFG for functions of NumPy: one node for an einsum, or for a linear system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from dace import SDFG, Memlet, SDFGState, data, dtypes
from dace.frontend.common import op_repository
from dace.libraries.blas.nodes.einsum import Einsum as EinsumNode
from dace.sdfg import nodes

from dace_redist.einsum.expression import Einsum
from dace_redist.library_nodes.indexed_node import RESULT
from dace_redist.library_nodes.linear_solve import LinearSolve
from dace_redist.transformations.einsum.reading import common_type

_KNOWN = op_repository.Replacements  # DaCe's own

#: The einsum of a function, by the number of dimensions of its operands.
_SUBSCRIPTS: dict[str, dict[tuple[int, ...], str]] = {
    "outer": {(1, 1): "i,j->ij"},
    "inner": {(1, 1): "i,i->", (1, 2): "j,ij->i", (2, 1): "ij,j->i", (2, 2): "ik,jk->ij"},
    "vdot": {(1, 1): "i,i->", (2, 2): "ij,ij->"},
    "trace": {(2,): "ii->"},
}


def add_einsum(
    visitor: Any,
    sdfg: SDFG,
    state: SDFGState,
    subscripts: Any,
    *arrays: str,
    dtype: Any = None,
    optimize: Any = False,
    output: str | None = None,
    out: str | None = None,
    alpha: Any = 1.0,
    beta: Any = 0.0,
) -> str:
    """Adds a node for the whole einsum; its contraction order is the planner's choice, whatever ``optimize`` says."""
    output = out if output is None else output
    shapes = [operand_shape(sdfg, "einsum", number, name) for number, name in enumerate(arrays)]
    einsum = Einsum.parse(str(getattr(subscripts, "value", subscripts)), [len(shape) for shape in shapes])
    extents = einsum.extents(shapes)
    if output is None:
        element = dtype or common_type([sdfg.arrays[name].dtype for name in arrays])
        output = new_array(visitor, sdfg, [extents[index] for index in einsum.result] or [1], element)
    connectors = [f"_{number}" for number in range(len(arrays))]
    node = EinsumNode("einsum", inputs=set(connectors), outputs={RESULT})
    node.einsum_str, node.alpha, node.beta = str(einsum), alpha, beta
    return _add_node(visitor, sdfg, state, node, dict(zip(connectors, arrays, strict=True)), output)


def new_array(visitor: Any, sdfg: SDFG, shape: Sequence[Any], dtype: dtypes.typeclass) -> str:
    """A transient for a result, called as the variable that it is assigned to."""
    name = visitor.get_target_name() or sdfg.temp_data_name()
    return str(sdfg.add_transient(name, shape, dtype, find_new_name=True)[0])


def _add_node(
    visitor: Any, sdfg: SDFG, state: SDFGState, node: nodes.LibraryNode, operands: dict[str, str], output: str
) -> str:
    """Connects a node to its operands, by connector, and to its output."""
    node.debuginfo = visitor.current_lineinfo
    state.add_node(node)
    for connector, name in operands.items():
        state.add_edge(state.add_read(name), None, node, connector, Memlet.from_array(name, sdfg.arrays[name]))
    state.add_edge(node, RESULT, state.add_write(output), None, Memlet.from_array(output, sdfg.arrays[output]))
    return output


def operand_shape(sdfg: SDFG, function: str, number: int, operand: Any) -> tuple[Any, ...]:
    """Shape of an operand; none for a scalar."""
    if not isinstance(operand, str) or operand not in sdfg.arrays:
        inside = (
            " Write all subscripts as one string, and factors outside of the einsum" if function == "einsum" else ""
        )
        raise ValueError(f"operand {number} of np.{function} is {operand}: expected an array.{inside}")
    array = sdfg.arrays[operand]
    return () if isinstance(array, data.Scalar) else tuple(array.shape)


def _named(function: str) -> Callable[..., str]:
    """A function in the table of subscripts."""

    def add(visitor: Any, sdfg: SDFG, state: SDFGState, *arrays: str, **options: Any) -> str:
        return add_einsum(visitor, sdfg, state, _subscripts(sdfg, function, arrays, options), *arrays)

    return add


def _subscripts(sdfg: SDFG, function: str, arrays: tuple[str, ...], options: dict[str, Any]) -> str:
    dimensions = tuple(len(operand_shape(sdfg, function, *operand)) for operand in enumerate(arrays))
    known = _SUBSCRIPTS[function]
    if options or dimensions not in known:
        got = ", ".join([*(f"{n}-D" for n in dimensions), *options])
        possible = " or ".join(", ".join(f"{n}-D" for n in expected) for expected in known)
        raise ValueError(f"np.{function} is known for {possible} without options, got {got}; write it as np.einsum")
    if function == "vdot" and any("complex" in sdfg.arrays[a].dtype.to_string() for a in arrays):
        raise ValueError(f"np.{function} of complex numbers conjugates, which no einsum does")
    return known[dimensions]


def _invert(visitor: Any, sdfg: SDFG, state: SDFGState, a: str) -> str:
    (shape,) = _shapes_of_system(sdfg, "linalg.inv", a)
    return _add_solver(visitor, sdfg, state, LinearSolve("inv", "ij->ji"), shape, a)


def _solve(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, b: str) -> str:
    """DaCe's own takes neither vectors nor operands of different types."""
    _, shape = _shapes_of_system(sdfg, "linalg.solve", a, b)
    node = LinearSolve("solve", "ij,i->j" if len(shape) == 1 else "ij,ik->jk")
    return _add_solver(visitor, sdfg, state, node, shape, a, b)


def _shapes_of_system(sdfg: SDFG, function: str, *operands: str) -> list[tuple[Any, ...]]:
    matrix, *right = shapes = [operand_shape(sdfg, function, *operand) for operand in enumerate(operands)]
    square = len(matrix) == 2 and matrix[0] == matrix[1]
    if not square or any(len(b) not in (1, 2) or b[0] != matrix[0] for b in right):
        columns = " and a vector or matrix of as many rows" if right else ""
        raise ValueError(f"np.{function} takes a square matrix{columns}, got {' and '.join(map(str, shapes))}")
    return shapes


def _add_solver(
    visitor: Any, sdfg: SDFG, state: SDFGState, node: LinearSolve, shape: tuple[Any, ...], *operands: str
) -> str:
    dtype = common_type([sdfg.arrays[operand].dtype for operand in operands])
    if np.issubdtype(dtype.type, np.integer):
        dtype = dtypes.float64  # as NumPy does
    output = new_array(visitor, sdfg, shape, dtype)
    return _add_node(visitor, sdfg, state, node, dict(zip(node.operand_connectors, operands, strict=True)), output)


def _matmul(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, b: str) -> Any:
    for number, operand in enumerate((a, b)):
        operand_shape(sdfg, "matmul", number, operand)
    return _KNOWN.getop("Array", "MatMult")(visitor, sdfg, state, a, b)


def _astype(visitor: Any, sdfg: SDFG, state: SDFGState, array: str, dtype: Any, *rest: Any, **options: Any) -> Any:
    """DaCe's own knows NumPy's types but not their names, nor those of Python."""
    named = getattr(dtype, "value", dtype)
    if isinstance(named, str | type) and not isinstance(dtype, dtypes.typeclass):
        try:
            dtype = dtypes.typeclass(np.dtype(named).type)
        except TypeError as error:
            raise ValueError(f"astype: {error}; write a type of NumPy, as in {array}.astype(np.float64)") from error
    return _DACE_ASTYPE(visitor, sdfg, state, array, dtype, *rest, **options)


_DACE_ASTYPE = _KNOWN.get_method("Array", "astype")

#: What stands in for functions that are einsums or linear systems, or that DaCe reads only in part.
REPLACEMENTS: dict[str, Callable[..., Any]] = {
    "numpy.einsum": add_einsum,
    "numpy.matmul": _matmul,
    "numpy.linalg.inv": _invert,
    "numpy.linalg.solve": _solve,
    **{f"numpy.{function}": _named(function) for function in ("outer", "inner", "vdot", "trace")},
}

#: The same for methods of arrays, by their names.
METHODS: dict[str, Callable[..., Any]] = {"astype": _astype}
