"""Overlap of redistributions with computation: a start and a wait."""

from __future__ import annotations

import copy

from dace import SDFG, Memlet, SDFGState, dtypes, properties
from dace.sdfg import nodes

from dace_redist.library_nodes import RedistributeWait
from dace_redist.library_nodes.node import INPUT
from dace_redist.library_nodes.redistribute import ORDER_INPUT, ORDER_OUTPUT, PROGRESS, REQUEST
from dace_redist.transformations.patterns import OfRedistribute, accesses, output_of


@properties.make_properties
class OverlapRedistribute(OfRedistribute):
    """
    Split a redistribution into a node that starts the transfer and a node that waits for it.

    DaCe's ``dace.libraries.comm.schedule.overlap_communication`` then moves independent computations between the two.
    It can be applied to a blocking redistribution outside of maps, if nothing else in its state writes its input or
    output.
    """

    progress = properties.Property(
        dtype=str, default=PROGRESS[0], choices=list(PROGRESS), desc="What moves the transfer on: see Redistribute"
    )

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if it is blocking, and nothing else writes its input or output until the wait."""
        node = self.node
        if node.nonblocking or graph.entry_node(node) is not None:
            return False
        out = output_of(node, graph)
        if not isinstance(out.dst, nodes.AccessNode) or graph.in_degree(out.dst) != 1:
            return False
        read = node.memlet(INPUT, graph).data
        here = [one for where, one in accesses(sdfg, read) if where is graph and graph.in_degree(one) > 0]
        written = [one for where, one in accesses(sdfg, out.data.data) if where is graph]
        return written == [out.dst] and all(one in {edge.src for edge in graph.in_edges(node)} for one in here)

    def apply(self, graph: SDFGState, sdfg: SDFG) -> RedistributeWait:
        """Make the node non-blocking and add the wait; return the wait."""
        node = self.node
        out = output_of(node, graph)
        request, _ = sdfg.add_array(f"{node.label}_request", (1,), dtypes.int64, transient=True, find_new_name=True)
        node.set_nonblocking(self.progress)
        wait, token = RedistributeWait(f"wait_{node.label}"), graph.add_access(request)
        done = graph.add_access(out.data.data)
        graph.add_node(wait)
        graph.add_edge(node, REQUEST, token, None, Memlet(f"{request}[0]"))
        graph.add_edge(token, None, wait, REQUEST, Memlet(f"{request}[0]"))
        for edge in graph.out_edges(out.dst):
            graph.add_edge(done, edge.src_conn, edge.dst, edge.dst_conn, edge.data)
            graph.remove_edge(edge)
        graph.add_edge(out.dst, None, wait, ORDER_INPUT, copy.deepcopy(out.data))
        graph.add_edge(wait, ORDER_OUTPUT, done, None, copy.deepcopy(out.data))
        return wait
