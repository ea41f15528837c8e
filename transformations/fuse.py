"""Fusion of redistributions with each other and with transpositions, and removal of redundant ones."""

from __future__ import annotations

import dataclasses
from typing import Any

from dace import Memlet, data, dtypes, symbolic
from dace.libraries.linalg import Transpose
from dace.sdfg import SDFG, SDFGState, nodes
from dace.transformation import transformation

from dace_redist.distribution import AnyDistribution, Distribution
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.node import INPUT, OUTPUT, simplified
from dace_redist.transformations.patterns import (
    OfRedistribute,
    absorb,
    accesses,
    can_compute,
    input_of,
    is_only_used_between,
    is_ordered,
    is_plain,
    output_of,
    share_elements,
)


class FuseRedistributes(OfRedistribute):
    """
    Fuse two consecutive redistributions into one from the first source to the second target.

    Axes, factors and conjugations are composed; the strategy is that of the second one. It can be applied if nothing
    else uses the array in between, both move whole tensors over the world, the first neither reduces nor accumulates,
    and the element type in between loses no information. ``permissive`` permits a floating-point type that does, and
    another strategy of the first: results may be more exact. Before and after::

        A --> Redistribute(rows, columns) --> B --> Redistribute(columns, tiles) --> C
        A --> Redistribute(rows, tiles) -------------------------------------------> C
    """

    first = transformation.PatternNode(Redistribute)
    between = transformation.PatternNode(nodes.AccessNode)
    paths = (("first", "between", "node"),)

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if fusing loses no information."""
        first, second = self.first, self.node
        if not (is_plain(first) and is_plain(second) and is_only_used_between(graph, sdfg, self.between, [first])):
            return False
        chosen = first.has_choice and (first.strategy, first.options) != (second.strategy, second.options)
        if chosen and not permissive:
            return False
        if first.target != second.source or first.beta != 0 or first.op or second.op:
            return False
        if first.memlet(OUTPUT, graph).subset != second.memlet(INPUT, graph).subset:
            return False
        if share_elements(sdfg, first.memlet(INPUT, graph), second.memlet(OUTPUT, graph)):
            return False
        ends = [first.array(INPUT, graph), second.array(OUTPUT, graph)]
        types, between = [end.dtype for end in ends], sdfg.arrays[self.between.data].dtype
        rounds = permissive and {between, *types} <= {*dtypes.FLOAT_TYPES}
        if types != [between, between] and not (rounds or (between in types and first.alpha == 1)):
            return False
        return can_compute(second, *ends, self._alpha)

    def apply(self, graph: SDFGState, sdfg: SDFG) -> Redistribute:
        """Change the second node and remove the first; return the second."""
        first, second, between = self.first, self.node, self.between  # looked up by number, which removals change
        before, after = first.index_map, second.index_map
        if before.axes or after.axes:
            second.axes = [before.source_axes[axis] for axis in after.source_axes]
        second.source, second.alpha = first.source, self._alpha
        second.conj = first.conj != second.conj
        absorb(second, graph, input_of(first, graph), [first, between])
        return second

    @property
    def _alpha(self) -> Any:
        return simplified(symbolic.pystr_to_symbolic(str(self.first.alpha)) * self.node.alpha)


class RemoveRedistribute(OfRedistribute):
    """
    Replace a redistribution between equivalent distributions by a copy of the local array.

    It can be applied if source and target are equivalent, without halo, axes, region or operation, both arrays have
    equal extents, and the output is new: elements that the rank does not own are copied, too. Between main memory and
    the GPU both must be whole arrays in C order, since DaCe copies no blocks of more than two dimensions there.
    ``permissive`` permits an output that is not new. Before and after::

        A --> Redistribute(rows, rows) --> B
        A -------------------------------> B
    """

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if no data moves between ranks."""
        node, (source, target) = self.node, self.node.distributions()
        if not (is_plain(node) and node.is_copy) or node.index_map.encoded or is_ordered(node, graph):
            return False
        if any((*source.halo, *target.halo)) or not source.is_equivalent_to(target):
            return False
        arrays, (from_gpu, to_gpu) = node.arrays(sdfg, graph), node.on_gpu(sdfg, graph)
        if from_gpu != to_gpu:
            whole = (list(subset.size()) == list(array.shape) for array, subset in arrays)
            if not (all(whole) and all(array.is_packed_c_strides() for array, _ in arrays)):
                return False
        (read, from_subset), (written, to_subset) = arrays
        ends = [input_of(node, graph).src, output_of(node, graph).dst]
        return (
            read.dtype == written.dtype
            and list(from_subset.size()) == list(to_subset.size())
            and all(isinstance(end, nodes.AccessNode) for end in ends)
            and (permissive or _is_new(ends[1], sdfg))
        )

    def apply(self, graph: SDFGState, sdfg: SDFG) -> None:
        """Replace the node by a copy."""
        node = self.node
        into, out = input_of(node, graph), output_of(node, graph)
        memlet = Memlet(data=into.data.data, subset=into.data.subset, other_subset=out.data.subset)
        graph.add_edge(into.src, into.src_conn, out.dst, out.dst_conn, memlet)
        graph.remove_node(node)


def _is_new(output: nodes.AccessNode, sdfg: SDFG) -> bool:
    """Return True if nothing else writes an array: what the redistribution leaves as it is is undefined."""
    name, array = output.data, sdfg.arrays[output.data]
    written = [node for state, node in accesses(sdfg, name) if state.in_degree(node) > 0 or node.setzero]
    return type(array) is data.Array and (array.transient or name.startswith("__return")) and written == [output]


class FuseTranspose(OfRedistribute):
    """
    Fuse the transposition of a local matrix before or after a redistribution into its axes.

    It can be applied if nothing else uses the array in between, and the redistribution moves a whole matrix in blocks.
    If the transposition comes after it, the redistribution must not accumulate. Before and after::

        A --> Redistribute --> B --> Transpose --> C
        A --> Redistribute(axes=[1, 0]) ---------> C
    """

    between = transformation.PatternNode(nodes.AccessNode)
    transpose = transformation.PatternNode(Transpose)
    paths = (("node", "between", "transpose"), ("transpose", "between", "node"))

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if the redistribution can include the transposition."""
        node, after = self.node, expr_index == 0
        if not (is_plain(node) and is_only_used_between(graph, sdfg, self.between, [self.transpose])):
            return False
        if after and node.beta != 0:
            return False
        distribution = node.distributions()[1 if after else 0]
        if not isinstance(distribution, Distribution) or len(distribution.shape) != 2:
            return False
        (into,), (out,) = graph.in_edges(self.transpose), graph.out_edges(self.transpose)
        types = {sdfg.arrays[edge.data.data].dtype for edge in (into, out)}
        near, far = (node.memlet(end, graph) for end in ((OUTPUT, INPUT) if after else (INPUT, OUTPUT)))
        if share_elements(sdfg, far, (out if after else into).data):
            return False
        return near.subset == (into if after else out).data.subset and len(types) == 1

    def apply(self, graph: SDFGState, sdfg: SDFG) -> Redistribute:
        """Change the node and remove the transposition; return the node."""
        node, between, transpose = self.node, self.between, self.transpose  # looked up by number
        axes = node.index_map.source_axes
        source, target = node.distributions()
        (into,), (out,) = graph.in_edges(transpose), graph.out_edges(transpose)
        if self.expr_index == 0:
            node.target, node.axes = transposed(target), list(axes[::-1])
        else:
            node.source, node.axes = transposed(source), [1 - axis for axis in axes]
        if node.axes == [0, 1]:
            node.axes = []
        absorb(node, graph, out if self.expr_index == 0 else into, [transpose, between])
        return node


def transposed(distribution: AnyDistribution) -> Distribution:
    """Return the distribution of the transposed matrix, which is not in tiles; its local arrays are transposed, too."""
    assert isinstance(distribution, Distribution)
    turned = {name: getattr(distribution, name)[::-1] for name in ("shape", "dims", "block", "halo", "periodic")}
    return dataclasses.replace(distribution, **turned)
