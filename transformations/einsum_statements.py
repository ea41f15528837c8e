"""Reads an SDFG as a list of statements over whole tensors: einsums, elementwise operations, loops around them."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from string import ascii_letters
from typing import Any, NoReturn

from dace import SDFG, SDFGState, data, dtypes, symbolic
from dace.frontend.operations import detect_reduction_type
from dace.sdfg import nodes
from dace.sdfg import utils as sdutil
from dace.sdfg.state import ControlFlowRegion, LoopRegion
from dace.transformation.dataflow import TaskletFusion
from dace.transformation.passes.analysis import loop_analysis
from sympy import SympifyError

from dace_redist.einsum.expression import Einsum
from dace_redist.einsum.statement import Statement
from dace_redist.transformations.library_node_einsums import einsum_of
from dace_redist.transformations.steps import Loop, Step, source_line


def logical_shape(descriptor: data.Data) -> tuple[Any, ...]:
    """Shape of a tensor; none for a scalar, which DaCe may hold in an array of one element."""
    shape = tuple(descriptor.shape)
    return () if isinstance(descriptor, data.Scalar) or shape == (1,) else shape


def read_statements(sdfg: SDFG, sizes: dict[str, int]) -> tuple[Step | Loop, ...]:
    """
    The statements of a simplified SDFG.

    :param sdfg: Each of its states holds einsums (library nodes), elementwise maps and copies of whole arrays. Several
        operations in one map become one; nothing else is changed.
    :param sizes: Values of symbols, to count how often a loop runs.
    :return: Steps and loops in the order of the program.
    :raises ValueError: If something is none of these; says which statement of the program and why.
    """
    for name, descriptor in sdfg.arrays.items():
        if type(descriptor) not in (data.Array, data.Scalar):
            hint = (
                "; DaCe makes views when it takes an einsum apart: pass the @dace.program itself, or Einsum nodes"
                if isinstance(descriptor, data.View)
                else ""
            )
            kind = type(descriptor).__name__
            raise ValueError(f'"{name}" is of type {kind}: only arrays and scalars can be distributed{hint}')
    sdfg.apply_transformations_repeated(TaskletFusion, validate=False)
    return tuple(_Reader(sdfg, sizes).region(sdfg, Repeated()))


@dataclass(frozen=True)
class Repeated:
    """How often something runs, and the loops around it, the outermost first."""

    times: int = 1
    loops: tuple[str, ...] = ()


class _Reader:
    def __init__(self, sdfg: SDFG, sizes: dict[str, int]) -> None:
        self._sdfg = sdfg
        self._sizes = sizes

    def region(self, region: ControlFlowRegion, around: Repeated) -> Iterator[Step | Loop]:
        blocks = list(region.nodes())
        edges = region.edges()
        if any(not edge.data.is_unconditional() for edge in edges) or len(edges) != len(blocks) - 1:
            raise ValueError(f"{region.label}: branches cannot be distributed; only straight code and for loops can")
        for block in sdutil.dfs_topological_sort(region, [region.start_block]):
            for edge in region.out_edges(block):
                if edge.data.assignments:
                    given = ", ".join(f"{k} = {v}" for k, v in edge.data.assignments.items())
                    raise ValueError(f"{region.label}: {given} cannot be distributed: it sets a symbol")
            yield from self._block(block, around)

    def _block(self, block: Any, around: Repeated) -> Iterator[Step | Loop]:
        if isinstance(block, SDFGState):
            for node in sdutil.dfs_topological_sort(block, block.source_nodes()):
                yield from self._node(node, block, around)
        elif isinstance(block, LoopRegion):
            count = self._iterations(block)
            inside = Repeated(around.times * count, (*around.loops, block.label))
            yield Loop(block, tuple(self.region(block, inside)), count)
        else:
            raise ValueError(f"{block.label}: a {type(block).__name__} cannot be distributed; only for loops can")

    def _iterations(self, loop: LoopRegion) -> int:
        readers = (loop_analysis.get_init_assignment, loop_analysis.get_loop_end, loop_analysis.get_loop_stride)
        first, last, step = (read(loop) for read in readers)
        if first is None or last is None or step is None:
            condition = loop.loop_condition.as_string
            raise ValueError(f"{loop.label}: only loops over a range can be distributed, got one while {condition}")
        count = symbolic.simplify((last - first) // step + 1).subs(self._sizes)
        return max(1, int(count)) if count.is_Integer else 1

    def _node(self, node: nodes.Node, state: SDFGState, around: Repeated) -> Iterator[Step]:
        if state.entry_node(node) is not None or isinstance(node, nodes.MapExit):
            return  # read with its map
        if isinstance(node, nodes.LibraryNode):
            yield from self._library_node(node, state, around)
        elif isinstance(node, nodes.MapEntry):
            yield from self._map(node, state, around)
        elif isinstance(node, nodes.AccessNode):
            yield from self._copies(node, state, around)
        elif isinstance(node, nodes.Tasklet):
            yield from self._tasklet(node, state, {}, around)
        else:
            _refuse(node, state, f"a {type(node).__name__} cannot be distributed")

    def _library_node(self, node: nodes.LibraryNode, state: SDFGState, around: Repeated) -> Iterator[Step]:
        edges = {edge.dst_conn or "": edge for edge in state.in_edges(node)}
        (out,) = state.out_edges(node)
        shapes = {connector: self._whole(edge.data, node, state) for connector, edge in edges.items()}
        self._whole(out.data, node, state)
        try:
            found = einsum_of(node, shapes, len(logical_shape(self._sdfg.arrays[out.data.data])))
        except ValueError as error:
            _refuse(node, state, str(error))
        if found is None:
            _refuse(node, state, f"{type(node).__name__} is neither an einsum nor elementwise")
        einsum, result = found.einsum, out.data.data
        operands = tuple(edges[connector].data.data for connector in found.connectors)
        added = edges[found.added].data.data if found.added in edges else result
        yield from self._einsum(
            _statement(einsum, operands, result, node, state, around), found.alpha, found.beta, added
        )

    def _einsum(self, statement: Statement, alpha: Any, beta: Any, added: str) -> Iterator[Step]:
        """``result = alpha * einsum(operands) + beta * added``."""
        if symbolic.equal_valued(0, beta):
            yield Step(statement, alpha)
            return
        product = self._sdfg.add_temp_transient_like(self._sdfg.arrays[statement.result])[0]
        yield Step(replace(statement, result=product), alpha)
        indices = statement.einsum.result
        both = Einsum((indices, indices), indices)
        sum_ = replace(statement, einsum=both, operands=(product, added), elementwise=True)
        code = f"_out = _product + {symbolic.symstr(beta)} * _added"
        yield Step(sum_, 1, code, ("_product", "_added"), "_out")

    def _whole(self, memlet: Any, node: nodes.Node, state: SDFGState) -> tuple[Any, ...]:
        """Logical shape of the array that a memlet covers as a whole."""
        array = self._sdfg.arrays[memlet.data]
        sizes = zip(memlet.subset.ndrange(), array.shape, strict=True)
        if any(begin != 0 or step != 1 or not _equal(end + 1, extent) for (begin, end, step), extent in sizes):
            _refuse(
                node,
                state,
                f"it uses a part of {memlet.data}, {memlet.data}[{memlet.subset}]; only whole arrays can be",
            )
        if memlet.wcr is not None and not isinstance(node, nodes.LibraryNode):
            _refuse(node, state, f"it adds to {memlet.data}")
        return logical_shape(array)

    def _copies(self, source: nodes.AccessNode, state: SDFGState, around: Repeated) -> Iterator[Step]:
        for edge in state.out_edges(source):
            if not isinstance(edge.dst, nodes.AccessNode):
                continue
            for array in (edge.src.data, edge.dst.data):
                shape = logical_shape(self._sdfg.arrays[array])
                if not _equal(edge.data.num_elements(), self._sdfg.arrays[array].total_size):
                    _refuse(source, state, f"it copies a part of {array}; only whole arrays can be copied")
            indices = ascii_letters[: len(shape)]
            identity = Einsum((indices,), indices)
            copied = _statement(identity, (edge.src.data,), edge.dst.data, source, state, around, elementwise=True)
            yield Step(copied, 1, "_out = _in", ("_in",), "_out")

    def _map(self, entry: nodes.MapEntry, state: SDFGState, around: Repeated) -> Iterator[Step]:
        inside = [n for n in state.scope_children()[entry] if not isinstance(n, nodes.MapExit)]
        tasklets = [n for n in inside if isinstance(n, nodes.Tasklet)]
        if len(tasklets) != 1 or not all(n is tasklets[0] or _passes_an_element(n, state) for n in inside):
            _refuse(entry, state, "its map holds more than one operation; write expressions of whole arrays")
        extents = {}
        for parameter, (begin, end, step) in zip(entry.map.params, entry.map.range.ndrange(), strict=True):
            if begin != 0 or step != 1:
                _refuse(
                    entry,
                    state,
                    f"its index {parameter} runs over {begin}:{end + 1}:{step}, not over a whole dimension",
                )
            extents[parameter] = end + 1
        yield from self._tasklet(tasklets[0], state, extents, around)

    def _tasklet(
        self, tasklet: nodes.Tasklet, state: SDFGState, extents: dict[str, Any], around: Repeated
    ) -> Iterator[Step]:
        letters = dict(zip(extents, ascii_letters, strict=False))
        spare = iter(ascii_letters[len(extents) :])
        self._check_readable(tasklet, state, extents)
        reads = [(edge.dst_conn, _read_memlet(edge, state)) for edge in state.in_edges(tasklet)]
        reads = [(connector, memlet) for connector, memlet in reads if memlet.data is not None]
        (write,) = (edge for edge in state.out_edges(tasklet) if edge.data.data is not None)
        operands = [self._indices(memlet, extents, letters, spare, tasklet, state) for _, memlet in reads]
        result = self._indices(write.data, extents, letters, spare, tasklet, state)
        names = tuple(memlet.data for _, memlet in reads)
        if write.data.wcr is not None:
            alpha = _factor_of_product(tasklet)
            if alpha is None or detect_reduction_type(write.data.wcr) != dtypes.ReductionType.Sum:
                _refuse(tasklet, state, f"it combines values by {write.data.wcr}; only sums of products are supported")
            statement = _statement(Einsum(tuple(operands), result), names, write.data.data, tasklet, state, around)
            yield from self._einsum(statement, alpha, 1, write.data.data)
            return
        if set(letters.values()) - set(result):
            _refuse(tasklet, state, "it is neither elementwise nor an einsum: not every index is one of the result's")
        if not reads:  # a constant; its own tensor stands for the shape
            operands, names = [result], (write.data.data,)
        einsum = Einsum(tuple(operands), result)
        statement = _statement(einsum, names, write.data.data, tasklet, state, around, elementwise=True)
        inputs = tuple(connector for connector, _ in reads)
        yield Step(statement, 1, tasklet.code.as_string, inputs, write.src_conn)

    def _check_readable(self, tasklet: nodes.Tasklet, state: SDFGState, extents: dict[str, Any]) -> None:
        if tasklet.language != dtypes.Language.Python:
            _refuse(tasklet, state, f"a tasklet in {tasklet.language} cannot be read")
        used = {str(name) for name in tasklet.free_symbols} & set(extents)
        if used:
            _refuse(tasklet, state, f"it computes with its index {', '.join(sorted(used))}, which is not elementwise")
        writes = [edge for edge in state.out_edges(tasklet) if edge.data.data is not None]
        if len(writes) != 1:
            _refuse(tasklet, state, f"it has {len(writes)} results, not one")

    def _indices(
        self, memlet: Any, extents: dict[str, Any], letters: dict[str, str], spare: Iterator[str], node: Any, state: Any
    ) -> str:
        """The index string by which a map reads or writes an array, one letter for each dimension."""
        array, found = self._sdfg.arrays[memlet.data], ""
        if not logical_shape(array):
            return found
        for (begin, end, _), extent in zip(memlet.subset.ndrange(), array.shape, strict=True):
            name = str(begin)
            if _equal(begin, 0) and _equal(extent, 1):
                found += next(spare)
            elif name in letters and _equal(begin, end) and _equal(extents[name], extent):
                found += letters[name]
            else:
                _refuse(
                    node, state, f"it uses {memlet.data}[{memlet.subset}], which is not elementwise over whole arrays"
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


def _equal(a: Any, b: Any) -> bool:
    """Whether two sizes are the same whatever the symbols; those of one name may be different objects."""
    difference = symbolic.simplify(symbolic.pystr_to_symbolic(f"({symbolic.symstr(a)}) - ({symbolic.symstr(b)})"))
    return bool(difference == 0)


def _statement(
    einsum: Einsum,
    operands: tuple[str, ...],
    result: str,
    node: nodes.Node,
    state: SDFGState,
    around: Repeated,
    elementwise: bool = False,
) -> Statement:
    return Statement(einsum, operands, result, _where(node, state), elementwise, around.times, around.loops)


def _where(node: nodes.Node, state: SDFGState) -> str:
    """The statement a node comes from, as far as DaCe knows."""
    return source_line(getattr(node, "debuginfo", None)) or f"{state.label}: {node.label}"


def _refuse(node: nodes.Node, state: SDFGState, why: str) -> NoReturn:
    raise ValueError(f"{_where(node, state)}: cannot be distributed: {why}")
