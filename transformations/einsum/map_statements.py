"""Reads maps and tasklets: elementwise expressions, broadcasts, and sums of products."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from string import ascii_letters
from typing import Any, NoReturn

from dace import SDFG, SDFGState, dtypes, symbolic
from dace.frontend.operations import detect_reduction_type
from dace.sdfg import nodes
from sympy import SympifyError

from dace_redist.library_nodes.node import simplified
from dace_redist.transformations.einsum.parts import Box, read_part, written_part
from dace_redist.transformations.einsum.reading import SourceLocation, einsum_steps, equal, logical_shape
from dace_redist.transformations.einsum.steps import Slice, Step


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
    ranges = {}
    for parameter, (begin, end, step) in zip(entry.map.params, entry.map.range.ndrange(), strict=True):
        if step != 1:
            location.refuse(f"its index {parameter} runs over {begin}:{end + 1}:{step}, with a step")
        ranges[parameter] = (begin, simplified(end - begin + 1))
    tasklet_location = SourceLocation(tasklets[0], location.state, location.loops)
    yield from _TaskletReader(sdfg, tasklets[0], tasklet_location, ranges).steps()


def tasklet_steps(sdfg: SDFG, tasklet: nodes.Tasklet, location: SourceLocation) -> Iterator[Step]:
    """The statements of a tasklet outside of maps: an expression of scalars; as :func:`map_steps`."""
    yield from _TaskletReader(sdfg, tasklet, location, {}).steps()


class _TaskletReader:
    """
    Reads one tasklet.

    :param sdfg: Gets arrays for intermediate results.
    :param tasklet: The tasklet.
    :param location: Where it stands.
    :param ranges: First value and number of values of each index of the map around it.
    """

    def __init__(
        self, sdfg: SDFG, tasklet: nodes.Tasklet, location: SourceLocation, ranges: dict[str, tuple[Any, Any]]
    ) -> None:
        self._sdfg, self._tasklet, self._location = sdfg, tasklet, location
        self._begins = {name: begin for name, (begin, _) in ranges.items()}
        self._extents = {name: extent for name, (_, extent) in ranges.items()}
        self._letters = dict(zip(ranges, ascii_letters, strict=False))

    def steps(self) -> Iterator[Step]:
        self._check_readable()
        state = self._location.state
        reads = [(edge.dst_conn, _read_memlet(edge, state)) for edge in state.in_edges(self._tasklet)]
        reads = [(connector, memlet) for connector, memlet in reads if memlet.data is not None]
        (write,) = (edge for edge in state.out_edges(self._tasklet) if edge.data.data is not None)
        operands, names = [""] * len(self._by_name), [*self._by_name]
        for _, memlet in reads:
            indices, name, step = self._operand(memlet)
            operands.append(indices)
            names.append(name)
            if step is not None:
                yield step
        result, written, part = self._operand(write.data)
        if len(set(result)) < len(result):
            self._location.refuse(f"it writes {write.data.data}[{write.data.subset}], which is not the whole array")
        if write.data.wcr is not None:
            if part is not None:  # it adds to what is there
                yield part
            yield from self._sum(operands, names, result, written, write.data.wcr)
        else:
            yield from self._elementwise(operands, names, result, written, write.src_conn)
        if part is not None and isinstance(part.moved, Slice):
            yield written_part(self._sdfg, write.data.data, _box(part.moved), written, self._location)

    def _elementwise(
        self, operands: list[str], names: list[str], result: str, written: str, output: str
    ) -> Iterator[Step]:
        several = {self._letters[name] for name, extent in self._extents.items() if not equal(extent, 1)}
        if several - set(result):
            self._location.refuse("it is neither elementwise nor an einsum: not every index is one of the result's")
        edges = self._location.state.in_edges(self._tasklet)
        code = self._tasklet.code.as_string
        for name, connector in self._by_name.items():
            code = re.sub(rf"\b{name}\b", connector, code)
        connectors = (*self._by_name.values(), *(edge.dst_conn for edge in edges if edge.data.data))
        for position, indices in enumerate(operands):
            kept = "".join(index for index in dict.fromkeys(indices) if index in result)
            if kept != indices:
                operands[position], step = kept, self._reduced(names[position], indices, kept)
                names[position] = step.statement.result
                yield step
        if not set(result) <= set("".join(operands)):  # the result itself has the indices that the operands lack
            operands, names = [*operands, result], [*names, written]
        statement = self._location.statement(tuple(operands), tuple(names), result, written, elementwise=True)
        yield Step(statement, 1, code, connectors, output, self._index_values())

    @cached_property
    def _by_name(self) -> dict[str, str]:
        """
        Connectors for the scalars that the code reads by name, without a memlet: DaCe makes symbols of variables that
        are computed from them.
        """
        used = {str(name) for name in self._tasklet.free_symbols} - {*self._tasklet.in_connectors}
        scalars = sorted(name for name in used & {*self._sdfg.arrays} if not logical_shape(self._sdfg.arrays[name]))
        return {name: f"__value_of_{name}" for name in scalars}

    def _index_values(self) -> dict[str, tuple[str, Any]]:
        """The indices that the tasklet computes with."""
        used = {str(name) for name in self._tasklet.free_symbols} & set(self._extents)
        return {name: (self._letters[name], self._begins[name]) for name in sorted(used)}

    def _sum(
        self, operands: Sequence[str], names: Sequence[str], result: str, written: str, wcr: str
    ) -> Iterator[Step]:
        """The map adds products to its result, each as often as there are values of the indices that none has."""
        alpha = _factor_of_product(self._tasklet)
        if alpha is None or not names or detect_reduction_type(wcr) != dtypes.ReductionType.Sum:
            self._location.refuse(f"it combines values by {wcr}; only sums of products are supported")
        known = set("".join(operands))
        unused = set(self._letters.values()) - known - set(result)
        alpha *= math.prod(self._extents[name] for name, index in self._letters.items() if index in unused)
        kept = "".join(index for index in result if index in known)
        statement = self._location.statement(tuple(operands), tuple(names), kept, written)
        yield from einsum_steps(self._sdfg, statement, alpha, 1, written, result)

    def _reduced(self, name: str, indices: str, kept: str) -> Step:
        """Takes the diagonal of an operand, and drops dimensions of length 1 that the result lacks."""
        array = self._sdfg.arrays[name]
        shape = [array.shape[indices.index(index)] for index in kept]
        reduced = self._sdfg.add_temp_transient(shape or [1], array.dtype)[0]
        return Step(self._location.statement((indices,), (name,), kept, reduced))

    def _check_readable(self) -> None:
        if self._tasklet.language != dtypes.Language.Python:
            self._location.refuse(f"a tasklet in {self._tasklet.language} cannot be read")
        written = [
            edge.data.data for edge in self._location.state.out_edges(self._tasklet) if edge.data.data is not None
        ]
        if "__pystate" in written:
            self._location.refuse(
                "DaCe does not know this function and would call it in Python; write it as np.einsum or elementwise"
            )
        if len(written) != 1:
            self._location.refuse(f"it has {len(written)} results, not one")

    def _operand(self, memlet: Any) -> tuple[str, str, Step | None]:
        """
        By which indices a map reads or writes which array: that of the memlet, or one for the part of it that is used.

        A dimension of length 1 under no index of the map has the same letter in all arrays, counted from the last
        dimension.

        :return: One letter for each dimension, the array's name, and the step that copies the part to it.
        """
        array = self._sdfg.arrays[memlet.data]
        if not logical_shape(array):
            return "", memlet.data, None
        ones = ascii_letters[len(self._extents) :]
        letters, offsets, extents = "", [], []
        kept = []
        ranges = list(zip(memlet.subset.ndrange(), array.shape, strict=True))
        for axis, ((begin, end, _), whole) in enumerate(ranges):
            name = next((name for name in self._letters if name in symbolic.symlist(begin)), None)
            if not equal(begin, end):
                self._refuse_use(memlet)
            if name is None:
                offsets.append(begin)
                extents.append(1)
                if equal(begin, 0) and equal(whole, 1):
                    letters += ones[len(ranges) - 1 - axis]
                    kept.append(axis)
                continue
            offset = begin.subs(symbolic.symlist(begin)[name], 0)
            if set(symbolic.symlist(offset)) & set(self._letters) or not equal(begin - offset, name):
                self._refuse_use(memlet)
            offsets.append(simplified(offset + self._begins[name]))
            extents.append(self._extents[name])
            letters += self._letters[name]
            kept.append(axis)
        box = Box(tuple(offsets), tuple(extents), tuple(kept))
        if box.is_whole(array):
            return letters, memlet.data, None
        step = read_part(self._sdfg, memlet.data, box, self._location)
        made = step.statement.result
        return (letters if logical_shape(self._sdfg.arrays[made]) else ""), made, step

    def _refuse_use(self, memlet: Any) -> NoReturn:
        self._location.refuse(f"it uses {memlet.data}[{memlet.subset}], which is not elementwise over whole arrays")


def _box(part: Slice) -> Box:
    return Box(part.offsets, part.extents, part.kept)


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
