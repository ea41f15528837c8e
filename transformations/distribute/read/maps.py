"""Translation of maps and tasklets: elementwise expressions, broadcasts, and sums of products."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from functools import cached_property
from string import ascii_letters
from typing import Any, NoReturn

import sympy
from dace import SDFGState, dtypes, symbolic
from dace.frontend.operations import detect_reduction_type
from dace.sdfg import nodes

from dace_redist.einsum.statement import Code
from dace_redist.library_nodes.node import simplified
from dace_redist.transformations.distribute.ir import Box, Operation, equal, logical_shape, renamed
from dace_redist.transformations.distribute.read.location import Location, Step
from dace_redist.transformations.distribute.read.sizes import in_integers

#: Connector of the result's elements before a statement that writes some of them.
_KEPT = "__kept"


def map_operations(entry: nodes.MapEntry, location: Location) -> Iterator[Operation]:
    """Yield the statements of a map over whole dimensions with one operation; raise for other maps."""
    inside = [n for n in location.state.scope_children()[entry] if not isinstance(n, nodes.MapExit)]
    tasklets = [n for n in inside if isinstance(n, nodes.Tasklet)]
    if len(tasklets) != 1 or not all(n is tasklets[0] or _passes_an_element(n, location.state) for n in inside):
        location.refuse("its map holds more than one operation; write expressions of whole arrays")
    ranges = {}
    for parameter, (begin, end, step) in zip(entry.map.params, entry.map.range.ndrange(), strict=True):
        ranges[parameter] = Step(begin, step, in_integers(sympy.ceiling((end - begin + 1) / step)))
    yield from TaskletReader(tasklets[0], location.at(tasklets[0]), ranges).operations()


class TaskletReader:
    """Translation of one tasklet, given the values of each map index."""

    def __init__(self, tasklet: nodes.Tasklet, location: Location, ranges: dict[str, Step]) -> None:
        self._tasklet, self._location, self._ranges = tasklet, location, ranges
        self._extents = {name: simplified(values.count) for name, values in ranges.items()}
        self._letters = dict(zip(ranges, ascii_letters, strict=False))
        self._free = ""  # indices of axes of which the code takes any element
        #: Indices, name and connector of each operand: first of scalars that the code reads by name, then of memlets.
        self._read = [("", name, connector) for name, connector in self._by_name.items()]

    def operations(self) -> Iterator[Operation]:
        """Yield the statements of the tasklet."""
        self._check_readable()
        state = self._location.state
        for edge in state.in_edges(self._tasklet):
            memlet = _read_memlet(edge, state)
            if memlet.data is not None:
                indices, name, copies, _ = self._operand(memlet, edge.dst_conn)
                self._read.append((indices, name, edge.dst_conn))
                yield from copies
        (write,) = (edge for edge in state.out_edges(self._tasklet) if edge.data.data is not None)
        result, written, copies, (box, steps) = self._operand(write.data)
        if len(set(result)) < len(result):
            self._location.refuse(f"it writes {write.data.data}[{write.data.subset}], which is not the whole array")
        if write.data.wcr is not None or write.data.dynamic:  # it keeps or adds to elements
            yield from copies
        if write.data.wcr is not None:
            yield from self._sum(result, written, write.data.wcr)
        else:
            code = self._tasklet.code.as_string
            if write.data.dynamic:
                code = self._with_kept_elements(write.src_conn)
                self._read.append((result, written, _KEPT))
            yield from self._elementwise(result, written, write.src_conn, code)
        if steps:
            yield from self._location.spread(written, write.data.data, box, steps)
        elif copies:
            yield self._location.written_box(write.data.data, box, written)

    def _with_kept_elements(self, output: str) -> str:
        """Return code that writes every element, from code that writes those for which a condition holds."""
        *before, last = self._tasklet.code.code
        body = last.body[0] if isinstance(last, ast.If) and len(last.body) == 1 and not last.orelse else None
        if not isinstance(body, ast.Assign) or ast.unparse(body.targets) != output:
            self._location.refuse("it writes some elements only; write it with np.where")
        chosen = f"{output} = {ast.unparse(body.value)} if {ast.unparse(last.test)} else {_KEPT}"
        return "\n".join([*map(ast.unparse, before), chosen])

    def _elementwise(self, result: str, written: str, output: str, code: str) -> Iterator[Operation]:
        several = {self._letters[name] for name, extent in self._extents.items() if not equal(extent, 1)}
        if several - set(result):
            self._location.refuse("it is neither elementwise nor an einsum: not every index is one of the result's")
        terms, operands = [], []
        for indices, name, _ in self._read:
            kept = "".join(index for index in dict.fromkeys(indices) if index in {*result, *self._free})
            if kept != indices:  # a diagonal, or dimensions of length 1 that the result lacks
                shape = self._location.array(name).shape
                reduced = self._location.new([shape[indices.index(index)] for index in kept], name)
                yield self._location.statement((indices,), (name,), kept, reduced)
                name = reduced
            terms.append(kept)
            operands.append(name)
        if not set(result) <= set("".join(terms)):  # the result itself has the indices that the operands lack
            terms, operands = [*terms, result], [*operands, written]
        used = {str(name) for name in self._tasklet.free_symbols} & set(self._extents)
        apart = {name: self._ranges[name] for name in sorted(used) if self._ranges[name].step != 1}
        values = {name: f"({symbolic.symstr(s.first)} + {s.step} * {name})" for name, s in apart.items()}
        text = renamed(renamed(code, self._by_name), values)
        firsts = {name: 0 if name in apart else self._ranges[name].first for name in used}
        indices = tuple((name, self._letters[name], firsts[name]) for name in sorted(used))
        connectors = tuple(connector for _, _, connector in self._read)
        if self._free:
            text = self._with_wrapped_indices(text)
        facts = {"elementwise": True, "code": Code(text, connectors, output, indices), "whole": self._free}
        yield self._location.statement(tuple(terms), tuple(operands), result, written, **facts)

    def _with_wrapped_indices(self, code: str) -> str:
        """Return code in which indices count from the end if they are negative, and are checked."""
        arrays = {connector: (indices, name) for indices, name, connector in self._read}
        tree = ast.parse(code)
        for node in ast.walk(tree):
            name = getattr(node.value, "id", "") if isinstance(node, ast.Subscript) else ""
            if isinstance(node, ast.Subscript) and name in arrays:
                term, array = arrays[name]
                shape = zip(term, self._location.shape(array), strict=True)
                extents = [symbolic.symstr(extent) for index, extent in shape if index in self._free]
                given = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                pairs = zip(map(ast.unparse, given), extents, strict=True)
                texts = ", ".join(f"numpy_index({index}, {extent})" for index, extent in pairs)
                node.slice = ast.parse(texts, mode="eval").body
        return ast.unparse(tree)

    @cached_property
    def _by_name(self) -> dict[str, str]:
        """
        Return connectors for scalars that the code reads by name, without a memlet: DaCe replaces variables computed
        from them by symbols.
        """
        used = {str(name) for name in self._tasklet.free_symbols} - {*self._tasklet.in_connectors}
        arrays = self._location.sdfg.arrays
        scalars = sorted(name for name in used & {*arrays} if not logical_shape(arrays[name]))
        return {name: f"__value_of_{name}" for name in scalars}

    def _sum(self, result: str, written: str, wcr: str) -> Iterator[Operation]:
        """Yield a sum of products, times the number of values of indices that neither operands nor result have."""
        alpha = _factor_of_product(self._tasklet)
        if alpha is None or self._free or not self._read or detect_reduction_type(wcr) != dtypes.ReductionType.Sum:
            self._location.refuse(f"it combines values by {wcr}; only sums of products are supported")
        terms, operands, _ = zip(*self._read, strict=True)
        known = set("".join(terms))
        unused = set(self._letters.values()) - known - set(result)
        alpha *= math.prod(self._extents[name] for name, index in self._letters.items() if index in unused)
        kept = "".join(index for index in result if index in known)
        facts = {"alpha": alpha, "beta": 1, "added": written}
        yield from self._location.in_steps(self._location.statement(terms, operands, kept, written, **facts), result)

    def _check_readable(self) -> None:
        if self._tasklet.language != dtypes.Language.Python:
            self._location.refuse(f"a tasklet in {self._tasklet.language} cannot be read")
        edges = self._location.state.out_edges(self._tasklet)
        written = [edge.data.data for edge in edges if edge.data.data is not None]
        if "__pystate" in written:
            self._location.refuse(
                "DaCe does not know this function and would call it in Python; write it as np.einsum or elementwise"
            )
        if len(written) != 1:
            self._location.refuse(f"it has {len(written)} results, not one")

    def _operand(
        self, memlet: Any, connector: str = ""
    ) -> tuple[str, str, list[Operation], tuple[Box, dict[int, Step]]]:
        """
        Return the indices and the name of an array: that of the memlet, or a copy of the elements that are used; then
        the statements of the copy, and the box of these elements, with its steps.

        A dimension of length 1 under no index of the map has the same letter in all arrays, counted from the last
        dimension.
        """
        array = self._location.array(memlet.data)
        if not logical_shape(array):
            return "", memlet.data, [], (Box((), (), ()), {})
        ones, axes, last = ascii_letters[len(self._extents) :], [], len(array.shape) - 1
        steps: dict[int, Step] = {}
        for axis, ((begin, end, _), whole) in enumerate(zip(memlet.subset.ndrange(), array.shape, strict=True)):
            names = [name for name in self._letters if name in symbolic.symlist(begin)]
            if not equal(begin, end):
                axes.append((self._any_of(connector, memlet), begin, simplified(end - begin + 1)))
                continue
            if not names:
                letter = ones[last - axis] if equal(begin, 0) and equal(whole, 1) else ""
                axes.append((letter, begin, 1))
                continue
            index, letter = symbolic.symlist(begin)[names[0]], self._letters[names[0]]
            values = self._ranges[names[0]]
            slope = simplified(begin.subs(index, index + 1) - begin)
            first, step, count = begin.subs(index, values.first), simplified(slope * values.step), values.count
            if len(names) > 1 or not step.is_Integer or step == 0:
                self._refuse_use(memlet)
            if step == 1 or equal(count, 1):
                axes.append((letter, simplified(first), self._extents[names[0]]))
                continue
            length = simplified(abs(step) * (count - 1))
            axes.append((letter, simplified(first if step > 0 else first - length), sympy.Max(0, length + 1)))
            steps[axis] = Step(0 if step > 0 else length, step, self._extents[names[0]])
        letters, offsets, extents = zip(*axes, strict=True)
        box = Box(offsets, extents, tuple(axis for axis, letter in enumerate(letters) if letter))
        copies, name = list[Operation](), memlet.data
        if not box.is_whole(array):
            copies.append(self._location.read_box(name, box))
            name = copies[-1].result
        if steps := {box.kept.index(axis): step for axis, step in steps.items()}:
            copies.append(self._location.picked(name, steps))
            name = copies[-1].result
        return ("".join(letters) if self._location.shape(name) else ""), name, copies, (box, steps)

    def _any_of(self, connector: str, memlet: Any) -> str:
        """Return the index of an axis of which the code takes any element, as by an array of indices."""
        nodes_of = [node for line in self._tasklet.code.code for node in ast.walk(line)]
        parts = [node for node in nodes_of if isinstance(node, ast.Subscript)]
        places = [part.slice for part in parts if getattr(part.value, "id", "") == connector]
        axes = sum(not equal(begin, end) for begin, end, _ in memlet.subset.ndrange())
        if not places or any(len(getattr(place, "elts", [place])) != axes for place in places):
            self._location.refuse(
                f"it takes any of {memlet.data}[{memlet.subset}] for an element, as by an array of indices; write "
                "a loop, as in for i in range(N): k = q[i], then b[i] = w[k]"
            )
        self._free += ascii_letters[~len(self._free)]
        return self._free[-1]

    def _refuse_use(self, memlet: Any) -> NoReturn:
        self._location.refuse(f"it uses {memlet.data}[{memlet.subset}], which is not elementwise over whole arrays")


def _passes_an_element(node: nodes.Node, state: SDFGState) -> bool:
    """Return True for a node in a map that only passes an element to the tasklet."""
    return isinstance(node, nodes.AccessNode) and state.in_degree(node) == 1 == state.out_degree(node)


def _read_memlet(edge: Any, state: SDFGState) -> Any:
    """Return the memlet that a tasklet reads through an edge, also if an access node is in between."""
    inner = isinstance(edge.src, nodes.AccessNode) and state.entry_node(edge.src) is not None
    return state.in_edges(edge.src)[0].data if inner else edge.data


def _factor_of_product(tasklet: nodes.Tasklet) -> Any:
    """Return the factor of a tasklet that multiplies its inputs; None for other tasklets."""
    statements = tasklet.code.code
    if len(statements) != 1 or not isinstance(statements[0], ast.Assign):
        return None
    try:
        value = symbolic.pystr_to_symbolic(ast.unparse(statements[0].value))
    except (TypeError, sympy.SympifyError):
        return None
    ratio = value / math.prod(symbolic.pystr_to_symbolic(name) for name in tasklet.in_connectors)
    return ratio if ratio.is_Number else None
