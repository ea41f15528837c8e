"""What the frontend adds to an SDFG for ``np.linalg.inv`` and ``np.linalg.solve``: a node that solves the system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from dace import SDFG, Memlet, SDFGState, dtypes

from dace_redist.library_nodes.indexed_node import RESULT
from dace_redist.library_nodes.linear_solve import LinearSolve
from dace_redist.transformations.numpy_einsums import operand_shape
from dace_redist.transformations.reading import common_type


def _invert(visitor: Any, sdfg: SDFG, state: SDFGState, a: str) -> str:
    return _add(visitor, sdfg, state, LinearSolve("inv", "ij->ji"), a)


def _solve(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, b: str) -> str:
    """DaCe's own takes neither vectors nor operands of different types."""
    vector = len(operand_shape(sdfg, "linalg.solve", 1, b)) == 1
    return _add(visitor, sdfg, state, LinearSolve("solve", "ij,i->j" if vector else "ij,ik->jk"), a, b)


def _add(visitor: Any, sdfg: SDFG, state: SDFGState, node: LinearSolve, *operands: str) -> str:
    for number, (operand, indices) in enumerate(zip(operands, node.terms, strict=False)):
        shape = operand_shape(sdfg, f"linalg.{node.label}", number, operand)
        if len(shape) != len(indices):
            known = "a matrix" if number == 0 else "a matrix or a vector"
            raise ValueError(
                f"operand {number} of np.linalg.{node.label} is {operand} of shape {shape}: expected {known}"
            )
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
