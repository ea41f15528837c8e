"""Puts the arrays on either side of a redistribution where the ranks of a node can reach them."""

from __future__ import annotations

from typing import Any

from dace import data, dtypes, symbolic
from dace.sdfg import SDFG, SDFGState
from dace.sdfg import utils as sdutil
from dace.transformation import transformation

from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.distributed_node import INPUT, OUTPUT
from dace_redist.library_nodes.environment import NODE_SHARED, allocate_at_start, is_allocated_at_start
from dace_redist.strategies import find_strategy
from dace_redist.transformations.redistribution.lower import checked_sdfg

_HEAP = (dtypes.StorageType.Default, dtypes.StorageType.CPU_Heap)


class PlaceInSharedMemory(transformation.SingleStateTransformation):
    """
    Allocates the transients next to a ``Redistribute`` in node-shared memory, so that a node-aware strategy
    (``Shared``, ``Hierarchical``) moves them with a single copy.

    The arrays are then allocated when the program starts and kept until it ends, and hold what they held when it is
    called again. Arrays that the caller passes stay where they are: see :func:`dace_redist.empty`.

    It can be applied if such a transient lies on the heap, is not cleared on allocation, and its size is known when the
    program starts, if neither array lies on the GPU, and if the program leaves no memory to be set by the caller
    (``AllocationLifetime.External``).
    """

    node = transformation.PatternNode(Redistribute)

    @classmethod
    def expressions(cls) -> list[Any]:
        """One node."""
        return [sdutil.node_path_graph(cls.node)]

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Whether the strategy in force knows nodes, and there is an array to move."""
        return (
            find_strategy(self.node.strategy).node_aware
            and not any(self.node.on_gpu(sdfg, graph))
            and not _has_external_memory(sdfg.root_sdfg)
            and bool(self._names(graph, sdfg))
        )

    def apply(self, graph: SDFGState, sdfg: SDFG) -> None:
        """Changes lifetime and location of the arrays."""
        for name in self._names(graph, sdfg):
            allocate_at_start(sdfg.arrays[name], {NODE_SHARED: 1})

    def _names(self, graph: SDFGState, sdfg: SDFG) -> list[str]:
        """Names of the arrays next to the node that can be moved and are not yet."""
        edges = [e for e in graph.in_edges(self.node) if e.dst_conn == INPUT]
        edges += [e for e in graph.out_edges(self.node) if e.src_conn == OUTPUT]
        return [name for name in dict.fromkeys(e.data.data for e in edges) if _can_move(sdfg, name)]


def place_in_shared_memory(sdfg: SDFG) -> SDFG:
    """
    Applies :class:`PlaceInSharedMemory` wherever it can be.

    :param sdfg: Changed in place, nested SDFGs included.
    :return: The same SDFG.
    :raises TypeError: If ``sdfg`` is none.
    """
    checked_sdfg(sdfg, "place_in_shared_memory").apply_transformations_repeated(PlaceInSharedMemory, validate=False)
    return sdfg


def _can_move(sdfg: SDFG, name: str) -> bool:
    array = sdfg.arrays[name]
    return (
        type(array) is data.Array
        and array.transient
        and array.storage in _HEAP
        and array.lifetime != dtypes.AllocationLifetime.External
        and _size_known_at_start(sdfg, array)
        and not _set_to_zero(sdfg, name)
    )


def _size_known_at_start(sdfg: SDFG, array: data.Array) -> bool:
    symbols = {str(symbol) for symbol in symbolic.symlist(array.total_size).values()}
    if sdfg.parent is not None:
        return symbols <= set(sdfg.constants)
    assigned = {name for edge in sdfg.all_interstate_edges() for name in edge.data.assignments}
    return symbols <= ({str(symbol) for symbol in sdfg.free_symbols} - assigned) | set(sdfg.constants)


def _set_to_zero(sdfg: SDFG, name: str) -> bool:
    """Whether the array is cleared where it is allocated, which memory that is allocated once is not."""
    return any(node.setzero for state in sdfg.states() for node in state.data_nodes() if node.data == name)


def _has_external_memory(sdfg: SDFG) -> bool:
    return any(
        array.lifetime == dtypes.AllocationLifetime.External and not is_allocated_at_start(array)
        for _, _, array in sdfg.arrays_recursive()
    )
