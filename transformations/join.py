"""Joining of independent redistributions into one exchange."""

from __future__ import annotations

import networkx as nx
from dace import SDFG, SDFGState

from dace_redist.library_nodes import JointRedistribute, Redistribute
from dace_redist.library_nodes.node import COMMUNICATORS, INPUT, OUTPUT
from dace_redist.transformations.patterns import OfRedistribute


class JoinRedistributes(OfRedistribute):
    """
    Join independent redistributions of a state into one exchange with one message per pair of ranks.

    It pays for small messages. All redistributions of the state are joined that have the same communicator, no ``op``,
    and arrays in main memory, and that are blocking, whatever their strategies were.
    """

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if another redistribution can be joined."""
        return len(independent(self.node, graph)) > 1

    def apply(self, graph: SDFGState, sdfg: SDFG) -> JointRedistribute:
        """Replace all of them by one node; return it."""
        return join(independent(self.node, graph), graph)


def independent(first: Redistribute, state: SDFGState) -> list[Redistribute]:
    """
    Return redistributions that can move in one exchange.

    :param first: The first of them.
    :param state: Its state.
    :return: ``first``, and the others in the order of the state's nodes; empty if it cannot be joined.
    """
    candidates = [node for node in state.nodes() if isinstance(node, Redistribute) and _can_join(node, state)]
    if first not in candidates:
        return []
    after = {node: nx.descendants(state.nx, node) for node in candidates}
    chosen = [first]
    for node in candidates:
        apart = all(node not in after[other] and other not in after[node] for other in chosen)
        written = {other.memlet(OUTPUT, state).data for other in chosen}
        same_array = {node.memlet(end, state).data for end in (INPUT, OUTPUT)} & written
        into_first = node.memlet(OUTPUT, state).data in {other.memlet(INPUT, state).data for other in chosen}
        if node is not first and apart and not same_array and not into_first:
            if _communicator(node, state) == _communicator(first, state):
                chosen.append(node)
    return chosen


def join(found: list[Redistribute], state: SDFGState) -> JointRedistribute:
    """
    Replace several nodes by one.

    :param found: Redistributions of :func:`independent`; they are removed.
    :param state: Their state.
    """
    joint = JointRedistribute("_".join(node.label for node in found)[:80], found)
    state.add_node(joint)
    for number, node in enumerate(found):
        for edge in state.in_edges(node):
            connector = edge.dst_conn
            if connector not in COMMUNICATORS:
                state.add_edge(edge.src, edge.src_conn, joint, f"{connector}_{number}", edge.data)
            elif connector not in joint.in_connectors:
                joint.add_in_connector(connector)
                state.add_edge(edge.src, edge.src_conn, joint, connector, edge.data)
        for edge in state.out_edges(node):
            state.add_edge(joint, f"{edge.src_conn}_{number}", edge.dst, edge.dst_conn, edge.data)
    before = [edge.src for node in found for edge in state.in_edges(node)]
    state.remove_nodes_from(found)
    state.remove_nodes_from({node for node in before if node in state.nodes() and state.degree(node) == 0})
    return joint


def _can_join(node: Redistribute, state: SDFGState) -> bool:
    single = node.op or node.nonblocking
    return not (single or any(node.on_gpu(state.sdfg, state)) or state.entry_node(node) is not None)


def _communicator(node: Redistribute, state: SDFGState) -> set[tuple[str, str]]:
    return {(edge.dst_conn, edge.data.data) for edge in state.in_edges(node) if edge.dst_conn in COMMUNICATORS}
