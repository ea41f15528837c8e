"""Fusion of casts, scaling and conjugation into a redistribution."""

from __future__ import annotations

import ast
import math
from typing import Any, NamedTuple

from dace import SDFG, SDFGState, dtypes, symbolic
from dace.sdfg import nodes
from dace.transformation import transformation

from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.node import INPUT, OUTPUT, plain_number, simplified, symbols_of
from dace_redist.transformations.patterns import (
    OfRedistribute,
    absorb,
    can_compute,
    is_only_used_between,
    is_plain,
    share_elements,
)


class FuseConversion(OfRedistribute):
    """
    Fuse a map that converts, scales or conjugates a whole array before or after a redistribution into its properties.

    It can be applied if nothing else uses the array in between, and the result is equal: a factor before a conversion
    and a divisor must be powers of two, and integers are converted without a factor. Several factors of one type are
    multiplied first, which can change the last digit. It cannot be applied after a redistribution that reduces or
    accumulates. A factor may contain integer symbols of the redistribution, which have one value on all ranks, but no
    others. Its literals must be equal on all ranks, which :func:`dace_redist.optimize` checks. ``permissive`` permits
    any factor of floating-point numbers: the last digit may change. Before and after::

        A --> Redistribute --> B --> map: C = float32(2 * B) --> C
        A --> Redistribute(alpha=2) ---------------------------> C
    """

    between = transformation.PatternNode(nodes.AccessNode)
    entry = transformation.PatternNode(nodes.MapEntry)
    tasklet = transformation.PatternNode(nodes.Tasklet)
    exit = transformation.PatternNode(nodes.MapExit)
    paths = (("node", "between", "entry", "tasklet", "exit"), ("entry", "tasklet", "exit", "between", "node"))

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if the redistribution can include the map with an equal result."""
        node, after = self.node, expr_index == 0
        absorbed = [self.entry, self.tasklet, self.exit]
        if not (is_plain(node) and is_only_used_between(graph, sdfg, self.between, absorbed)):
            return False
        if (after and (node.beta != 0 or node.op)) or not self._is_whole(graph, sdfg):
            return False
        beyond = (graph.out_edges(self.exit) if after else graph.in_edges(self.entry))[0].data
        if share_elements(sdfg, node.memlet(INPUT if after else OUTPUT, graph), beyond):
            return False
        scaling = self._scaling(graph, sdfg)
        return scaling is not None and self._is_exact(graph, sdfg, scaling, after, permissive)

    def apply(self, graph: SDFGState, sdfg: SDFG) -> Redistribute:
        """Change the node and remove the map; return the node."""
        node, between, entry, tasklet, leave = self.node, self.between, self.entry, self.tasklet, self.exit
        scaling = self._scaling(graph, sdfg)
        assert scaling is not None
        (into,), (out,) = graph.in_edges(entry), graph.out_edges(leave)
        is_complex = sdfg.arrays[into.data.data].dtype in (dtypes.complex64, dtypes.complex128)
        node.alpha = simplified(node.alpha * scaling.alpha)
        node.conj = node.conj != (scaling.conj and is_complex)
        absorb(node, graph, out if self.expr_index == 0 else into, [between, entry, tasklet, leave])
        return node

    def _scaling(self, graph: SDFGState, sdfg: SDFG) -> _Scaling | None:
        ends = (*graph.in_edges(self.entry), *graph.out_edges(self.exit))
        inexact = {name for name, kind in sdfg.symbols.items() if kind not in dtypes.INTEGER_TYPES}
        symbols = self.node.free_symbols - set(self.entry.map.params) - inexact
        return _scaling_of(self.tasklet, symbols, {sdfg.arrays[edge.data.data].dtype for edge in ends})

    def _is_whole(self, graph: SDFGState, sdfg: SDFG) -> bool:
        """Return True if the map goes elementwise from one array to another, and covers the array in between."""
        entry, tasklet, leave = self.entry, self.tasklet, self.exit
        if not all(graph.in_degree(one) == 1 == graph.out_degree(one) for one in (entry, tasklet, leave)):
            return False
        read, written = graph.in_edges(tasklet)[0].data, graph.out_edges(tasklet)[0].data
        for memlet in (read, written):
            begins = [(str(begin), str(end)) for begin, end, _ in memlet.subset.ndrange()]
            if begins != [(name, name) for name in entry.map.params]:
                return False
        extents = [(begin, end + 1, step) for begin, end, step in entry.map.range.ndrange()]
        shape = sdfg.arrays[self.between.data].shape
        (moved,) = graph.in_edges(self.between) if self.expr_index == 0 else graph.out_edges(self.between)
        return extents == [(0, extent, 1) for extent in shape] and list(moved.data.subset.size()) == list(shape)

    def _is_exact(self, graph: SDFGState, sdfg: SDFG, scaling: _Scaling, after: bool, permissive: bool) -> bool:
        """Return True if types and factors give equal elements in one step and in two."""
        (into,), (out,) = graph.in_edges(self.entry), graph.out_edges(self.exit)
        read, written = sdfg.arrays[into.data.data], sdfg.arrays[out.data.data]
        first, between = (self.node.array(INPUT, graph), read) if after else (read, written)
        last = written if after else self.node.array(OUTPUT, graph)
        if between.dtype not in (first.dtype, last.dtype):
            return False
        is_narrow = scaling.is_double and written.dtype not in (dtypes.float64, dtypes.complex128)
        rounds = permissive and {first.dtype, between.dtype, last.dtype}.isdisjoint(dtypes.INTEGER_TYPES)

        def can_follow(factor: Any, dtype: dtypes.typeclass) -> bool:  # a product of integers may wrap in their type
            return bool(factor == 1 if dtype in dtypes.INTEGER_TYPES else rounds or is_power_of_two(factor))

        if (is_narrow or read.dtype != written.dtype) and not can_follow(scaling.alpha, read.dtype):
            return False
        if between.dtype != last.dtype and not can_follow(self.node.alpha if after else scaling.alpha, between.dtype):
            return False
        return can_compute(self.node, first, last, self.node.alpha * scaling.alpha, self.node.op)


def is_power_of_two(factor: Any) -> bool:
    """Return True if a product with a factor is exact; False for a symbolic factor."""
    try:
        return math.frexp(abs(float(factor)))[0] == 0.5
    except TypeError:
        return False


class _Scaling(NamedTuple):
    """
    A product ``alpha * x**degree``, or of ``conj(x)``.

    ``is_double`` tells that generated code has a factor of type ``double``.
    """

    alpha: Any = 1
    degree: int = 0
    conj: bool = False
    is_double: bool = False

    def times(self, other: _Scaling) -> _Scaling:
        alpha, degree = self.alpha * other.alpha, self.degree + other.degree
        return _Scaling(alpha, degree, self.conj != other.conj, self.is_double or other.is_double)


def _scaling_of(tasklet: nodes.Tasklet, symbols: set[str], types: set[dtypes.typeclass]) -> _Scaling | None:
    """
    Return the scaling that a tasklet applies to its only input; None if it computes something else.

    :param symbols: Symbols that the factor may contain.
    :param types: Types of its input and its output.
    """
    statements = tasklet.code.code
    if tasklet.language != dtypes.Language.Python or len(statements) != 1 or len(tasklet.in_connectors) != 1:
        return None
    (name,), assigned = tasklet.in_connectors, statements[0]
    if not isinstance(assigned, ast.Assign) or len(assigned.targets) != 1:
        return None
    try:
        found = _product(assigned.value, name, types)
    except ValueError:
        return None
    if found.degree != 1 or symbols_of([found.alpha]) - symbols:
        return None
    number = plain_number(found.alpha)
    return found._replace(alpha=int(number) if isinstance(number, float) and number.is_integer() else number)


def _product(node: ast.expr, name: str, types: set[dtypes.typeclass]) -> _Scaling:
    """Return the product that an expression is, whose operations SymPy would reorder; a ValueError for others."""
    match node:
        case ast.Name():
            return _Scaling(degree=1) if node.id == name else _Scaling(symbolic.pystr_to_symbolic(node.id))
        case ast.Constant(value=float()) if types & {*dtypes.INTEGER_TYPES}:
            pass  # not all integers have a value of type double
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _Scaling(value, is_double=isinstance(value, float))
        case ast.UnaryOp(op=ast.UAdd() | ast.USub() as sign, operand=operand):
            return _Scaling(-1 if isinstance(sign, ast.USub) else 1).times(_product(operand, name, types))
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            return _product(left, name, types).times(_product(right, name, types))
        case ast.BinOp(op=ast.Div(), left=left, right=right):
            divisor = _product(right, name, types)
            if not divisor.degree and is_power_of_two(divisor.alpha):
                return _product(left, name, types).times(divisor._replace(alpha=1 / divisor.alpha))
        case ast.Call(args=[argument], keywords=[]):
            function, found = ast.unparse(node.func).split(".")[-1], _product(argument, name, types)
            if function in ("conj", "conjugate") and found.degree:
                return found._replace(conj=not found.conj)
            # A conversion of the input must come first; a factor has the type of the input, or of the result.
            if getattr(dtypes, function, None) in types and (isinstance(argument, ast.Name) or not found.degree):
                return found._replace(is_double=False)
    raise ValueError(f"not a product: {ast.unparse(node)}")
