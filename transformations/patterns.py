"""Base of the transformations of one redistribution, and predicates on the nodes and arrays around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dace import SDFG, SDFGState
from dace.sdfg import nodes
from dace.sdfg import utils as sdutil
from dace.transformation import transformation
from dace.transformation.passes.analysis import StateReachability

from dace_redist.distribution import AnyDistribution
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.node import COMMUNICATORS, INPUT, OUTPUT
from dace_redist.tuning.problem import canonical


class OfRedistribute(transformation.SingleStateTransformation):
    """Transformation whose pattern has a redistribution; by default nothing else."""

    node = transformation.PatternNode(Redistribute)

    @classmethod
    def expressions(cls) -> list[Any]:
        """Return the pattern: the redistribution."""
        return [sdutil.node_path_graph(cls.node)]


def checked_sdfg(given: Any, caller: str) -> SDFG:
    """Return an SDFG unchanged; raise a TypeError for anything else, with the way to the SDFG of a program."""
    if isinstance(given, SDFG):
        return given
    remedy = ": pass its SDFG, program.to_sdfg()" if hasattr(given, "to_sdfg") else ""
    raise TypeError(f"{caller} takes an SDFG, got {type(given).__name__}{remedy}")


def is_plain(node: Any) -> bool:
    """True for a blocking redistribution of a whole tensor over the world between known distributions."""
    special = isinstance(node, Redistribute) and (node.region or node.nonblocking)
    return not (node.given_at_run_time or special or {*COMMUNICATORS} & set(node.in_connectors))


def can_compute(node: Redistribute) -> bool:
    """True for a plain redistribution of whole elements, which it can convert, scale and reduce."""
    return is_plain(node) and bool(node.element_bytes == 0)


def input_of(node: nodes.Node, state: SDFGState, connector: str = INPUT) -> Any:
    """Return the edge into a connector."""
    (edge,) = (edge for edge in state.in_edges(node) if edge.dst_conn == connector)
    return edge


def output_of(node: nodes.Node, state: SDFGState, connector: str = OUTPUT) -> Any:
    """Return the edge out of a connector."""
    (edge,) = (edge for edge in state.out_edges(node) if edge.src_conn == connector)
    return edge


def is_only_used_between(graph: SDFGState, sdfg: SDFG, between: nodes.AccessNode) -> bool:
    """True for a transient that is written once and read once, at this node."""
    if not sdfg.arrays[between.data].transient or graph.in_degree(between) != 1 or graph.out_degree(between) != 1:
        return False
    return len(list(accesses(sdfg, between.data))) == 1 and not is_named_by_edges(sdfg, between.data)


def accesses(sdfg: SDFG, name: str) -> Iterator[tuple[SDFGState, nodes.AccessNode]]:
    """Yield the access nodes of an array, with their states."""
    for state in sdfg.states():
        yield from ((state, node) for node in state.data_nodes() if node.data == name)


def is_named_by_edges(sdfg: SDFG, name: str) -> bool:
    """True if an interstate edge, or a condition, uses an array."""
    return any(name in edge.data.free_symbols for edge in sdfg.all_interstate_edges())


def is_used_after(sdfg: SDFG, state: SDFGState, name: str) -> bool:
    """True if a later state, including a later iteration of this one, or the caller may access an array."""
    if not sdfg.arrays[name].transient or is_named_by_edges(sdfg, name):
        return True
    reachable = StateReachability().apply_pass(sdfg.root_sdfg, {})[sdfg.cfg_id][state]
    return any(where in reachable for where, _ in accesses(sdfg, name))


def same(source: AnyDistribution, target: AnyDistribution) -> bool:
    """True if two distributions are equivalent."""
    if source.is_symbolic or target.is_symbolic:
        return source == target
    return canonical(source) == canonical(target)
