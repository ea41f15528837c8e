"""Fusion of reductions before, and broadcasts after, a redistribution into it."""

from __future__ import annotations

import copy
import dataclasses
import re
from typing import Any

import networkx as nx
from dace import SDFG, SDFGState, data
from dace.data.distributed import ProcessGrid
from dace.libraries.comm.nodes import Bcast, Reduce
from dace.sdfg import nodes
from dace.sdfg.graph import Edge

from dace_redist.distribution import AnyDistribution, Distribution
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.node import INPUT, OUTPUT
from dace_redist.transformations.patterns import (
    OfRedistribute,
    accesses,
    can_compute,
    carries_all,
    input_of,
    is_ordered,
    is_plain,
    is_used_after,
    memory_of,
    output_of,
    root_name,
    share_elements,
)
from dace_redist.transformations.stock import remove_unused

#: Names of operators, by their names in MPI and in DaCe.
_OPS = {f"MPI_{name.upper()}": name for name in ("sum", "prod", "min", "max")} | {
    **{"Sum": "sum", "Product": "prod", "Min": "min", "Max": "max"}
}

#: Code of a tasklet that writes 0.
_ZERO = re.compile(r"\s*\w+\s*=\s*0[\s;]*$")


@dataclasses.dataclass(frozen=True)
class _Reduction:
    state: SDFGState
    node: Any
    into: Edge  # the partial results
    result: nodes.AccessNode  # what it writes
    source: Any  # distribution of the partial results
    op: str


class FuseReduceBcast(OfRedistribute):
    """
    Fuse a reduction of partial results, a redistribution, and a broadcast of its result into one redistribution.

    The fused redistribution reduces partial results and fills all replicas of the target. The reduction is a
    ``Redistribute`` that only reduces, or DaCe's ``Reduce`` to the first rank of a sub-grid; the broadcast is DaCe's
    ``Bcast`` from the first rank of a sub-grid. It can be applied if at least one of them exists, nothing else uses the
    arrays in between, and a redistribution after a reduction converts no elements. The order of the additions changes.
    Before and after::

        A --> Reduce(sum) --> B --> Redistribute --> C --> Bcast --> D
        A --> Redistribute(op="sum") ------------------------------> D
    """

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if a reduction precedes the node, or a broadcast follows it."""
        reduction = _reduction_before(self.node, graph, sdfg)
        return reduction is not None or _broadcast_after(self.node, graph, sdfg) is not None

    def apply(self, graph: SDFGState, sdfg: SDFG) -> Redistribute:
        """Change the node and remove the others; return the node."""
        node = self.node
        broadcast = _broadcast_after(node, graph, sdfg)
        if broadcast is not None:
            sending, after, target = broadcast
            node.target, out = target, output_of(node, graph)
            graph.add_edge(node, OUTPUT, after, None, copy.deepcopy(out.data))
            graph.remove_node(out.dst)
            _remove_with_arguments(sending, graph)
        reduction = _reduction_before(node, graph, sdfg)
        if reduction is not None:
            _join_reduction(node, reduction, graph, sdfg)
        return node


def _reduction_before(node: Redistribute, state: SDFGState, sdfg: SDFG) -> _Reduction | None:
    """Return the reduction that writes the input of a node, if the node can include it."""
    into = input_of(node, state)
    if not is_plain(node) or node.op or not isinstance(into.src, nodes.AccessNode):
        return None
    written = _last_write(into.src, state)
    if written is None:
        return None
    where, result = written
    (writer,) = (edge.src for edge in where.in_edges(result))
    if _only_reduces(writer):
        source, added = writer.distributions()
        partial, op = input_of(writer, where), writer.op
        summands, sums = writer.arrays(sdfg, where)
        fits = added.is_equivalent_to(node.distributions()[0]) and summands[0].dtype == sums[0].dtype
    elif isinstance(writer, Reduce) and str(writer.op) in _OPS:
        source = _with_replicas(node.distributions()[0], writer, where, sdfg)
        partial, op = input_of(writer, where, "_inbuffer"), _OPS[str(writer.op)]
        written_part = output_of(writer, where, "_outbuffer").data.subset
        fits = source is not None and isinstance(partial.src, nodes.AccessNode) and partial.data.subset == written_part
    else:
        return None
    found = _Reduction(where, writer, partial, result, source, op)
    used = not fits or not _fits(found, node, state, sdfg) or is_used_after(sdfg, state, into.data.data)
    return None if used else found


def _only_reduces(node: nodes.Node) -> bool:
    """Return True for a node that reduces partial results, and changes nothing else."""
    if not isinstance(node, Redistribute) or not node.op or not is_plain(node) or node.index_map.encoded:
        return False
    return (node.alpha, node.beta, node.conj) == (1, 0, False)


def _fits(found: _Reduction, node: Redistribute, state: SDFGState, sdfg: SDFG) -> bool:
    """Return True if only the redistribution uses the result, and its factors and types allow the reduction."""
    partial, name, into = found.into.data.data, found.result.data, input_of(node, state)
    if state.out_degree(into.src) != 1 or share_elements(sdfg, found.into.data, output_of(node, state).data):
        return False
    if partial == name:
        elsewhere = found.result is not into.src and found.state.out_degree(found.result) > 0
        if elsewhere or found.into.data.subset != into.data.subset:
            return False
    elif {one for _, one in accesses(sdfg, name)} != {found.result, into.src}:
        return False
    ends = [(edge, found.state) for edge in (found.into, *found.state.in_edges(found.result))]
    if not all(carries_all(edge, where) for edge, where in [*ends, (into, state)]):
        return False
    if _is_changed(found, node, state, sdfg):
        return False
    if is_ordered(found.node, found.state) or ((node.alpha, node.conj) != (1, False) and found.op != "sum"):
        return False
    (source, _), (target, _) = node.arrays(sdfg, state)
    return source.dtype == target.dtype and can_compute(node, source, target, node.alpha, found.op)


def _is_changed(found: _Reduction, node: Redistribute, state: SDFGState, sdfg: SDFG) -> bool:
    """Return True if a node cannot use the partial results: they, or symbols on which they depend, have changed."""
    partial = found.into.data.data
    symbols = found.into.data.free_symbols | found.node.free_symbols | node.free_symbols
    symbols |= sdfg.arrays[partial].free_symbols
    names = memory_of(sdfg, partial)
    if state is not found.state and isinstance(sdfg.arrays[partial], data.View):
        return True  # a view is of one state
    while state is not found.state:
        if any(root_name(one.data) in names and state.in_degree(one) > 0 for one in state.data_nodes()):
            return True
        (edge,) = state.parent_graph.in_edges(state)
        if symbols & edge.data.assignments.keys():
            return True
        state = edge.src
    before = {*nx.ancestors(state.nx, found.node), found.result}
    later = [one for one in state.data_nodes() if root_name(one.data) in names and one not in before]
    return any(state.in_degree(one) > 0 for one in later)


def _last_write(access: nodes.AccessNode, state: SDFGState) -> tuple[SDFGState, nodes.AccessNode] | None:
    """Return state and node of the last write to an array, in this state or in a chain of states before it."""
    here, names = [access] if state.in_degree(access) > 0 else [], memory_of(state.sdfg, access.data)
    while not here:
        before = state.parent_graph.in_edges(state)
        if len(before) != 1 or not isinstance(before[0].src, SDFGState):
            return None
        state = before[0].src
        if len(state.parent_graph.out_edges(state)) != 1:
            return None
        here = [one for one in state.data_nodes() if root_name(one.data) in names]
        last = [one for one in here if state.out_degree(one) == 0]
        if here and [one.data for one in last] != [access.data]:
            return None
        access = last[0] if here else access
    return (state, access) if state.in_degree(access) == 1 else None


def _broadcast_after(
    node: Redistribute, state: SDFGState, sdfg: SDFG
) -> tuple[Bcast, nodes.AccessNode, Distribution] | None:
    """Return the broadcast of a node's output, the array after it, and the target with its replicas."""
    out = output_of(node, state)
    if not isinstance(out.dst, nodes.AccessNode) or state.in_degree(out.dst) != 1 or state.out_degree(out.dst) != 1:
        return None
    sending = state.out_edges(out.dst)[0].dst
    if not (is_plain(node) and isinstance(sending, Bcast)) or is_ordered(sending, state):
        return None
    if sending.nonblocking or node.beta != 0:
        return None
    target = _with_replicas(node.distributions()[1], sending, state, sdfg)
    results = [edge for edge in state.out_edges(sending) if edge.src_conn == "_outbuffer"]
    if target is None or len(results) != 1 or results[0].data.data != out.data.data:
        return None
    if results[0].data.subset != out.data.subset or not (carries_all(results[0], state) and carries_all(out, state)):
        return None
    return sending, results[0].dst, target


def _with_replicas(distribution: AnyDistribution, collective: Any, state: SDFGState, sdfg: SDFG) -> Distribution | None:
    """Return a distribution over the first ranks of sub-grids, extended to replicas on all ranks of the sub-grids."""
    if not isinstance(distribution, Distribution) or not _is_from_the_first(collective, state):
        return None
    name = next((edge.data.data for edge in state.in_edges(collective) if edge.dst_conn == "_grid"), None)
    grids = {desc.name: desc for desc in sdfg.arrays.values() if isinstance(desc, ProcessGrid)}
    grid = sdfg.arrays.get(name)
    if not isinstance(grid, ProcessGrid) or not grid.is_subgrid or grid.exact_grid is not None:
        return None
    parent = grids.get(grid.parent_grid)
    if parent is None or parent.is_subgrid or [str(n) for n in parent.shape] != [str(n) for n in distribution.grid]:
        return None
    kept = [axis for axis, keep in enumerate(grid.color) if keep]
    if any(distribution.pins[axis] != 0 for axis in kept):
        return None
    pins = [None if axis in kept else pin for axis, pin in enumerate(distribution.pins)]
    return dataclasses.replace(distribution, pins=pins)


def _is_from_the_first(collective: Any, state: SDFGState) -> bool:
    """Return True if the root of a collective is the constant 0, which one tasklet writes."""
    roots = [edge.src for edge in state.in_edges(collective) if edge.dst_conn == "_root"]
    writers = [edge.src for root in roots for edge in state.in_edges(root)]
    return len(writers) == 1 and isinstance(writers[0], nodes.Tasklet) and bool(_ZERO.match(writers[0].code.as_string))


def _join_reduction(node: Redistribute, found: _Reduction, state: SDFGState, sdfg: SDFG) -> None:
    node.source, node.op = found.source, found.op
    into, source, memlet = input_of(node, state), found.into.src, copy.deepcopy(found.into.data)
    apart = found.result.data != memlet.data
    if found.state is state:
        state.add_edge(source, found.into.src_conn, node, INPUT, memlet)
        state.remove_node(into.src)
    elif apart:
        state.add_edge(state.add_read(memlet.data), None, node, INPUT, memlet)
        state.remove_node(into.src)
    _remove_with_arguments(found.node, found.state)
    if found.state is not state:
        left = {found.result, source} & set(found.state.nodes())
        found.state.remove_nodes_from([one for one in left if found.state.degree(one) == 0])
    if apart:
        sdfg.remove_data(found.result.data)


def _remove_with_arguments(collective: Any, state: SDFGState) -> None:
    """Remove a node with its root, and its grid unless it is used elsewhere."""
    before = {edge.src: edge.dst_conn for edge in state.in_edges(collective) if edge.dst_conn in ("_root", "_grid")}
    state.remove_node(collective)
    for argument, connector in before.items():
        if connector == "_grid":
            remove_unused(state.sdfg, argument.data)
        elif state.out_degree(argument) == 0:
            writers = [edge.src for edge in state.in_edges(argument) if isinstance(edge.src, nodes.Tasklet)]
            state.remove_nodes_from([argument, *writers])
