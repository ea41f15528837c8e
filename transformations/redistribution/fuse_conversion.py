"""Fusion of casts, scaling and conjugation into a redistribution."""

from __future__ import annotations

import copy
from typing import Any

from dace import SDFG, SDFGState, dtypes
from dace.sdfg import nodes
from dace.sdfg import utils as sdutil
from dace.transformation import transformation

from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.distributed_node import INPUT, OUTPUT
from dace_redist.library_nodes.node import simplified, symbols_of
from dace_redist.transform import Transform
from dace_redist.transformations.redistribution.scaled_input import ScaledInput, is_power_of_two, scaled_input
from dace_redist.transformations.redistribution.surroundings import is_computing, is_only_used_between, is_plain


class FuseConversion(transformation.SingleStateTransformation):
    """
    Fuse a map that converts, scales or conjugates a whole array before or after a redistribution into its properties.

    It can be applied if nothing else uses the array in between, and the result is equal: a factor before a conversion
    and a divisor must be powers of two. Several factors of one type are multiplied first, which can change the last
    digit. It cannot be applied after a redistribution that reduces or accumulates.
    """

    node = transformation.PatternNode(Redistribute)
    between = transformation.PatternNode(nodes.AccessNode)
    entry = transformation.PatternNode(nodes.MapEntry)
    tasklet = transformation.PatternNode(nodes.Tasklet)
    exit = transformation.PatternNode(nodes.MapExit)

    @classmethod
    def expressions(cls) -> list[Any]:
        """Return the patterns: the map after the redistribution, and before it."""
        return [
            sdutil.node_path_graph(cls.node, cls.between, cls.entry, cls.tasklet, cls.exit),
            sdutil.node_path_graph(cls.entry, cls.tasklet, cls.exit, cls.between, cls.node),
        ]

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if the redistribution can include the map with an equal result."""
        node, after = self.node, expr_index == 0
        if not (is_plain(node) and is_computing(node) and is_only_used_between(graph, sdfg, self.between)):
            return False
        if after and (node.beta != 0 or node.op):
            return False
        if not self._is_whole(graph, sdfg):
            return False
        scaled = self._scaled(graph, sdfg)
        return scaled is not None and self._is_exact(graph, sdfg, scaled, after)

    def apply(self, graph: SDFGState, sdfg: SDFG) -> Redistribute:
        """Change the node and remove the map; return the node."""
        node, between, entry, tasklet, leave = self.node, self.between, self.entry, self.tasklet, self.exit
        scaled = self._scaled(graph, sdfg)
        assert scaled is not None
        (into,), (out,) = graph.in_edges(entry), graph.out_edges(leave)
        is_complex = sdfg.arrays[into.data.data].dtype in (dtypes.complex64, dtypes.complex128)
        node.alpha = simplified(node.alpha * scaled.alpha)
        node.conj = node.conj != (scaled.conj and is_complex)
        if self.expr_index == 0:
            graph.add_edge(node, OUTPUT, out.dst, out.dst_conn, copy.deepcopy(out.data))
        else:
            graph.add_edge(into.src, into.src_conn, node, INPUT, copy.deepcopy(into.data))
        graph.remove_nodes_from([between, entry, tasklet, leave])
        sdfg.remove_data(between.data)
        return node

    def _scaled(self, graph: SDFGState, sdfg: SDFG) -> ScaledInput | None:
        ends = (*graph.in_edges(self.entry), *graph.out_edges(self.exit))
        return scaled_input(self.tasklet, sdfg, {sdfg.arrays[edge.data.data].dtype for edge in ends})

    def _is_whole(self, graph: SDFGState, sdfg: SDFG) -> bool:
        """Return True if the map goes elementwise from one array to another, and covers the array in between."""
        entry, tasklet, leave = self.entry, self.tasklet, self.exit
        if not all(graph.in_degree(one) == 1 == graph.out_degree(one) for one in (entry, tasklet, leave)):
            return False
        read, written = graph.in_edges(tasklet)[0].data, graph.out_edges(tasklet)[0].data
        if written.wcr is not None or str(read.subset) != str(written.subset):
            return False
        begins = [(str(begin), str(end)) for begin, end, _ in read.subset.ndrange()]
        parameters = entry.map.params
        if begins != [(name, name) for name in parameters]:
            return False
        extents = [(begin, end + 1, step) for begin, end, step in entry.map.range.ndrange()]
        shape = sdfg.arrays[self.between.data].shape
        (moved,) = graph.in_edges(self.between) if self.expr_index == 0 else graph.out_edges(self.between)
        return extents == [(0, extent, 1) for extent in shape] and list(moved.data.subset.size()) == list(shape)

    def _is_exact(self, graph: SDFGState, sdfg: SDFG, scaled: ScaledInput, after: bool) -> bool:
        """Return True if types and factors give equal elements in one step and in two."""
        (into,), (out,) = graph.in_edges(self.entry), graph.out_edges(self.exit)
        read, written = sdfg.arrays[into.data.data].dtype, sdfg.arrays[out.data.data].dtype
        moved = sdfg.arrays[self.node.memlet(INPUT if after else OUTPUT, graph).data].dtype
        first, between, last = (moved, read, written) if after else (read, written, moved)
        if between not in (first, last):
            return False
        if not is_power_of_two(scaled.alpha) and (read != written or (scaled.is_double and written.bytes < 8)):
            return False
        if between != last and not is_power_of_two(self.node.alpha if after else scaled.alpha):
            return False
        factor = self.node.alpha * scaled.alpha
        types = [end.base_type.as_numpy_dtype() for end in (first, last)]
        try:
            alpha = 2 if symbols_of([factor]) else complex(factor)
            fused = Transform(1, *types, alpha=alpha, op=self.node.op or None)
            fused.check_on_gpu(*self.node.on_gpu(sdfg, graph))
        except (ValueError, TypeError):
            return False
        return True
