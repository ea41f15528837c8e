"""Views among the arrays of a node: what they view."""

from __future__ import annotations

from dace import Memlet, data, subsets
from dace.sdfg import SDFGState, nodes
from dace.sdfg import utils as sdutil


def overlap(first: Memlet, second: Memlet, state: SDFGState) -> str:
    """Return the array in which two memlets of a node may overlap, one that they view included; "" for none."""
    parts, others = _parts(first, state), _parts(second, state)
    shared = next((name for name in parts if name in others), "")
    return shared if shared and subsets.intersects(parts[shared], others[shared]) is not False else ""


def _parts(memlet: Memlet, state: SDFGState) -> dict[str, subsets.Subset]:
    """Return the part of its array that the memlet of a node uses and, if that is a view, the parts that it views."""
    parts, path = {memlet.data: memlet.subset}, state.memlet_path(next(e for e in state.edges() if e.data is memlet))
    access = path[0].src if isinstance(path[0].src, nodes.AccessNode) else path[-1].dst
    while isinstance(access, nodes.AccessNode) and isinstance(state.sdfg.arrays[access.data], data.View):
        view, viewed = sdutil.get_view_edge(state, access), sdutil.get_view_node(state, access)
        if not isinstance(viewed, nodes.AccessNode):
            break
        if view.data.data != access.data:  # the viewed array, or a member of a structure
            parts[view.data.data] = view.data.subset
        else:
            parts[viewed.data] = view.data.other_subset or subsets.Range.from_array(state.sdfg.arrays[viewed.data])
        access = viewed
    return parts
