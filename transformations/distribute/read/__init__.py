"""Translation of an SDFG to statements over whole tensors: einsums, linear systems, elementwise operations."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dace import SDFG, SDFGState, data, dtypes, symbolic
from dace.sdfg import nodes
from dace.sdfg import utils as sdutil
from dace.sdfg.state import BreakBlock, ConditionalBlock, ContinueBlock, ControlFlowRegion, LoopRegion, ReturnBlock
from dace.subsets import Range
from dace.transformation.dataflow import TaskletFusion
from dace.transformation.passes.analysis import loop_analysis

from dace_redist.einsum.statement import Loop
from dace_redist.library_nodes.node import simplified
from dace_redist.transformations.distribute.ir import (
    Assignment,
    Block,
    Item,
    Operation,
    all_items,
    bounds_of,
    codes_of,
    equal,
    logical_shape,
    operations,
)
from dace_redist.transformations.distribute.read.library_nodes import statement_of
from dace_redist.transformations.distribute.read.location import (
    EARLY_RETURN,
    Location,
    Step,
    in_order,
    with_checked_box,
)
from dace_redist.transformations.distribute.read.maps import TaskletReader, map_operations
from dace_redist.transformations.distribute.read.sizes import count_in_integers
from dace_redist.transformations.patterns import is_named_by_edges

#: Label and mean number of iterations of each surrounding loop, the outermost first.
Loops = tuple[Loop, ...]


def read_statements(sdfg: SDFG, sizes: dict[str, int]) -> tuple[Item, ...]:
    """
    Return the statements of a simplified SDFG, with the loops and branches around them, in the order of the program.

    :param sdfg: Each of its states holds library nodes (einsums, linear systems), elementwise maps and copies of boxes
        of arrays. Several operations in one map become one, views become arrays; nothing else is changed.
    :param sizes: Values of symbols, to count iterations of loops.
    :raises ValueError: If it has other contents, or a tensor is read before it is written; names the statement.
    """
    count_in_integers(sdfg)
    _check_arrays(sdfg)
    sdfg.apply_transformations_repeated(_FuseTasklets, validate=False)
    body = tuple(_Reader(sdfg, sizes).region(sdfg))
    known = {name for name, array in sdfg.arrays.items() if not array.transient and not name.startswith("__return")}
    bounds_of(sdfg, body)  # which are checked
    for operation in operations(body):
        unknown = [name for name in operation.read if name not in known]
        if unknown:
            raise ValueError(f"{operation.label}: reads {unknown[0]} before anything is written to it")
        known.add(operation.result)
    return body


class _FuseTasklets(TaskletFusion):
    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True unless the scalar in between is an output, or part of a condition or index."""
        if not sdfg.arrays[self.data.data].transient:
            return False
        found = super().can_be_applied(graph, expr_index, sdfg, permissive)
        return found and not is_named_by_edges(sdfg, self.data.data)


def _check_arrays(sdfg: SDFG) -> None:
    for state in sdfg.states():
        for node in state.data_nodes():
            descriptor = sdfg.arrays[node.data]
            if type(descriptor) in (data.ArrayView, data.View):  # becomes a copy of its array
                array = data.Array(descriptor.dtype, descriptor.shape, strides=descriptor.strides, transient=True)
                array.debuginfo = descriptor.debuginfo
                sdfg.arrays[node.data] = array
            elif type(descriptor) not in (data.Array, data.Scalar):
                kind = type(descriptor).__name__
                Location(sdfg, node, state).refuse(f"{node.data} is a {kind}, neither an array nor a scalar")


class _Reader:
    def __init__(self, sdfg: SDFG, sizes: dict[str, int]) -> None:
        self._sdfg = sdfg
        self._values: dict[str, float] = dict(sizes)  # and the mean of each surrounding loop's variable
        self._sizes = sizes
        #: First and last value, and step, of variables of loops whose iterations all run, the outermost first.
        self._ends: dict[str, tuple[Any, Any, Any]] = {}
        self._labels: Counter[str] = Counter()

    # Loops and branches

    def region(self, region: ControlFlowRegion, loops: Loops = ()) -> Iterator[Item]:
        blocks, edges = list(region.nodes()), region.edges()
        if any(not edge.data.is_unconditional() for edge in edges) or len(edges) != len(blocks) - 1:
            raise ValueError(f"{region.label}: its branches cannot be read; write them as if, while and for")
        for block in sdutil.dfs_topological_sort(region, [region.start_block]):
            yield from self._block(block, loops)
            for edge in region.out_edges(block):
                if edge.data.assignments:
                    values = dict(edge.data.assignments)
                    yield Assignment(values, self._scalars(values.values(), ", ".join(values.values())))

    def _within(self, loops: Loops, label: str, *facts: Any) -> Loops:
        """Return the loops and branches of a body, each under a unique name."""
        self._labels[label] += 1
        number = self._labels[label]
        return (*loops, Loop(label if number == 1 else f"{label}_{number}", *facts))

    def _block(self, block: Any, loops: Loops) -> Iterator[Item]:
        if isinstance(block, SDFGState):
            for node in in_order(block):
                for operation in self._node(node, block, loops):
                    yield with_checked_box(operation, self._sdfg, self._sizes, self._ends)
        elif isinstance(block, LoopRegion):
            yield self._loop(block, loops)
        elif isinstance(block, ConditionalBlock):
            conditions = [code.as_string for code in codes_of(block)]
            scalars = self._scalars(conditions, f"if {conditions[0]}")
            ends, self._ends = self._ends, {}
            inside = self._within(loops, block.label)
            bodies = [tuple(self.region(body, self._within(inside, body.label, 1, True))) for _, body in block.branches]
            self._ends = ends
            yield Block(block, tuple(bodies), scalars)
        elif isinstance(block, BreakBlock | ContinueBlock):
            yield type(block)
        elif isinstance(block, ReturnBlock):
            raise ValueError(f"{block.label}: {EARLY_RETURN}")
        else:
            kind = type(block).__name__
            raise ValueError(f"{block.label}: a {kind} cannot be distributed; only if, while and for can")

    def _scalars(self, expressions: Iterable[str], where: str) -> tuple[str, ...]:
        """Return the scalars that conditions and the values of symbols read."""
        names = {node.id for text in expressions for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        scalars = sorted(names & set(self._sdfg.arrays))
        for name in scalars:
            if logical_shape(self._sdfg.arrays[name]):
                raise ValueError(
                    f"{where}: a condition or index reads an element of {name}, which one rank has; assign it to a "
                    f"scalar first, as in s = 1.0 * {name}[0], or take one of the whole array, as np.max({name})"
                )
        return tuple(scalars)

    def _loop(self, loop: LoopRegion, loops: Loops) -> Block:
        readers = (loop_analysis.get_init_assignment, loop_analysis.get_loop_end, loop_analysis.get_loop_stride)
        first, last, step = (read(loop) for read in readers)
        scalars = self._scalars([code.as_string for code in codes_of(loop)], f"while {loop.loop_condition.as_string}")
        repeats, certain, used = 1.0, False, set[str]()
        if first is not None and last is not None and step is not None:
            used = {name for bound in (first, last, step) for name in symbolic.symlist(bound)}
            count = simplified((last - first) // step + 1)
            if used <= set(self._values):
                start, end, stride = (float(symbolic.evaluate(bound, self._values)) for bound in (first, last, step))
                repeats = max(0.0, (end - start) / stride + 1)
                if start.is_integer() and end.is_integer() and stride.is_integer():
                    repeats = math.floor(repeats)
                self._values[loop.loop_variable] = start + (repeats - 1) * stride / 2
                jumps = any(isinstance(one, BreakBlock | ContinueBlock) for one in loop.all_control_flow_blocks())
                if used <= {*self._sizes, *self._ends} and not jumps:
                    self._ends[loop.loop_variable] = (first, last, step)
            certain = bool(count.is_Integer and count > 0)
        body = tuple(self.region(loop, self._within(loops, loop.label, repeats)))
        self._ends.pop(loop.loop_variable, None)
        certain = certain and not any(isinstance(item, type) for item in all_items(body))
        self._check_bounds(loop, used, set(symbolic.symlist(step)) if used else set(), body)
        return Block(loop, (body,), scalars, certain)

    def _check_bounds(self, loop: LoopRegion, used: set[str], of_step: set[str], body: Sequence[Item]) -> None:
        """Check what the bounds of a loop read: as in Python, it has one value, and a scalar is an integer."""
        changed = {operation.result for operation in operations(body)}
        for item in all_items(body):
            changed |= set(item.values) if isinstance(item, Assignment) else set()
            changed |= {item.region.loop_variable} if isinstance(getattr(item, "region", None), LoopRegion) else set()
        for name in sorted(used):
            kind = self._sdfg.arrays[name].dtype if name in self._sdfg.arrays else None
            if name in changed:
                what = "changes in it"
            elif kind is not None and name in of_step:
                what = "is its step"
            elif kind is not None and kind not in dtypes.INTEGER_TYPES:
                what = "is no integer"
            else:
                continue
            within = (item for item in loop.all_nodes_recursive() if isinstance(item[1], SDFGState))
            where = next((str(Location(self._sdfg, *item)) for item in within), loop.label)
            raise ValueError(
                f"{where}: the bounds of a loop are sizes, indices of other loops or integers, but {name} of the loop "
                f"around it {what}: take another variable, or a dace.symbol"
            )

    # Statements

    def _node(self, node: nodes.Node, state: SDFGState, loops: Loops) -> Iterator[Operation]:
        if state.entry_node(node) is not None or isinstance(node, nodes.MapExit):
            return  # read with its map
        location = Location(self._sdfg, node, state, loops)
        if isinstance(node, nodes.LibraryNode):
            yield from _library_node(node, location)
        elif isinstance(node, nodes.MapEntry):
            yield from map_operations(node, location)
        elif isinstance(node, nodes.AccessNode):
            for edge in state.out_edges(node):
                if isinstance(edge.dst, nodes.AccessNode) and not edge.data.is_empty():
                    yield from _copy(edge, location)
        elif isinstance(node, nodes.Tasklet):
            yield from TaskletReader(node, location, {}).operations()
        else:
            location.refuse(f"a {type(node).__name__} cannot be distributed")


def _library_node(node: nodes.LibraryNode, location: Location) -> Iterator[Operation]:
    read: dict[str, str] = {}
    for edge in location.state.in_edges(node):
        box = location.box_of(edge.data.subset, edge.data.data)
        read[edge.dst_conn or ""] = edge.data.data
        if not box.is_whole(location.array(edge.data.data)):
            part = location.read_box(edge.data.data, box)
            read[edge.dst_conn or ""] = part.result
            yield part
    (out,) = location.state.out_edges(node)
    if out.data.wcr is not None:
        location.refuse(f"it combines values by {out.data.wcr}")
    name = out.data.data
    written = location.box_of(out.data.subset, name)
    if written.is_whole(location.array(name)):
        yield from _statements(node, read, name, location)
        return
    part = location.read_box(name, written)
    computed = list(_statements(node, read, part.result, location))
    if any(part.result in operation.read for operation in computed):  # it adds to its result
        yield part
    yield from computed
    yield location.written_box(name, written, part.result)


def _statements(node: nodes.LibraryNode, read: dict[str, str], result: str, location: Location) -> Iterator[Operation]:
    """Yield the statements of a library node, given its tensors by connector."""
    arrays = {connector: location.array(name) for connector, name in read.items()}
    shapes = {key: () if isinstance(array, data.Scalar) else tuple(array.shape) for key, array in arrays.items()}
    try:
        found = statement_of(node, shapes)
    except ValueError as error:
        location.refuse(str(error))
    operands = tuple(read[connector] for connector in found.operands)
    names = zip((*found.einsum.operands, found.einsum.result), (*operands, result), strict=True)
    # an array of one element has no index: it is a scalar
    *terms, to = (indices if location.shape(name) else "" for indices, name in names)
    facts = {"alpha": found.alpha, "reduction": found.reduction, "solves": found.solves}
    alone = set(to) - set("".join(terms))
    if alone and not found.solves and symbolic.equal_valued(0, found.beta):
        yield from _with_ones(terms, operands, to, result, found.alpha, location)
        return
    if not found.reduction and not symbolic.equal_valued(0, found.beta):
        facts |= {"beta": found.beta, "added": read[found.added] if found.added else result}
    yield from location.in_steps(location.statement(tuple(terms), operands, to, result, **facts))


def _with_ones(
    terms: Sequence[str], operands: tuple[str, ...], to: str, result: str, alpha: Any, location: Location
) -> Iterator[Operation]:
    """Yield an einsum whose result has dimensions of one element that no operand has."""
    kept = "".join(index for index in to if index in "".join(terms))
    extents = zip(to, location.array(result).shape, strict=True)
    product = location.new([extent for index, extent in extents if index in kept], result)
    yield location.statement(tuple(terms), operands, kept if location.shape(product) else "", product, alpha=alpha)
    yield location.reshaped(product, result)


def _copy(edge: Any, source: Location) -> Iterator[Operation]:
    """Yield the copies of a box of one array to a box of another one of as many elements."""
    if edge.data.wcr is not None:
        source.refuse(f"it combines values by {edge.data.wcr}")
    location, name, target = source.at(edge.dst), edge.src.data, edge.dst.data
    arrays, state = [location.array(name), location.array(target)], location.state
    subsets = [edge.data.get_src_subset(edge, state), edge.data.get_dst_subset(edge, state)]
    subsets = [Range.from_array(a) if subset is None else subset for a, subset in zip(arrays, subsets, strict=True)]
    boxes = [location.box_of(subset, end) for subset, end in zip(subsets, (name, target), strict=True)]
    whole = [box.is_whole(array) for box, array in zip(boxes, arrays, strict=True)]
    spread = Step.all_of(subsets[1], boxes[1])
    wanted = location.shape(target) if whole[1] else boxes[1].shape
    wanted = tuple(spread[axis].count if axis in spread else extent for axis, extent in enumerate(wanted))
    box = boxes[0]
    if not whole[0]:
        box = location.box_of(subsets[0], name, len(wanted)) if whole[1] else box
        part = location.read_box(name, box)
        name = part.result
        yield part
    if steps := Step.all_of(subsets[0], box):
        picked = location.picked(name, steps)
        name = picked.result
        yield picked
    shape = location.shape(name)
    if len(shape) != len(wanted) or not all(map(equal, shape, wanted)):
        if not equal(math.prod(shape), math.prod(wanted)):
            location.refuse(f"it copies {shape} elements of {edge.src.data} to {wanted} of {target}")
        other = target if whole[1] and not spread else location.new(wanted, name)
        yield location.reshaped(name, other)
        name = other
    if spread:
        yield from location.spread(name, target, boxes[1], spread)
    elif not whole[1]:
        yield location.written_box(target, boxes[1], name)
    elif name != target:
        yield location.copy(name, target)
