"""Predicates on the nodes and arrays around a redistribution, for transformations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dace import SDFG, SDFGState
from dace.sdfg import nodes
from dace.transformation.passes.analysis import StateReachability

from dace_redist.distribution import AnyDistribution
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.node import COMMUNICATORS
from dace_redist.tuning.problem import canonical


def is_plain(node: Any) -> bool:
    """True for a blocking redistribution of a whole tensor over the world between known distributions."""
    special = isinstance(node, Redistribute) and (node.region or node.nonblocking)
    return not (node.given_at_run_time or special or {*COMMUNICATORS} & set(node.in_connectors))


def is_computing(node: Redistribute) -> bool:
    """True if a node can compute with elements: not with stock DaCe's code, nor with elements in pieces."""
    return bool(node.strategy != "MPI" and node.element_bytes == 0)


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
