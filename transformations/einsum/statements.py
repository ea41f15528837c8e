"""Reads an SDFG as a list of statements over whole tensors: einsums, linear systems, elementwise operations."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from string import ascii_letters
from typing import Any

from dace import SDFG, SDFGState, data, symbolic
from dace.sdfg import nodes
from dace.sdfg import utils as sdutil
from dace.sdfg.state import BreakBlock, ConditionalBlock, ContinueBlock, ControlFlowRegion, LoopRegion
from dace.subsets import Range
from dace.transformation.dataflow import TaskletFusion
from dace.transformation.passes.analysis import loop_analysis

from dace_redist.library_nodes.node import simplified
from dace_redist.transformations.einsum.library_node_einsums import einsum_of
from dace_redist.transformations.einsum.map_statements import map_steps, tasklet_steps
from dace_redist.transformations.einsum.node_order import in_order
from dace_redist.transformations.einsum.operand_types import with_equal_types
from dace_redist.transformations.einsum.parts import box_of, read_part, reshaped, same_shape, written_part
from dace_redist.transformations.einsum.reading import SourceLocation, einsum_steps, equal, logical_shape
from dace_redist.transformations.einsum.steps import (
    Assignment,
    Body,
    Branch,
    Item,
    Jump,
    Loop,
    Step,
    all_items,
    all_steps,
)

#: Label of each loop around something, the outermost first, and how often it runs.
Loops = tuple[tuple[str, int], ...]


def read_statements(sdfg: SDFG, sizes: dict[str, int]) -> tuple[Item, ...]:
    """
    The statements of a simplified SDFG.

    :param sdfg: Each of its states holds library nodes (einsums, linear systems), elementwise maps and copies of boxes
        of arrays. Several operations in one map become one, views become arrays; nothing else is changed.
    :param sizes: Values of symbols, to count how often a loop runs.
    :return: Steps, loops and branches in the order of the program.
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
            if type(descriptor) in (data.ArrayView, data.View):  # what it shows is copied to it
                made = data.Array(descriptor.dtype, descriptor.shape, strides=descriptor.strides, transient=True)
                sdfg.arrays[node.data] = made
            elif type(descriptor) not in (data.Array, data.Scalar):
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
        self._labels: Counter[str] = Counter()

    # Loops and branches

    def region(self, region: ControlFlowRegion, loops: Loops = ()) -> Iterator[Item]:
        blocks = list(region.nodes())
        edges = region.edges()
        if any(not edge.data.is_unconditional() for edge in edges) or len(edges) != len(blocks) - 1:
            raise ValueError(f"{region.label}: its branches cannot be read; write them as if, while and for")
        for block in sdutil.dfs_topological_sort(region, [region.start_block]):
            yield from self._block(block, loops)
            for edge in region.out_edges(block):
                if edge.data.assignments:
                    values = dict(edge.data.assignments)
                    yield Assignment(values, self._scalars(values.values(), ", ".join(values.values())))

    def _within(self, loops: Loops, label: str, repeats: int) -> Loops:
        """The loops and branches around what is in one more, whose label may stand elsewhere, too."""
        self._labels[label] += 1
        number = self._labels[label]
        return (*loops, (label if number == 1 else f"{label}_{number}", repeats))

    def _block(self, block: Any, loops: Loops) -> Iterator[Item]:
        if isinstance(block, SDFGState):
            for node in in_order(block):
                yield from self._node(node, block, loops)
        elif isinstance(block, LoopRegion):
            yield self._loop(block, loops)
        elif isinstance(block, ConditionalBlock):
            conditions = [condition.as_string for condition, _ in block.branches if condition is not None]
            scalars = self._scalars(conditions, f"if {conditions[0]}")
            bodies = [tuple(self.region(body, self._within(loops, body.label, 1))) for _, body in block.branches]
            yield Branch(block, tuple(bodies), scalars)
        elif isinstance(block, BreakBlock | ContinueBlock):
            yield Jump(type(block))
        else:
            raise ValueError(
                f"{block.label}: a {type(block).__name__} cannot be distributed; only if, while and for can"
            )

    def _scalars(self, expressions: Iterable[str], where: str) -> tuple[str, ...]:
        """The scalars that conditions and the values of symbols read."""
        names = {node.id for text in expressions for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        found = sorted(names & set(self._sdfg.arrays))
        for name in found:
            if logical_shape(self._sdfg.arrays[name]):
                raise ValueError(
                    f"{where}: a condition or index reads an element of {name}, which one rank has; assign it to a "
                    f"scalar first, as in s = 1.0 * {name}[0], or take one of the whole array, as np.max({name})"
                )
        return tuple(found)

    def _loop(self, loop: LoopRegion, loops: Loops) -> Loop:
        readers = (loop_analysis.get_init_assignment, loop_analysis.get_loop_end, loop_analysis.get_loop_stride)
        first, last, step = (read(loop) for read in readers)
        scalars = self._scalars([loop.loop_condition.as_string], f"while {loop.loop_condition.as_string}")
        repeats, certain = 1, False
        if first is not None and last is not None and step is not None:
            used = {name for bound in (first, last, step) for name in symbolic.symlist(bound)}
            values = sorted(used & set(self._sdfg.arrays))
            if values:
                raise ValueError(
                    f"{loop.label}: the bounds of a loop are numbers, sizes or indices of other loops, but this one's "
                    f"depend on {', '.join(values)}: make it a dace.symbol"
                )
            count = simplified((last - first) // step + 1)
            known = symbolic.evaluate(count, self._sizes) if used <= set(self._sizes) else None
            repeats = 1 if known is None else max(1, int(known))
            certain = bool(count.is_Integer and count > 0)
        body = tuple(self.region(loop, self._within(loops, loop.label, repeats)))
        certain = certain and not any(isinstance(item, Jump) for item in all_items(body))
        return Loop(loop, body, repeats, certain, scalars)

    # Statements

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
        read: dict[str, str] = {}
        for edge in location.state.in_edges(node):
            box = box_of(edge.data.subset, self._sdfg.arrays[edge.data.data], location)
            read[edge.dst_conn or ""] = edge.data.data
            if not box.is_whole(self._sdfg.arrays[edge.data.data]):
                step = read_part(self._sdfg, edge.data.data, box, location)
                read[edge.dst_conn or ""] = step.statement.result
                yield step
        (out,) = location.state.out_edges(node)
        if out.data.wcr is not None:
            location.refuse(f"it combines values by {out.data.wcr}")
        written = box_of(out.data.subset, self._sdfg.arrays[out.data.data], location)
        if written.is_whole(self._sdfg.arrays[out.data.data]):
            yield from self._einsum(node, read, out.data.data, location)
            return
        step = read_part(self._sdfg, out.data.data, written, location)
        result = step.statement.result
        steps = list(self._einsum(node, read, result, location))
        if any(result in step.read for step in steps):  # it adds to what is there
            yield step
        yield from steps
        yield written_part(self._sdfg, out.data.data, written, result, location)

    def _einsum(
        self, node: nodes.LibraryNode, read: dict[str, str], result: str, location: SourceLocation
    ) -> Iterator[Step]:
        shapes = {connector: self._shape(name) for connector, name in read.items()}
        try:
            found = einsum_of(node, shapes)
        except ValueError as error:
            location.refuse(str(error))
        if found is None:
            location.refuse(f"{type(node).__name__} is neither an einsum nor a linear system nor elementwise")
        einsum, operands = found.einsum, tuple(read[connector] for connector in found.connectors)
        added = read.get(found.added or "", result)
        indices = [self._logical(term, name) for term, name in zip(einsum.operands, operands, strict=True)]
        to = self._logical(einsum.result, result)
        alone = set(to) - set("".join(indices))  # indices of operands of one element, which are scalars
        if alone and not found.solves and symbolic.equal_valued(0, found.beta):
            yield from self._with_ones(indices, operands, to, result, found.alpha, location)
            return
        statement = location.statement(tuple(indices), operands, to, result, solves=found.solves)
        if found.reduction:
            yield Step(statement, reduction=found.reduction)
            return
        yield from einsum_steps(self._sdfg, statement, found.alpha, found.beta, added)

    def _with_ones(
        self,
        indices: Sequence[str],
        operands: tuple[str, ...],
        to: str,
        result: str,
        alpha: Any,
        location: SourceLocation,
    ) -> Iterator[Step]:
        """An einsum whose result has dimensions of one element that no operand has."""
        array = self._sdfg.arrays[result]
        kept = [index for index in to if index in "".join(indices)]
        shape = [extent for index, extent in zip(to, array.shape, strict=True) if index in kept]
        product = str(self._sdfg.add_temp_transient(shape or [1], array.dtype)[0])
        einsum = (tuple(indices), operands, self._logical("".join(kept), product), product)
        yield Step(location.statement(*einsum), alpha)
        yield reshaped(self._sdfg, product, result, location)

    def _shape(self, name: str) -> tuple[Any, ...]:
        """Shape of an array; none for a scalar."""
        array = self._sdfg.arrays[name]
        return () if isinstance(array, data.Scalar) else tuple(array.shape)

    def _logical(self, indices: str, name: str) -> str:
        """An array of one element has no index: it is a scalar."""
        return indices if logical_shape(self._sdfg.arrays[name]) else ""

    def _copies(self, source: nodes.AccessNode, location: SourceLocation) -> Iterator[Step]:
        for edge in location.state.out_edges(source):
            if isinstance(edge.dst, nodes.AccessNode) and not edge.data.is_empty():
                if edge.data.wcr is not None:
                    location.refuse(f"it combines values by {edge.data.wcr}")
                yield from self._copy(edge, SourceLocation(edge.dst, location.state, location.loops))

    def _copy(self, edge: Any, location: SourceLocation) -> Iterator[Step]:
        """Copies a box of one array to a box of another one of as many elements."""
        name, target = edge.src.data, edge.dst.data
        arrays, boxes = self._sdfg.arrays, []
        subsets = (edge.data.get_src_subset(edge, location.state), edge.data.get_dst_subset(edge, location.state))
        for array, subset in zip((arrays[name], arrays[target]), subsets, strict=True):
            subset = Range.from_array(array) if subset is None else subset
            boxes.append(box_of(subset, array, location))
        whole = [box.is_whole(arrays[at]) for box, at in zip(boxes, (name, target), strict=True)]
        if not whole[0]:
            if whole[1]:
                boxes[0] = box_of(subsets[0], arrays[name], location, len(logical_shape(arrays[target])))
            step = read_part(self._sdfg, name, boxes[0], location)
            name = step.statement.result
            yield step
        shape = logical_shape(arrays[name])
        wanted = logical_shape(arrays[target]) if whole[1] else boxes[1].shape
        if not same_shape(shape, wanted):
            if not equal(math.prod(shape), math.prod(wanted)):
                location.refuse(f"it copies {shape} elements of {edge.src.data} to {wanted} of {target}")
            other = target if whole[1] else self._sdfg.add_temp_transient(wanted or [1], arrays[name].dtype)[0]
            yield reshaped(self._sdfg, name, other, location)
            name = other
        if not whole[1]:
            yield written_part(self._sdfg, target, boxes[1], name, location)
        elif name != target:
            indices = ascii_letters[: len(shape)]
            copied = location.statement((indices,), (name,), indices, target, elementwise=True)
            yield Step(copied, 1, "_out = _in", ("_in",), "_out")
