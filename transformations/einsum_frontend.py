"""Parses a program such that every ``np.einsum`` stays one node, with all its operands."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

from dace import SDFG, Memlet, SDFGState, data, dtypes
from dace.frontend.common import op_repository
from dace.frontend.python.parser import DaceProgram
from dace.libraries.blas.nodes.einsum import Einsum as EinsumNode

from dace_redist.einsum.expression import Einsum
from dace_redist.transformations.reading import common_type
from dace_redist.transformations.steps import source_line

_EINSUM = "numpy.einsum"


def parse(program: DaceProgram) -> SDFG:
    """
    The simplified SDFG of a program, whose einsums are nodes.

    DaCe's own frontend takes einsums apart into pairs of operands and maps, in the order in which they are written. It
    names states after lines, which tells where a node comes from as long as states are not fused.

    :param program: A ``@dace.program``.
    """
    with _whole_einsums():
        sdfg = program.to_sdfg(simplify=False, use_cache=False)
    file = inspect.getsourcefile(program.f) or ""
    for state in sdfg.states():
        line = re.search(r"_(\d+)(_\d+)?$", state.label)
        for node in state.nodes() if line else ():
            known = getattr(node, "debuginfo", None)
            if known is None or known.filename != file:
                node.debuginfo = dtypes.DebugInfo(int(line[1]), filename=file)
    sdfg.simplify()
    return sdfg


@contextlib.contextmanager
def _whole_einsums() -> Iterator[None]:
    known = op_repository.Replacements._rep
    before = known[_EINSUM]
    known[_EINSUM] = _einsum
    try:
        yield
    finally:
        known[_EINSUM] = before


def _einsum(
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
    try:
        shapes = [_shape(sdfg, number, name) for number, name in enumerate(arrays)]
        einsum = Einsum.parse(str(getattr(subscripts, "value", subscripts)), [len(shape) for shape in shapes])
        extents = einsum.extents(shapes)
    except ValueError as error:
        raise ValueError(f"{source_line(visitor.current_lineinfo)}: {error}") from error
    if output is None:
        shape = [extents[index] for index in einsum.result] or [1]
        element = dtype or common_type([sdfg.arrays[name].dtype for name in arrays])
        target = visitor.get_target_name()
        output = (
            sdfg.add_temp_transient(shape, element)[0]
            if target is None
            else sdfg.add_transient(target, shape, element, find_new_name=True)[0]
        )
    connectors = [f"_{number}" for number in range(len(arrays))]
    node = EinsumNode("einsum", inputs=set(connectors), outputs={"_result"})
    node.einsum_str, node.alpha, node.beta = str(einsum), alpha, beta
    node.debuginfo = visitor.current_lineinfo
    state.add_node(node)
    for connector, name in zip(connectors, arrays, strict=True):
        state.add_edge(state.add_read(name), None, node, connector, Memlet.from_array(name, sdfg.arrays[name]))
    state.add_edge(node, "_result", state.add_write(output), None, Memlet.from_array(output, sdfg.arrays[output]))
    return str(output)


def _shape(sdfg: SDFG, number: int, operand: Any) -> tuple[Any, ...]:
    """Shape of an operand; none for a scalar."""
    if not isinstance(operand, str) or operand not in sdfg.arrays:
        raise ValueError(
            f"operand {number} of np.einsum is {operand}: expected an array. Write all subscripts as one string, and "
            "factors outside of the einsum"
        )
    array = sdfg.arrays[operand]
    return () if isinstance(array, data.Scalar) else tuple(array.shape)
