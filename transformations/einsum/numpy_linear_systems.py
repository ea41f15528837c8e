"""What the frontend adds to an SDFG for ``np.linalg.inv`` and ``np.linalg.solve``: a node that solves the system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from dace import SDFG, Memlet, SDFGState, dtypes

from dace_redist.library_nodes.indexed_node import RESULT
from dace_redist.library_nodes.linear_solve import LinearSolve
from dace_redist.transformations.einsum.numpy_einsums import operand_shape
from dace_redist.transformations.einsum.reading import common_type

Shape = tuple[Any, ...]


def _invert(visitor: Any, sdfg: SDFG, state: SDFGState, a: str) -> str:
    (shape,) = _shapes(sdfg, "linalg.inv", a)
    return _add(visitor, sdfg, state, LinearSolve("inv", "ij->ji"), shape, a)


def _solve(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, b: str) -> str:
    """DaCe's own takes neither vectors nor operands of different types."""
    _, shape = _shapes(sdfg, "linalg.solve", a, b)
    node = LinearSolve("solve", "ij,i->j" if len(shape) == 1 else "ij,ik->jk")
    return _add(visitor, sdfg, state, node, shape, a, b)


def _shapes(sdfg: SDFG, function: str, *operands: str) -> list[Shape]:
    matrix, *right = shapes = [operand_shape(sdfg, function, *operand) for operand in enumerate(operands)]
    square = len(matrix) == 2 and matrix[0] == matrix[1]
    if not square or any(len(b) not in (1, 2) or b[0] != matrix[0] for b in right):
        columns = " and a vector or matrix of as many rows" if right else ""
        raise ValueError(f"np.{function} takes a square matrix{columns}, got {' and '.join(map(str, shapes))}")
    return shapes


def _add(visitor: Any, sdfg: SDFG, state: SDFGState, node: LinearSolve, shape: Shape, *operands: str) -> str:
    dtype = common_type([sdfg.arrays[operand].dtype for operand in operands])
    if np.issubdtype(dtype.type, np.integer):
        dtype = dtypes.float64  # as NumPy does
    name = visitor.get_target_name() or sdfg.temp_data_name()
    output, _ = sdfg.add_transient(name, shape, dtype, find_new_name=True)
    node.debuginfo = visitor.current_lineinfo
    state.add_node(node)
    for connector, operand in zip(node.operand_connectors, operands, strict=True):
        memlet = Memlet.from_array(operand, sdfg.arrays[operand])
        state.add_edge(state.add_read(operand), None, node, connector, memlet)
    state.add_edge(node, RESULT, state.add_write(output), None, Memlet.from_array(output, sdfg.arrays[output]))
    return str(output)


#: What stands in for functions that solve linear systems.
REPLACEMENTS: dict[str, Callable[..., str]] = {"numpy.linalg.inv": _invert, "numpy.linalg.solve": _solve}
