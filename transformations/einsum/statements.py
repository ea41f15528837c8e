"""Reads an SDFG as a list of statements over whole tensors: einsums, linear systems, elementwise operations, loops."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_letters
from typing import Any

from dace import SDFG, SDFGState, data, symbolic
from dace.sdfg import nodes
from dace.sdfg import utils as sdutil
from dace.sdfg.state import ControlFlowRegion, LoopRegion
from dace.transformation.dataflow import TaskletFusion
from dace.transformation.passes.analysis import loop_analysis

from dace_redist.transformations.einsum.library_node_einsums import einsum_of
from dace_redist.transformations.einsum.map_statements import map_steps, tasklet_steps
from dace_redist.transformations.einsum.node_order import in_order
from dace_redist.transformations.einsum.operand_types import with_equal_types
from dace_redist.transformations.einsum.reading import SourceLocation, einsum_steps, equal, logical_shape
from dace_redist.transformations.einsum.steps import Body, Loop, Step, all_steps

#: Label of each loop around something, the outermost first, and how often it runs.
Loops = tuple[tuple[str, int], ...]


def read_statements(sdfg: SDFG, sizes: dict[str, int]) -> tuple[Step | Loop, ...]:
    """
    The statements of a simplified SDFG.

    :param sdfg: Each of its states holds library nodes (einsums, linear systems), elementwise maps and copies of whole
        arrays. Several operations in one map become one; nothing else is changed.
    :param sizes: Values of symbols, to count how often a loop runs.
    :return: Steps and loops in the order of the program.
    :raises ValueError: If something is none of these; says which statement of the program and why.
    """
    _check_arrays(sdfg)
    sdfg.apply_transformations_repeated(TaskletFusion, validate=False)
    body = with_equal_types(tuple(_Reader(sdfg, sizes).region(sdfg)), sdfg)
    given = {name for name, array in sdfg.arrays.items() if not array.transient and not name.startswith("__return")}
    _check_written(body, given)
    return body


def _check_arrays(sdfg: SDFG) -> None:
    for state in sdfg.states():
        for node in state.data_nodes():
            descriptor, location = sdfg.arrays[node.data], SourceLocation(node, state)
            if isinstance(descriptor, data.View):
                location.refuse(
                    f"it uses a part of an array, or an array in another shape ({node.data}); only whole arrays can be "
                    "distributed. Where DaCe took an einsum apart, pass the @dace.program itself"
                )
            if type(descriptor) not in (data.Array, data.Scalar):
                location.refuse(f"{node.data} is a {type(descriptor).__name__}, neither an array nor a scalar")


def _check_written(body: Body, known: set[str]) -> None:
    """
    Every tensor is given or written before it is read.

    :param known: Tensors that are given; gets those that are written.
    """
    for step in all_steps(body):
        for name in step.read:
            if name not in known:
                raise ValueError(f"{step.statement.label}: reads {name} before anything is written to it")
        known.add(step.statement.result)


class _Reader:
    def __init__(self, sdfg: SDFG, sizes: dict[str, int]) -> None:
        self._sdfg = sdfg
        self._sizes = sizes

    def region(self, region: ControlFlowRegion, loops: Loops = ()) -> Iterator[Step | Loop]:
        blocks = list(region.nodes())
        edges = region.edges()
        if any(not edge.data.is_unconditional() for edge in edges) or len(edges) != len(blocks) - 1:
            raise ValueError(f"{region.label}: branches cannot be distributed; only straight code and for loops can")
        for block in sdutil.dfs_topological_sort(region, [region.start_block]):
            for edge in region.out_edges(block):
                if edge.data.assignments:
                    given = ", ".join(f"{k} = {v}" for k, v in edge.data.assignments.items())
                    raise ValueError(f"{region.label}: {given} cannot be distributed: it sets a symbol")
            yield from self._block(block, loops)

    def _block(self, block: Any, loops: Loops) -> Iterator[Step | Loop]:
        if isinstance(block, SDFGState):
            for node in in_order(block):
                yield from self._node(node, block, loops)
        elif isinstance(block, LoopRegion):
            yield self._loop(block, loops)
        else:
            raise ValueError(f"{block.label}: a {type(block).__name__} cannot be distributed; only for loops can")

    def _loop(self, loop: LoopRegion, loops: Loops) -> Loop:
        readers = (loop_analysis.get_init_assignment, loop_analysis.get_loop_end, loop_analysis.get_loop_stride)
        first, last, step = (read(loop) for read in readers)
        if first is None or last is None or step is None:
            condition = loop.loop_condition.as_string
            raise ValueError(f"{loop.label}: only loops over a range can be distributed, got one while {condition}")
        used = {name for bound in (first, last, step) for name in symbolic.symlist(bound)}
        values = sorted(used & set(self._sdfg.arrays))
        if values:
            raise ValueError(
                f"{loop.label}: the bounds of a loop are numbers, sizes or indices of other loops, but this one's "
                f"depend on {', '.join(values)}: make it a dace.symbol"
            )
        count = symbolic.simplify((last - first) // step + 1)
        known = symbolic.evaluate(count, self._sizes) if used <= set(self._sizes) else None
        repeats = 1 if known is None else max(1, int(known))
        body = tuple(self.region(loop, (*loops, (loop.label, repeats))))
        return Loop(loop, body, repeats, bool(count.is_Integer and count > 0))

    def _node(self, node: nodes.Node, state: SDFGState, loops: Loops) -> Iterator[Step]:
        if state.entry_node(node) is not None or isinstance(node, nodes.MapExit):
            return  # read with its map
        location = SourceLocation(node, state, loops)
        if isinstance(node, nodes.LibraryNode):
            yield from self._library_node(node, location)
        elif isinstance(node, nodes.MapEntry):
            yield from map_steps(self._sdfg, node, location)
        elif isinstance(node, nodes.AccessNode):
            yield from self._copies(node, location)
        elif isinstance(node, nodes.Tasklet):
            yield from tasklet_steps(self._sdfg, node, location)
        else:
            location.refuse(f"a {type(node).__name__} cannot be distributed")

    def _library_node(self, node: nodes.LibraryNode, location: SourceLocation) -> Iterator[Step]:
        edges = {edge.dst_conn or "": edge for edge in location.state.in_edges(node)}
        (out,) = location.state.out_edges(node)
        shapes = {connector: self._whole(edge.data, location) for connector, edge in edges.items()}
        self._whole(out.data, location)
        try:
            found = einsum_of(node, shapes)
        except ValueError as error:
            location.refuse(str(error))
        if found is None:
            location.refuse(f"{type(node).__name__} is neither an einsum nor a linear system nor elementwise")
        if out.data.wcr is not None:
            location.refuse(f"it combines values by {out.data.wcr}")
        einsum, result = found.einsum, out.data.data
        operands = tuple(edges[connector].data.data for connector in found.connectors)
        added = edges[found.added].data.data if found.added in edges else result
        indices = [self._logical(term, name) for term, name in zip(einsum.operands, operands, strict=True)]
        to = self._logical(einsum.result, result)
        statement = location.statement(tuple(indices), operands, to, result, solves=found.solves)
        yield from einsum_steps(self._sdfg, statement, found.alpha, found.beta, added)

    def _whole(self, memlet: Any, location: SourceLocation) -> tuple[Any, ...]:
        """Shape of the array that a memlet covers as a whole; none for a scalar."""
        array = self._sdfg.arrays[memlet.data]
        sizes = zip(memlet.subset.ndrange(), array.shape, strict=True)
        if any(begin != 0 or step != 1 or not equal(end + 1, extent) for (begin, end, step), extent in sizes):
            location.refuse(
                f"it uses a part of {memlet.data}, {memlet.data}[{memlet.subset}]; only whole arrays can be"
            )
        return () if isinstance(array, data.Scalar) else tuple(array.shape)

    def _logical(self, indices: str, name: str) -> str:
        """An array of one element has no index: it is a scalar."""
        return indices if logical_shape(self._sdfg.arrays[name]) else ""

    def _copies(self, source: nodes.AccessNode, location: SourceLocation) -> Iterator[Step]:
        for edge in location.state.out_edges(source):
            if not isinstance(edge.dst, nodes.AccessNode):
                continue
            for array in (edge.src.data, edge.dst.data):
                if not equal(edge.data.num_elements(), self._sdfg.arrays[array].total_size):
                    location.refuse(f"it copies a part of {array}; only whole arrays can be copied")
            if edge.data.wcr is not None:
                location.refuse(f"it combines values by {edge.data.wcr}")
            indices = ascii_letters[: len(logical_shape(self._sdfg.arrays[edge.dst.data]))]
            copied = location.statement((indices,), (edge.src.data,), indices, edge.dst.data, elementwise=True)
            yield Step(copied, 1, "_out = _in", ("_in",), "_out")
