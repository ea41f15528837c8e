"""Placement of the arrays of redistributions in node-shared memory."""

from __future__ import annotations

from dace import data, dtypes
from dace.sdfg import SDFG, SDFGState

from dace_redist.library_nodes.environment import NODE_SHARED, allocate_at_start, is_allocated_at_start
from dace_redist.library_nodes.expansions import are_known_at_start
from dace_redist.library_nodes.node import INPUT, OUTPUT, symbols_of
from dace_redist.strategies import find_strategy
from dace_redist.transformations.patterns import OfRedistribute, accesses, checked_sdfg

_HEAP = (dtypes.StorageType.Default, dtypes.StorageType.CPU_Heap)


class PlaceInSharedMemory(OfRedistribute):
    """
    Allocate the transients next to a ``Redistribute`` in node-shared memory.

    A node-aware strategy (``Shared``, ``Hierarchical``) then moves them with a single copy. The arrays are allocated
    when the program starts, freed when it ends, and keep their contents between calls. Arguments of the caller are not
    moved: see :func:`dace_redist.shared_empty`.

    It can be applied if such a transient lies on the heap, is not cleared on allocation, and has a size known when the
    program starts; if neither array lies on the GPU; and if the program has no other external memory
    (``AllocationLifetime.External``).
    """

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if the strategy in force is node-aware, and an array can be placed."""
        arrays = (array for _, _, array in sdfg.root_sdfg.arrays_recursive())
        external = (array for array in arrays if array.lifetime == dtypes.AllocationLifetime.External)
        return (
            find_strategy(self.node.strategy).node_aware
            and not any(self.node.on_gpu(sdfg, graph))
            and all(map(is_allocated_at_start, external))
            and bool(self._names(graph, sdfg))
        )

    def apply(self, graph: SDFGState, sdfg: SDFG) -> None:
        """Change lifetime and location of the arrays."""
        for name in self._names(graph, sdfg):
            allocate_at_start(sdfg.arrays[name], {NODE_SHARED: 1})

    def _names(self, graph: SDFGState, sdfg: SDFG) -> list[str]:
        """Return the names of the arrays next to the node that can still be placed."""
        names = (self.node.memlet(end, graph).data for end in (INPUT, OUTPUT))
        return [name for name in dict.fromkeys(names) if _can_move(sdfg, name)]


def place_in_shared_memory(sdfg: SDFG) -> SDFG:
    """
    Apply :class:`PlaceInSharedMemory` to all redistributions.

    :param sdfg: Changed in place, including nested SDFGs.
    :return: ``sdfg``.
    :raises TypeError: If ``sdfg`` is not an SDFG.
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
        and are_known_at_start(symbols_of([array.total_size]), sdfg)
        # memory that is allocated once is not cleared at each allocation
        and not any(node.setzero for _, node in accesses(sdfg, name))
    )
