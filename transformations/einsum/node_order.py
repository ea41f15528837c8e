"""The order in which the nodes of a state are read: what reads a tensor comes before what overwrites it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx
from dace import SDFGState
from dace.sdfg import nodes
from dace.sdfg import utils as sdutil


def in_order(state: SDFGState) -> Sequence[nodes.Node]:
    """
    The nodes of a state in an order in which they can run one after another.

    Edges of a state say what a node needs. Two access nodes of one tensor may be without a path between them, where
    DaCe has fused states: one is read, the other written later.

    :param state: The state.
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
    """Lets all that reads one access node run before what writes another."""
    for use in state.out_edges(read):
        reader = read if isinstance(use.dst, nodes.AccessNode) else use.dst
        for write in state.in_edges(written):
            writer = state.entry_node(write.src) if isinstance(write.src, nodes.MapExit) else write.src
            if reader is not writer and not nx.has_path(graph, writer, reader):
                graph.add_edge(reader, writer)
