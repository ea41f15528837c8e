"""Location of a node in the program, the statements made there, and remedies for what cannot be distributed."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_letters
from typing import Any, NamedTuple, NoReturn

import networkx as nx
import numpy as np
from dace import SDFG, SDFGState, data, symbolic
from dace.sdfg import nodes
from dace.sdfg import utils as sdutil

from dace_redist.einsum.expression import Einsum
from dace_redist.einsum.statement import Code, Loop, Statement
from dace_redist.library_nodes.node import simplified
from dace_redist.library_nodes.tasklets import changing_symbols
from dace_redist.transformations.distribute.ir import Box, Move, Slice, equal, logical_shape
from dace_redist.transformations.distribute.read.sizes import in_integers

#: Error of a return in a branch or loop.
EARLY_RETURN = (
    "a return in a branch or loop cannot be distributed; assign the result to a variable, and return that at the end"
)

#: Remedies for functions that cannot be distributed.
INSTEAD = {
    "print": "take it out, and print what the program returns",
    "svd": "find the largest singular values by iteration with @, or call it on a gathered tensor outside the program",
    **dict.fromkeys(("eig", "eigh"), "find eigenvalues by iteration with @, or call it on a gathered tensor outside"),
    "qr": "orthogonalise by np.linalg.inv of the Gram matrix, or column by column in a loop",
    **dict.fromkeys(("sort", "argsort", "median"), "call it on the gathered tensor outside the program"),
    **dict.fromkeys(("concatenate", "stack", "hstack", "vstack"), "write the parts to slices of np.empty"),
    "cshift": "write the parts to slices of np.empty",  # DaCe's node of np.roll
    "cov": "write it as A.T @ A / (N - 1), with A without its mean",
    "round": "take np.rint",
    **{"ravel": "write a.reshape(a.size)", "size": "write a.size", "ndim": "write a.ndim"},
}

#: Remedy for other statements.
BY_ARRAYS = "write it as np.einsum, @, or an elementwise expression of whole arrays"

#: Remedies by DaCe's function, type of error, and message.
_REMEDIES = {
    "KeyError: 'MatMult'": "write A @= B as A[:] = A @ B",
    "visit_Compare NotImplementedError": "compare two values at a time, as in 0 < a and a < 1",
    "Starred": "give each value a variable of its own, or slice the array",
    r"assign\w* KeyError: \w+$|FileExistsError": "give the variable another name than that of a size (dace.symbol)",
    "Negative strides": "write A[::-1] as np.flip(A, axis=0)",
    "Data-dependent shape": "write sizes in the call, as in np.zeros((A.shape[0], N))",
    "Iterator": "loop over indices, as in for i in range(A.shape[0]), and take A[i]",
    "Cannot reassign|already defined|already assigned": "give the result another name",
    "keyword argument 'out'": "assign the result, as in C[:] = np.matmul(A, B)",
    "Method .* is not registered": "write it as a function of NumPy, or elementwise",
    "could not be broadcast": "write both shapes with the same symbols, as in x[:n] + x[n : 2 * n]",
    "rhs may only be data": "write a choice as np.where(s > 0, 2.0, 3.0), and arrays of numbers outside the function",
    "scalar stop value": "write the size in the call, as in np.arange(N // 2)",
    "compile-time constant": "assign it to another variable first, and change that",
    "disallowed keyword": "take this statement out of the program",
    "missing argument": "annotate each argument, as in x: dace.float64[N]",
    "[Aa]ssertion|truth value of Relational": "check sizes before the call, in Python",
    "Operand cannot be a tuple": "compare with each value, as in k == 1 or k == 2",
    "OrderedDict": "return a tuple of arrays",
    "Undefined variable": "assign it to a variable before, and the variable of a loop after it, as in last = i",
}


def why(error: Exception, function: str) -> str:
    """Return the reason of an error in one of DaCe's functions, and a remedy."""
    if isinstance(error, ValueError):
        return str(error)
    if isinstance(error, KeyError) and function == "parse_program":  # after all statements: return values are renamed
        return f"it returns {error.args[0]} more than once; return it once, or np.copy({error.args[0]}) besides"
    said = " ".join(str(getattr(error, "message", error)).split()).rstrip(".")
    whole = f"{function} {type(error).__name__}: {said}"
    instead = next((remedy for text, remedy in _REMEDIES.items() if re.search(text, whole)), BY_ARRAYS)
    return f"DaCe cannot read it ({type(error).__name__}: {said}); {instead}"


def source_line(info: Any) -> str:
    """Return file, line and text of the statement that DaCe's debug information names; empty without any."""
    if info is None or not info.filename or not info.start_line:
        return ""
    text = linecache.getline(info.filename, info.start_line).strip()
    return f"{os.path.basename(info.filename)}:{info.start_line}" + (f": {text}" if text else "")


class Step(NamedTuple):
    """First index, distance and number of elements along an axis of a box."""

    first: Any
    step: Any
    count: Any

    @staticmethod
    def all_of(subset: Any, box: Box) -> dict[int, Step]:
        """Return the steps of a memlet's subset, by axis of the tensor of its box."""
        steps = zip(subset.ndrange(), map(in_integers, subset.size()), strict=True)
        several = {axis: Step(0, step, n) for axis, ((_, _, step), n) in enumerate(steps) if not equal(n, 1)}
        found = {axis: step for axis, step in several.items() if step.step != 1}
        return {box.kept.index(axis): step for axis, step in found.items() if axis in box.kept}


@dataclass(frozen=True)
class Location:
    """
    A place in the program.

    :param sdfg: The program, to which arrays for intermediate results are added.
    :param loops: Loops and branches around it, the outermost first.
    """

    sdfg: SDFG
    node: nodes.Node
    state: SDFGState
    loops: tuple[Loop, ...] = ()

    def __str__(self) -> str:
        """Return the statement of the node, as far as DaCe knows it."""
        held = self.sdfg.arrays.get(getattr(self.node, "data", ""))
        known = (getattr(place, "debuginfo", None) for place in (self.node, held, *self.state.nodes()))
        return next(filter(None, map(source_line, known)), f"{self.state.label}: {self.node.label}")

    def at(self, node: nodes.Node) -> Location:
        """Return the location of another node of this state."""
        return replace(self, node=node)

    def refuse(self, why: str) -> NoReturn:
        """Raise an error: the statement cannot be distributed."""
        raise ValueError(f"{self}: cannot be distributed: {why}")

    @property
    def _place(self) -> dict[str, Any]:
        return {"where": str(self), "loops": self.loops}

    def array(self, name: str) -> data.Data:
        """Return the description of an array."""
        return self.sdfg.arrays[name]

    def shape(self, name: str) -> tuple[Any, ...]:
        """Return the logical shape of a tensor."""
        return logical_shape(self.array(name))

    def new(self, shape: Any, like: str) -> str:
        """Add a tensor whose elements have the type of another one."""
        return str(self.sdfg.add_temp_transient(list(shape) or [1], self.array(like).dtype)[0])

    def statement(
        self, terms: tuple[str, ...], operands: tuple[str, ...], indices: str, result: str, **facts: Any
    ) -> Statement:
        """Return a statement at this location: indices and names of operands and result, and other fields."""
        try:
            einsum = Einsum(terms, indices)
        except ValueError as error:
            self.refuse(str(error))
        return Statement(einsum, operands, result, **self._place, **facts)

    def copy(self, source: str, target: str) -> Statement:
        """Return ``target = source``."""
        return Statement.copy(source, target, len(self.shape(source)), **self._place)

    def in_steps(self, statement: Statement, indices: str | None = None) -> Iterator[Statement]:
        """Yield a product and the sum with ``added``, along ``indices`` of which the product may lack some."""
        if symbolic.equal_valued(0, statement.beta):
            yield statement
            return
        kept = statement.einsum.result
        indices = kept if indices is None else indices
        whole = zip(indices, self.shape(statement.result), strict=True)
        product = self.new([extent for index, extent in whole if index in kept], statement.result)
        yield replace(statement, result=product, beta=0, added="")
        code = Code(f"_out = _product + {symbolic.symstr(statement.beta)} * _added", ("_product", "_added"), "_out")
        operands = (product, statement.added)
        yield self.statement((kept, indices), operands, indices, statement.result, elementwise=True, code=code)

    # Boxes

    def box_of(self, subset: Any, name: str, dimensions: int | None = None) -> Box:
        """
        Return the box that a memlet covers, of so many dimensions, else without axes of one element of several.

        Along an axis with a step it has the elements in between, too.
        """
        ranges, whole = list(subset.ndrange()), self.array(name).shape
        offsets = tuple(begin for begin, _, _ in ranges)
        counts = zip(ranges, subset.size(), strict=True)
        extents = tuple(1 if equal(n, 1) else simplified(end - begin + 1) for (begin, end, _), n in counts)
        single = [axis for axis, n in enumerate(extents) if equal(n, 1)]
        if dimensions is None:
            dropped = {axis for axis in single if not equal(whole[axis], 1)}
        else:  # drop first the axes along which the array has more than one element
            single.sort(key=lambda axis: equal(whole[axis], 1))
            dropped = set(single[: max(0, len(ranges) - dimensions)])
        return Box(offsets, extents, tuple(axis for axis in range(len(ranges)) if axis not in dropped))

    def read_box(self, name: str, box: Box) -> Slice:
        """Copy a box of a tensor to a new tensor."""
        return Slice(name, self.new(box.shape, name), self._place, _of_tensor(box), written=False)

    def written_box(self, name: str, box: Box, value: str) -> Slice:
        """Copy a tensor to a box of another one."""
        return Slice(value, name, self._place, _of_tensor(box), written=True)

    def picked(self, name: str, steps: Mapping[int, Step]) -> Statement:
        """Return a copy of the elements at regular distances along some axes of a tensor, which are not split."""
        result = self.new([steps[axis].count if axis in steps else n for axis, n in enumerate(self.shape(name))], name)
        first = {axis: symbolic.symstr(step.first) for axis, step in steps.items()}
        places = ", ".join(f"{first[axis]} + ({step.step}) * _i{axis}" for axis, step in steps.items())
        return self._at_places(f"_out = _in[{places}]", {"_in": name}, result, steps)

    def spread(self, value: str, name: str, box: Box, steps: Mapping[int, Step]) -> Iterator[Statement | Slice]:
        """Yield the copy of a tensor to elements of a box of another one at regular distances along some axes."""
        part = merged = name
        if not box.is_whole(self.array(name)):
            read = self.read_box(name, box)
            part, merged = read.result, self.new(box.shape, name)
            yield read
        places, chosen = [], []
        for axis, (first, step, _) in steps.items():
            offset = f"(_i{axis} - {symbolic.symstr(first)})" if step > 0 else f"({symbolic.symstr(first)} - _i{axis})"
            places.append(f"{offset} // {abs(step)}")
            chosen.append(f"{offset} % {abs(step)} == 0")
        code = f"_out = _new[{', '.join(places)}] if {' and '.join(chosen)} else _old"
        yield self._at_places(code, {"_new": value, "_old": part}, merged, steps)
        if part != name:
            yield self.written_box(name, box, merged)

    def _at_places(self, code: str, operands: Mapping[str, str], result: str, steps: Mapping[int, Step]) -> Statement:
        """Return an elementwise statement whose first operand has other places along some axes, which are not split."""
        letters = ascii_letters[: len(self.shape(result))]
        places = {axis: ascii_letters[~axis] for axis in steps}
        term = "".join(places.get(axis, index) for axis, index in enumerate(letters))
        indices = tuple((f"_i{axis}", letters[axis], 0) for axis in steps)
        facts = {"elementwise": True, "whole": "".join(places.values())}
        first, *others = operands.values()
        names, made = (first, *(others or [result])), Code(code, tuple(operands), "_out", indices)
        return self.statement((term, letters), names, letters, result, code=made, **facts)

    def reshaped(self, source: str, target: str) -> Move:
        """Give the elements of a tensor another shape, if both tensors are in NumPy's default order."""
        if self.array(source).dtype != self.array(target).dtype:
            self.refuse(f"it takes the bytes of {source} for elements of another type")
        for name in (source, target):
            array = self.array(name)
            strides = np.cumprod([1, *array.shape[:0:-1]])[::-1] if array.shape else []
            if any(n != 1 and not equal(a, b) for a, b, n in zip(array.strides, strides, array.shape, strict=True)):
                self.refuse(f"{name} has not NumPy's default order of elements, so it cannot be reshaped")
            if changing_symbols(self.sdfg) & {symbol for extent in array.shape for symbol in symbolic.symlist(extent)}:
                self.refuse(f"the extents {tuple(array.shape)} change while the program runs, so it cannot be reshaped")
        return Move(source, target, self._place)


def _of_tensor(box: Box) -> Box:
    """Return a box whose tensor is a scalar where DaCe has an array of one element."""
    return box._replace(kept=()) if len(box.kept) == 1 and equal(box.shape[0], 1) else box


def with_checked_box(
    operation: Any, sdfg: SDFG, sizes: Mapping[str, int], ends: Mapping[str, tuple[Any, Any, Any]]
) -> Any:
    """
    Return an operation; a slice with the note whether its box lies in the tensor in all iterations of its loops.

    :param ends: First and last value, and step, of the loops' variables, as far as they are known.
    :raises ValueError: If a slice begins before the first element, or ends after the last.
    """
    if not isinstance(operation, Slice):
        return operation
    box, whole, is_inside = operation.box, sdfg.arrays[operation.whole].shape, True
    for begin, extent, n in zip(box.offsets, box.extents, whole, strict=True):
        names = _with_ends({name for one in (begin, extent, n) for name in symbolic.symlist(one)}, ends)
        if names <= {*sizes}:
            continue
        if not names <= {*sizes, *ends}:
            is_inside = False
            continue
        for known in _corners(names, sizes, ends):
            first, length, end = (symbolic.evaluate(one, known) for one in (begin, extent, n))
            where = ", ".join(f"{name} = {value}" for name, value in known.items() if name not in sizes)
            if first < 0:
                raise ValueError(
                    f"{operation.label}: the index {begin} is negative at {where}, and NumPy would count it from the "
                    "end; write such iterations before the loop, with an index from -1 down, and in place of a "
                    "condition with `and` an if in an if"
                )
            if length < 0 or first + length > end:
                raise ValueError(
                    f"{operation.label}: the slice has the elements {begin} to {simplified(begin + extent)} of {n} at "
                    f"{where}, which NumPy would cut; write such iterations apart, and in place of a condition with "
                    "`and` an if in an if"
                )
    return operation if is_inside else replace(operation, is_inside=False)


def _with_ends(names: set[str], ends: Mapping[str, tuple[Any, Any, Any]]) -> set[str]:
    """Return names, and those in the ends of their loops."""
    for name in reversed([*ends]):
        names = names | ({other for one in ends[name] for other in symbolic.symlist(one)} if name in names else set())
    return names


def _corners(
    names: set[str], sizes: Mapping[str, int], ends: Mapping[str, tuple[Any, Any, Any]]
) -> Iterator[dict[str, int]]:
    """Yield values of all symbols, for the first and last iterations of the loops with these names."""
    known = [dict(sizes)]
    for name in [name for name in ends if name in names]:
        found = []
        for values in known:
            first, last, step = (int(symbolic.evaluate(one, values)) for one in ends[name])
            count = (last - first) // step
            found += [{**values, name: first + number * step} for number in {0, count} if count >= 0]
        known = found
    yield from known


def in_order(state: SDFGState) -> Sequence[nodes.Node]:
    """
    Return the nodes of a state in an order in which they can run one after another.

    After DaCe has fused states, two access nodes of one tensor may lack a path between them: one is read, the other
    written later.
    """
    order = {node: number for number, node in enumerate(sdutil.dfs_topological_sort(state, state.source_nodes()))}
    graph = nx.DiGraph((edge.src, edge.dst) for edge in state.edges())
    graph.add_nodes_from(order)
    holders: dict[str, list[nodes.AccessNode]] = {}
    for node in order:
        if isinstance(node, nodes.AccessNode) and state.entry_node(node) is None:
            holders.setdefault(node.data, []).append(node)
    for same in holders.values():
        for read in same:
            for written in same:
                if written is not read and state.in_degree(written) and not nx.has_path(graph, written, read):
                    _separate(graph, state, read, written)
    return list(nx.lexicographical_topological_sort(graph, key=order.__getitem__))


def _separate(graph: Any, state: SDFGState, read: nodes.AccessNode, written: nodes.AccessNode) -> None:
    """Add edges from all readers of one access node to the writers of another."""
    for use in state.out_edges(read):
        reader = read if isinstance(use.dst, nodes.AccessNode) else use.dst
        for write in state.in_edges(written):
            writer = state.entry_node(write.src) if isinstance(write.src, nodes.MapExit) else write.src
            if reader is not writer and not nx.has_path(graph, writer, reader):
                graph.add_edge(reader, writer)
