"""Reads maps and tasklets: elementwise expressions, broadcasts, and sums of products."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from string import ascii_letters
from typing import Any

from dace import SDFG, SDFGState, dtypes, symbolic
from dace.frontend.operations import detect_reduction_type
from dace.sdfg import nodes
from sympy import SympifyError

from dace_redist.transformations.einsum.reading import SourceLocation, einsum_steps, equal, logical_shape
from dace_redist.transformations.einsum.steps import Step


def map_steps(sdfg: SDFG, entry: nodes.MapEntry, location: SourceLocation) -> Iterator[Step]:
    """
    The statements of a map over whole dimensions with one operation in it.

    :param sdfg: Gets arrays for intermediate results.
    :param entry: The map.
    :param location: Where it stands.
    :raises ValueError: If it is another kind of map; says which statement of the program and why.
    """
    inside = [n for n in location.state.scope_children()[entry] if not isinstance(n, nodes.MapExit)]
    tasklets = [n for n in inside if isinstance(n, nodes.Tasklet)]
    if len(tasklets) != 1 or not all(n is tasklets[0] or _passes_an_element(n, location.state) for n in inside):
        location.refuse("its map holds more than one operation; write expressions of whole arrays")
    extents = {}
    for parameter, (begin, end, step) in zip(entry.map.params, entry.map.range.ndrange(), strict=True):
        if begin != 0 or step != 1:
            location.refuse(f"its index {parameter} runs over {begin}:{end + 1}:{step}, not over a whole dimension")
        extents[parameter] = end + 1
    tasklet_location = SourceLocation(tasklets[0], location.state, location.loops)
    yield from _TaskletReader(sdfg, tasklets[0], tasklet_location, extents).steps()


def tasklet_steps(sdfg: SDFG, tasklet: nodes.Tasklet, location: SourceLocation) -> Iterator[Step]:
    """The statements of a tasklet outside of maps: an expression of scalars; as :func:`map_steps`."""
    yield from _TaskletReader(sdfg, tasklet, location, {}).steps()


class _TaskletReader:
    """
    Reads one tasklet.

    :param sdfg: Gets arrays for intermediate results.
    :param tasklet: The tasklet.
    :param location: Where it stands.
    :param extents: Number of values of each index of the map around it.
    """

    def __init__(self, sdfg: SDFG, tasklet: nodes.Tasklet, location: SourceLocation, extents: dict[str, Any]) -> None:
        self._sdfg, self._tasklet, self._location, self._extents = sdfg, tasklet, location, extents
        self._letters = dict(zip(extents, ascii_letters, strict=False))

    def steps(self) -> Iterator[Step]:
        self._check_readable()
        state = self._location.state
        reads = [(edge.dst_conn, _read_memlet(edge, state)) for edge in state.in_edges(self._tasklet)]
        reads = [(connector, memlet) for connector, memlet in reads if memlet.data is not None]
        (write,) = (edge for edge in state.out_edges(self._tasklet) if edge.data.data is not None)
        operands = [self._indices(memlet) for _, memlet in reads]
        names = [memlet.data for _, memlet in reads]
        result = self._indices(write.data)
        if len(set(result)) < len(result):
            self._location.refuse(f"it writes {write.data.data}[{write.data.subset}], which is not the whole array")
        if write.data.wcr is not None:
            yield from self._sum(operands, names, result, write.data)
            return
        several = {self._letters[name] for name, extent in self._extents.items() if not equal(extent, 1)}
        if several - set(result):
            self._location.refuse("it is neither elementwise nor an einsum: not every index is one of the result's")
        for position, indices in enumerate(operands):
            kept = "".join(index for index in dict.fromkeys(indices) if index in result)
            if kept != indices:
                operands[position], step = kept, self._reduced(names[position], indices, kept)
                names[position] = step.statement.result
                yield step
        if not set(result) <= set("".join(operands)):  # the result itself has the indices that the operands lack
            operands, names = [*operands, result], [*names, write.data.data]
        statement = self._location.statement(tuple(operands), tuple(names), result, write.data.data, elementwise=True)
        inputs = tuple(connector for connector, _ in reads)
        yield Step(statement, 1, self._tasklet.code.as_string, inputs, write.src_conn)

    def _sum(self, operands: Sequence[str], names: Sequence[str], result: str, write: Any) -> Iterator[Step]:
        """The map adds products to its result, each as often as there are values of the indices that none has."""
        alpha = _factor_of_product(self._tasklet)
        if alpha is None or not names or detect_reduction_type(write.wcr) != dtypes.ReductionType.Sum:
            self._location.refuse(f"it combines values by {write.wcr}; only sums of products are supported")
        known = set("".join(operands))
        unused = set(self._letters.values()) - known - set(result)
        alpha *= math.prod(self._extents[name] for name, index in self._letters.items() if index in unused)
        kept = "".join(index for index in result if index in known)
        statement = self._location.statement(tuple(operands), tuple(names), kept, write.data)
        yield from einsum_steps(self._sdfg, statement, alpha, 1, write.data, result)

    def _reduced(self, name: str, indices: str, kept: str) -> Step:
        """Takes the diagonal of an operand, and drops dimensions of length 1 that the result lacks."""
        array = self._sdfg.arrays[name]
        shape = [array.shape[indices.index(index)] for index in kept]
        reduced = self._sdfg.add_temp_transient(shape or [1], array.dtype)[0]
        return Step(self._location.statement((indices,), (name,), kept, reduced))

    def _check_readable(self) -> None:
        if self._tasklet.language != dtypes.Language.Python:
            self._location.refuse(f"a tasklet in {self._tasklet.language} cannot be read")
        used = {str(name) for name in self._tasklet.free_symbols} & set(self._extents)
        if used:
            self._location.refuse(f"it computes with its index {', '.join(sorted(used))}, which is not elementwise")
        written = [
            edge.data.data for edge in self._location.state.out_edges(self._tasklet) if edge.data.data is not None
        ]
        if "__pystate" in written:
            self._location.refuse(
                "DaCe does not know this function and would call it in Python; write it as np.einsum or elementwise"
            )
        if len(written) != 1:
            self._location.refuse(f"it has {len(written)} results, not one")

    def _indices(self, memlet: Any) -> str:
        """
        The index string by which a map reads or writes an array, one letter for each dimension.

        A dimension of length 1 under no index of the map has the same letter in all arrays, counted from the last
        dimension.
        """
        array, found = self._sdfg.arrays[memlet.data], ""
        if not logical_shape(array):
            return found
        ones = ascii_letters[len(self._extents) :]
        ranges = list(zip(memlet.subset.ndrange(), array.shape, strict=True))
        for axis, ((begin, end, _), extent) in enumerate(ranges):
            name = str(begin)
            if equal(begin, 0) and equal(end, 0) and equal(extent, 1):
                found += ones[len(ranges) - 1 - axis]
            elif name in self._letters and equal(begin, end) and equal(self._extents[name], extent):
                found += self._letters[name]
            else:
                self._location.refuse(
                    f"it uses {memlet.data}[{memlet.subset}], which is not elementwise over whole arrays"
                )
        return found


def _passes_an_element(node: nodes.Node, state: SDFGState) -> bool:
    """Whether a node in a map only holds an element on its way into the tasklet."""
    return isinstance(node, nodes.AccessNode) and state.in_degree(node) == 1 == state.out_degree(node)


def _read_memlet(edge: Any, state: SDFGState) -> Any:
    """What a tasklet reads through an edge, also where the element is held by a node on the way."""
    inner = isinstance(edge.src, nodes.AccessNode) and state.entry_node(edge.src) is not None
    return state.in_edges(edge.src)[0].data if inner else edge.data


def _factor_of_product(tasklet: nodes.Tasklet) -> Any:
    """The number by which a tasklet multiplies the product of its inputs; None if it computes something else."""
    statements = tasklet.code.code
    if len(statements) != 1 or not isinstance(statements[0], ast.Assign):
        return None
    try:
        value = symbolic.pystr_to_symbolic(ast.unparse(statements[0].value))
    except (TypeError, SympifyError):
        return None
    ratio = value / math.prod(symbolic.pystr_to_symbolic(name) for name in tasklet.in_connectors)
    return ratio if ratio.is_Number else None
