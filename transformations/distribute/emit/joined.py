"""Joint exchanges: small redistributions that do not depend on each other move together. Start: join_exchanges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dace import SDFG, SDFGState
from dace.sdfg import nodes
from dace.sdfg.state import ConditionalBlock, ControlFlowRegion, LoopRegion

from dace_redist.library_nodes import Redistribute
from dace_redist.transformations.distribute.ir import in_numbers
from dace_redist.transformations.exchange import join

#: Maximum bytes of an array of this rank that moves with others.
MAX_BYTES = 1 << 20


def join_exchanges(sdfg: SDFG, sizes: Mapping[str, int]) -> None:
    """
    Join small redistributions in loops and in their branches, up to the next loop, branch or assignment.

    Each moves up to the first one after which nothing writes its input, or uses its output.

    :param sdfg: A program of states with one node each, with loops and branches of such states.
    :param sizes: Values of all symbols, on the rank with the largest parts.
    """
    for region in list(sdfg.all_control_flow_regions()):
        if _is_in_loop(region) and not isinstance(region, ConditionalBlock):
            _join_in(region, sizes)


def _is_in_loop(region: Any) -> bool:
    if isinstance(region, LoopRegion):
        return True
    return not isinstance(region, SDFG) and _is_in_loop(region.parent_graph)


def _join_in(region: ControlFlowRegion, sizes: Mapping[str, int]) -> None:
    first: SDFGState | None = None  # to which others move up
    used, written = set[str](), set[str]()  # since then
    joined: dict[SDFGState, list[Redistribute]] = {}
    for block in list(region.bfs_nodes(region.start_block)):
        if not isinstance(block, SDFGState) or any(edge.data.assignments for edge in region.in_edges(block)):
            first = None
        node = _small(block, sizes) if isinstance(block, SDFGState) else None
        if node is None:
            for access in block.data_nodes() if first else ():
                used.add(access.data)
                written |= {access.data} if block.in_degree(access) else set()
            continue
        source, target = block.in_edges(node)[0].data.data, block.out_edges(node)[0].data.data
        if first is not None and source not in written and target not in used:
            _move_up(node, block, first)
            joined[first].append(node)
        else:
            first, used, written = block, set(), set()
            joined[first] = [node]
        used |= {source, target}
        written.add(target)
    for state, found in joined.items():
        if len(found) > 1:
            join(found, state)


def _small(state: SDFGState, sizes: Mapping[str, int]) -> Redistribute | None:
    """Return the redistribution that a state consists of, if it can move with others."""
    found = [node for node in state.nodes() if not isinstance(node, nodes.AccessNode)]
    if len(found) != 1 or not isinstance(found[0], Redistribute) or found[0].op:
        return None
    arrays = [state.sdfg.arrays[access.data] for access in state.data_nodes()]
    nbytes = max(math.prod(in_numbers(array.shape, sizes)) * array.dtype.bytes for array in arrays)
    return found[0] if nbytes <= MAX_BYTES else None


def _move_up(node: Redistribute, state: SDFGState, first: SDFGState) -> None:
    """Move a redistribution to an earlier state, and remove its own."""
    (read,), (write,) = state.in_edges(node), state.out_edges(node)
    first.add_node(node)
    first.add_edge(first.add_read(read.data.data), None, node, read.dst_conn, read.data)
    first.add_edge(node, write.src_conn, first.add_write(write.data.data), None, write.data)
    region = state.parent_graph
    (before,) = region.in_edges(state)
    for after in region.out_edges(state):
        region.add_edge(before.src, after.dst, after.data)
    region.remove_node(state)
