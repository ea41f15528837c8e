"""Remapping of the ranks of distributions in a program to reduce communication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dace import SDFG, SDFGState
from dace.libraries.comm.nodes.node import CommNode
from dace.sdfg import nodes
from networkx.utils import UnionFind

from dace_redist.distribution import AnyDistribution
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.node import INPUT, OUTPUT, symbols_of
from dace_redist.relabelling import cost_of, relabel
from dace_redist.schedule import schedule
from dace_redist.transformations.patterns import OfRedistribute, is_named_by_edges, is_plain, output_of


class _Crossing(NamedTuple):
    """Redistribution into or out of the renumbered arrays."""

    node: Redistribute
    enters: bool
    outside: AnyDistribution
    inside: AnyDistribution
    itemsize: int


class RelabelGrid(OfRedistribute):
    """
    Renumber the ranks of all distributions between redistributions into and out of a group of arrays.

    The group is the arrays that are connected by computations. All distributions of the group get the same permutation
    of ranks, which reduces the traffic into and out of it: see :func:`dace_redist.relabel`. It can be applied if the
    arrays are transients of equal size on every rank, all data enters and leaves them by redistributions of whole
    tensors over the world between distributions without symbols, and no other node of the group communicates. The
    result then does not depend on the numbering of ranks, unless the program has free symbols, whose values may differ
    between ranks: it is then not applied. It is applied only if it reduces traffic.
    """

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if ranks can be permuted, and a permutation reduces traffic."""
        crossings = _crossings(self.node, graph, sdfg)
        insides = [crossing.inside for crossing in crossings]
        return bool(crossings) and _cost(crossings, _renumbered(crossings)) < _cost(crossings, insides)

    def apply(self, graph: SDFGState, sdfg: SDFG) -> list[Redistribute]:
        """Change the nodes; return them."""
        crossings = _crossings(self.node, graph, sdfg)
        for crossing, inside in zip(crossings, _renumbered(crossings), strict=True):
            setattr(crossing.node, "target" if crossing.enters else "source", inside.encoded)
        return [crossing.node for crossing in crossings]


def _renumbered(crossings: Sequence[_Crossing]) -> list[AnyDistribution]:
    outsides, sizes = [crossing.outside for crossing in crossings], [crossing.itemsize for crossing in crossings]
    return relabel(outsides, [crossing.inside for crossing in crossings], nbytes=sizes)


def _cost(crossings: Sequence[_Crossing], insides: Sequence[AnyDistribution]) -> float:
    """Return the bytes moved."""
    total = 0.0
    for crossing, inside in zip(crossings, insides, strict=True):
        ends = (crossing.outside, inside) if crossing.enters else (inside, crossing.outside)
        total += crossing.itemsize * cost_of(schedule(*ends))
    return total


def _crossings(node: Redistribute, state: SDFGState, sdfg: SDFG) -> list[_Crossing]:
    """Return the redistributions into and out of the group of a node's result; empty if ranks cannot be permuted."""
    if sdfg.free_symbols:
        return []
    groups = _computed_together(sdfg)
    own = groups[output_of(node, state).data.data]
    inside = {name for name in sdfg.arrays if groups[name] == own}
    for name in inside:
        if not sdfg.arrays[name].transient or symbols_of(sdfg.arrays[name].shape) or is_named_by_edges(sdfg, name):
            return []
    found: list[_Crossing] = []
    for where in sdfg.states():
        for other in where.nodes():
            if isinstance(other, Redistribute):
                crossed = [end for end in (INPUT, OUTPUT) if other.memlet(end, where).data in inside]
                if len(crossed) == 2 or (crossed and not _can_renumber(other)):
                    return []
                for end in crossed:
                    source, target = other.distributions()
                    ends = (source, target) if end == OUTPUT else (target, source)
                    found.append(_Crossing(other, end == OUTPUT, *ends, other.array(end, where).dtype.bytes))
            elif _communicates(other) and inside & {edge.data.data for edge in where.all_edges(other)}:
                return []
    return found


def _can_renumber(node: Redistribute) -> bool:
    plain = is_plain(node) and not node.index_map.encoded and not node.op
    return plain and not any(side.is_symbolic for side in node.distributions())


def _communicates(node: nodes.Node) -> bool:
    """Return True if a node, or one nested in it, communicates."""
    nested = node.sdfg.all_nodes_recursive() if isinstance(node, nodes.NestedSDFG) else [(node, None)]
    return any(isinstance(one, CommNode) for one, _ in nested)


def _computed_together(sdfg: SDFG) -> UnionFind:
    """Return the groups of arrays connected by computations other than redistributions."""
    groups = UnionFind(sdfg.arrays)
    for state in sdfg.states():
        for node in state.nodes():
            names = {edge.data.data for edge in state.all_edges(node) if edge.data.data is not None}
            names |= {node.data} if isinstance(node, nodes.AccessNode) else set()
            if names and not isinstance(node, Redistribute):
                groups.union(*names)
    return groups
