"""Fusion of redistributions with each other and with transpositions, and removal of redundant ones."""

from __future__ import annotations

import copy
from typing import Any

from dace import Memlet, symbolic
from dace.libraries.linalg import Transpose
from dace.sdfg import SDFG, SDFGState, nodes
from dace.sdfg import utils as sdutil
from dace.transformation import transformation

from dace_redist.distribution import AnyDistribution, Distribution
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.distributed_node import INPUT, OUTPUT
from dace_redist.library_nodes.node import simplified
from dace_redist.transformations.redistribution.surroundings import is_computing, is_only_used_between, is_plain, same

_TRANSPOSE_INPUT, _TRANSPOSE_OUTPUT = "_inp", "_out"


class FuseRedistributes(transformation.SingleStateTransformation):
    """
    Fuse two consecutive redistributions into one from the first source to the second target.

    Axes, factors and conjugations are composed; the strategy is that of the second one. It can be applied if nothing
    else uses the array in between, both move whole tensors over the world, the first neither reduces nor accumulates,
    and the element type in between loses no information.
    """

    first = transformation.PatternNode(Redistribute)
    between = transformation.PatternNode(nodes.AccessNode)
    second = transformation.PatternNode(Redistribute)

    @classmethod
    def expressions(cls) -> list[Any]:
        """Return the pattern: node, array, node."""
        return [sdutil.node_path_graph(cls.first, cls.between, cls.second)]

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if fusing loses no information."""
        first, second = self.first, self.second
        if not (is_plain(first) and is_plain(second) and is_only_used_between(graph, sdfg, self.between)):
            return False
        if tuple(first.target) != tuple(second.source) or first.beta != 0 or first.op or second.op:
            return False
        if second.strategy == "MPI" != first.strategy:  # stock DaCe may not support the source of the first node
            return False
        written, read = first.memlet(OUTPUT, graph), second.memlet(INPUT, graph)
        if written.subset != read.subset:
            return False
        types = [
            sdfg.arrays[first.memlet(INPUT, graph).data].dtype,
            sdfg.arrays[second.memlet(OUTPUT, graph).data].dtype,
        ]
        between = sdfg.arrays[self.between.data].dtype
        return types == [between, between] or (between in types and first.alpha == 1)

    def apply(self, graph: SDFGState, sdfg: SDFG) -> Redistribute:
        """Change the second node and remove the first; return the second."""
        first, second, between = self.first, self.second, self.between  # looked up by number, which removals change
        before, after = first.index_map, second.index_map
        if before.axes or after.axes:
            second.axes = [before.source_axes[axis] for axis in after.source_axes]
        second.source = first.source
        second.alpha = simplified(symbolic.pystr_to_symbolic(str(first.alpha)) * second.alpha)
        second.conj = first.conj != second.conj
        (edge,) = graph.in_edges(first)
        graph.add_edge(edge.src, edge.src_conn, second, INPUT, copy.deepcopy(edge.data))
        graph.remove_nodes_from([first, between])
        sdfg.remove_data(between.data)
        return second


class RemoveRedistribute(transformation.SingleStateTransformation):
    """
    Replace a redistribution between equivalent distributions by a copy of the local array.

    It can be applied if source and target are equivalent, without axes, region or operation, and both arrays have
    equal extents. Between main memory and the GPU both must be whole arrays in C order, since DaCe copies no blocks of
    more than two dimensions there.
    """

    node = transformation.PatternNode(Redistribute)

    @classmethod
    def expressions(cls) -> list[Any]:
        """Return the pattern: one node."""
        return [sdutil.node_path_graph(cls.node)]

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if no data moves between ranks."""
        node = self.node
        if not is_plain(node) or node.index_map.encoded:
            return False
        if (node.alpha, node.beta, node.conj, node.op) != (1, 0, False, "") or not same(*node.distributions()):
            return False
        read, written = node.memlet(INPUT, graph), node.memlet(OUTPUT, graph)
        same_type = sdfg.arrays[read.data].dtype == sdfg.arrays[written.data].dtype
        ends = [graph.in_edges(node)[0].src, graph.out_edges(node)[0].dst]
        from_gpu, to_gpu = node.on_gpu(sdfg, graph)
        if from_gpu != to_gpu and not all(_is_whole_in_c_order(memlet, sdfg) for memlet in (read, written)):
            return False
        return (
            same_type
            and list(read.subset.size()) == list(written.subset.size())
            and all(isinstance(end, nodes.AccessNode) for end in ends)
        )

    def apply(self, graph: SDFGState, sdfg: SDFG) -> None:
        """Replace the node by a copy."""
        node = self.node
        (into,), (out,) = graph.in_edges(node), graph.out_edges(node)
        memlet = Memlet(data=into.data.data, subset=into.data.subset, other_subset=out.data.subset)
        graph.add_edge(into.src, into.src_conn, out.dst, out.dst_conn, memlet)
        graph.remove_node(node)


def _is_whole_in_c_order(memlet: Memlet, sdfg: SDFG) -> bool:
    array = sdfg.arrays[memlet.data]
    return bool(array.is_packed_c_strides() and list(memlet.subset.size()) == list(array.shape))


class FuseTranspose(transformation.SingleStateTransformation):
    """
    Fuse the transposition of a local matrix before or after a redistribution into its axes.

    It can be applied if nothing else uses the array in between, and the redistribution moves a whole matrix in blocks
    by another strategy than ``MPI``. If the transposition comes after it, the redistribution must not accumulate.
    """

    node = transformation.PatternNode(Redistribute)
    between = transformation.PatternNode(nodes.AccessNode)
    transpose = transformation.PatternNode(Transpose)

    @classmethod
    def expressions(cls) -> list[Any]:
        """Return the patterns: the transposition after the redistribution, and before it."""
        return [
            sdutil.node_path_graph(cls.node, cls.between, cls.transpose),
            sdutil.node_path_graph(cls.transpose, cls.between, cls.node),
        ]

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if the redistribution can include the transposition."""
        after = expr_index == 0
        if not (is_plain(self.node) and is_computing(self.node) and is_only_used_between(graph, sdfg, self.between)):
            return False
        source, target = self.node.distributions()
        if not isinstance(target if after else source, Distribution) or len(source.shape) != 2:
            return False
        if after and self.node.beta != 0:
            return False
        (into,), (out,) = graph.in_edges(self.transpose), graph.out_edges(self.transpose)
        here, there = (
            (self.node.memlet(OUTPUT, graph), into.data) if after else (self.node.memlet(INPUT, graph), out.data)
        )
        types = {sdfg.arrays[edge.data.data].dtype for edge in (into, out)}
        return here.subset == there.subset and len(types) == 1

    def apply(self, graph: SDFGState, sdfg: SDFG) -> Redistribute:
        """Change the node and remove the transposition; return the node."""
        node, between, transpose = self.node, self.between, self.transpose  # looked up by number
        axes = node.index_map.source_axes
        source, target = node.distributions()
        (into,), (out,) = graph.in_edges(transpose), graph.out_edges(transpose)
        if self.expr_index == 0:
            node.target, node.axes = transposed(target).encoded, list(axes[::-1])
            graph.add_edge(node, OUTPUT, out.dst, out.dst_conn, copy.deepcopy(out.data))
        else:
            node.source, node.axes = transposed(source).encoded, [1 - axis for axis in axes]
            graph.add_edge(into.src, into.src_conn, node, INPUT, copy.deepcopy(into.data))
        if node.axes == [0, 1]:
            node.axes = []
        graph.remove_nodes_from([transpose, between])
        sdfg.remove_data(between.data)
        return node


def transposed(distribution: AnyDistribution) -> Distribution:
    """
    Return the distribution of the transposed matrix, whose local arrays are the transposed ones.

    :raises TypeError: If it is in tiles, whose local arrays are one-dimensional.
    """
    if not isinstance(distribution, Distribution):
        raise TypeError(f"tiles cannot be transposed in their local arrays: {distribution}")
    return Distribution(
        distribution.shape[::-1],
        distribution.grid,
        dims=distribution.dims[::-1],
        block=distribution.block[::-1],
        ranks=distribution.ranks,
        pins=distribution.pins,
    )
