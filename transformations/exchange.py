"""Joint redistributions, their overlap with computation (a start and a wait), and arrays in node-shared memory."""

from __future__ import annotations

import copy

import networkx as nx
from dace import SDFG, Memlet, SDFGState, data, dtypes, properties
from dace.sdfg import nodes

from dace_redist.library_nodes import JointRedistribute, Redistribute, RedistributeWait
from dace_redist.library_nodes.environment import NODE_SHARED, allocate_at_start, is_allocated_at_start
from dace_redist.library_nodes.node import COMMUNICATORS, INPUT, OUTPUT, symbols_of
from dace_redist.library_nodes.redistribute import ORDER_INPUT, ORDER_OUTPUT, PROGRESS, REQUEST
from dace_redist.library_nodes.tasklets import changing_symbols
from dace_redist.strategies import find_strategy
from dace_redist.transformations.patterns import (
    OfRedistribute,
    accesses,
    checked_sdfg,
    is_written,
    memory_groups,
    output_of,
    root_name,
)


class JoinRedistributes(OfRedistribute):
    """
    Join independent redistributions of a state into one exchange with one message per pair of ranks.

    It pays for small messages. All redistributions of the state are joined that have the same communicator, no ``op``,
    and arrays in main memory, and that are blocking, whatever their strategies were. Before and after::

        A --> Redistribute --> B       A --> +-------------------+ --> B
        C --> Redistribute --> D       C --> | JointRedistribute | --> D
                                             +-------------------+
    """

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if another redistribution can be joined."""
        return len(independent(self.node, graph)) > 1

    def apply(self, graph: SDFGState, sdfg: SDFG) -> JointRedistribute:
        """Replace all of them by one node; return it."""
        return join(independent(self.node, graph), graph)


def independent(first: Redistribute, state: SDFGState) -> list[Redistribute]:
    """
    Return redistributions that can move in one exchange.

    :return: ``first``, and the others in the order of the state's nodes; empty if it cannot be joined.
    """
    candidates = [
        node
        for node in state.nodes()
        if isinstance(node, Redistribute)
        and not (node.op or node.nonblocking or any(node.on_gpu(state.sdfg, state)))
        and state.entry_node(node) is None
    ]
    if first not in candidates:
        return []
    after, groups = {node: nx.descendants(state.nx, node) for node in candidates}, memory_groups(state.sdfg)

    def memory(end: str, *of: Redistribute) -> set[str]:
        return {groups[root_name(node.memlet(end, state).data)] for node in of}

    chosen = [first]
    for node in candidates:
        apart = all(node not in after[other] and other not in after[node] for other in chosen)
        apart &= (memory(INPUT, node) | memory(OUTPUT, node)).isdisjoint(memory(OUTPUT, *chosen))
        apart &= memory(OUTPUT, node).isdisjoint(memory(INPUT, *chosen))
        if node is not first and apart and _communicator(node, state) == _communicator(first, state):
            chosen.append(node)
    return chosen


def join(found: list[Redistribute], state: SDFGState) -> JointRedistribute:
    """
    Replace several nodes by one.

    :param found: Redistributions of :func:`independent`; they are removed.
    """
    joint = JointRedistribute("_".join(node.label for node in found)[:80], found)
    state.add_node(joint)
    for number, node in enumerate(found):
        for edge in state.in_edges(node):
            connector = edge.dst_conn
            if connector not in COMMUNICATORS:
                state.add_edge(edge.src, edge.src_conn, joint, connector and f"{connector}_{number}", edge.data)
            elif connector not in joint.in_connectors:
                joint.add_in_connector(connector)
                state.add_edge(edge.src, edge.src_conn, joint, connector, edge.data)
        for edge in state.out_edges(node):
            connector = edge.src_conn and f"{edge.src_conn}_{number}"
            state.add_edge(joint, connector, edge.dst, edge.dst_conn, edge.data)
    before = [edge.src for node in found for edge in state.in_edges(node)]
    state.remove_nodes_from(found)
    state.remove_nodes_from({node for node in before if node in state.nodes() and state.degree(node) == 0})
    return joint


def _communicator(node: Redistribute, state: SDFGState) -> set[tuple[str, str]]:
    return {(edge.dst_conn, edge.data.data) for edge in state.in_edges(node) if edge.dst_conn in COMMUNICATORS}


@properties.make_properties
class OverlapRedistribute(OfRedistribute):
    """
    Split a redistribution into a node that starts the transfer and a node that waits for it.

    DaCe's ``dace.libraries.comm.schedule.overlap_communication`` then moves independent computations between the two.
    It can be applied to a blocking redistribution outside of maps, between arrays that are no views, if only what
    follows it in its state writes its input or uses its output. Before and after::

        A --> Redistribute --> B
        A --> Redistribute(nonblocking) --> B, request --> RedistributeWait --> B
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
        if any(isinstance(array, data.View) for array, _ in node.arrays(sdfg, graph)):
            return False
        here = [one for where, one in accesses(sdfg, node.memlet(INPUT, graph).data) if where is graph]
        used = {one for where, one in accesses(sdfg, out.data.data) if where is graph} - {out.dst}
        used |= {one for one in here if is_written(one, graph)} - set(graph.predecessors(node))
        later = nx.descendants(graph.nx, out.dst) | {out.dst}  # which follow the wait
        return later.issuperset(used) and all(edge.src in later for one in used for edge in graph.in_edges(one))

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


class PlaceInSharedMemory(OfRedistribute):
    """
    Allocate the transients next to a ``Redistribute`` in node-shared memory.

    Strategy ``Hierarchical`` then moves them with a single copy. The arrays are allocated
    when the program starts, freed when it ends, and keep their contents between calls. Arguments of the caller are not
    moved: see :func:`dace_redist.shared_empty`.

    It can be applied if such a transient lies on the heap, is not cleared on allocation, and has a size known when the
    program starts; if the library nodes that use it allow this (DaCe's ``TensorTranspose`` requires arrays of equal
    storage); if neither array lies on the GPU; and if the program has no other external memory
    (``AllocationLifetime.External``). Before and after::

        A --> Redistribute --> B (heap, allocated where it is used)
        A --> Redistribute --> B (node-shared memory, allocated when the program starts)
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
        return [name for name in dict.fromkeys(names) if _can_move(sdfg, name) and _validates(sdfg, name)]


def place_in_shared_memory(sdfg: SDFG) -> SDFG:
    """
    Apply :class:`PlaceInSharedMemory` to all redistributions.

    :param sdfg: Changed in place, including nested SDFGs.
    :return: ``sdfg``.
    :raises TypeError: If ``sdfg`` is not an SDFG.
    """
    checked_sdfg(sdfg, "place_in_shared_memory").apply_transformations_repeated(PlaceInSharedMemory, validate=False)
    return sdfg


def _validates(sdfg: SDFG, name: str) -> bool:
    """Return True if all library nodes at an array accept it in shared memory: some require two arrays to be alike."""
    ordinary, sdfg.arrays[name] = sdfg.arrays[name], copy.deepcopy(sdfg.arrays[name])
    allocate_at_start(sdfg.arrays[name], {NODE_SHARED: 1})
    try:
        for state in sdfg.states():
            for node in state.nodes():
                if isinstance(node, nodes.LibraryNode) and any(e.data.data == name for e in state.all_edges(node)):
                    node.validate(sdfg, state)
    except Exception:  # of any kind
        return False
    finally:
        sdfg.arrays[name] = ordinary
    return True


def _can_move(sdfg: SDFG, name: str) -> bool:
    """Return True if an array may be allocated when a program starts."""
    array = sdfg.arrays[name]
    return (
        type(array) is data.Array
        and array.transient
        and array.storage in (dtypes.StorageType.Default, dtypes.StorageType.CPU_Heap)
        and array.lifetime != dtypes.AllocationLifetime.External
        and _are_known_at_start(symbols_of([array.total_size]), sdfg)
        # memory that is allocated once is not cleared at each allocation
        and not any(node.setzero for _, node in accesses(sdfg, name))
    )


def _are_known_at_start(symbols: set[str], sdfg: SDFG) -> bool:
    """Return True if symbols are known when the program is initialised: constants, or its own that never change."""
    # To ask DaCe for the program's free symbols takes a walk over all its nodes.
    symbols = symbols - set(sdfg.constants)
    return not symbols or (sdfg.parent_sdfg is None and symbols.isdisjoint({*changing_symbols(sdfg), *sdfg.arrays}))
