"""Optimisation of the redistributions of a program: all that pays, in one call."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import networkx as nx
from dace import Memlet, properties
from dace.libraries.comm.nodes.node import CommNode
from dace.sdfg import SDFG, SDFGState, nodes
from dace.sdfg import utils as sdutil
from dace.transformation import pass_pipeline

from dace_redist._core import max_joined_bytes
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.node import RedistNode
from dace_redist.library_nodes.redistribute import REQUEST
from dace_redist.mpi.collective import checked_communicator, together
from dace_redist.transformations.convert import FuseConversion
from dace_redist.transformations.exchange import OverlapRedistribute, independent, join, place_in_shared_memory
from dace_redist.transformations.fuse import FuseRedistributes, FuseTranspose, RemoveRedistribute
from dace_redist.transformations.patterns import checked_sdfg, output_of, redistributions
from dace_redist.transformations.reduce import FuseReduceBcast
from dace_redist.transformations.stock import LowerRedistribute
from dace_redist.transformations.strategy import checked_symbols, placed_schedule

#: Fusions of equal nodes, and those that take code into nodes: it may contain the number of the rank.
OF_NODES: tuple[Any, ...] = (RemoveRedistribute, FuseRedistributes, FuseTranspose)
OF_CODE: tuple[Any, ...] = (FuseConversion, FuseReduceBcast)


def optimize(sdfg: SDFG, *, comm: Any = None, symbols: Mapping[str, int] | None = None) -> SDFG:
    """
    Apply the transformations that save time to the redistributions of a program. Collective over ``comm``.

    In this order: stock nodes are replaced; redistributions are fused with each other and with transpositions,
    conversions, reductions and broadcasts around them, and removed where no data moves; those of short messages that do
    not depend on each other are joined; transients are placed in node-shared memory; a redistribution is started
    before, and waited for after, computations of its state that do not depend on it. A strategy that the program names
    is kept.

    If ranks have different tasklets, for example with the rank as a literal, conversions and reductions are not fused.
    If their programs differ in other ways, nothing is fused, joined or started early.

    Every rank of ``comm`` must call it. To optimize a program on one rank, which ``distributed_compile`` then passes to
    the others, pass ``comm=MPI.COMM_SELF``.

    :param sdfg: Changed in place, including nested SDFGs.
    :param comm: mpi4py communicator that the program will run on; default: the world.
    :param symbols: Values of symbols. Without them, redistributions of unknown sizes are not joined.
    :return: ``sdfg``.
    :raises ValueError: On every rank, if an argument is invalid on one of them.
    :raises TypeError: On every rank, if an argument has the wrong type.
    """
    comm = checked_communicator(comm)
    with together(comm):
        optimization = OptimizeRedistributions(comm=comm, symbols=symbols)
    optimization.apply_pass(sdfg, {})
    return sdfg


@properties.make_properties
class OptimizeRedistributions(pass_pipeline.Pass):
    """
    Apply the transformations that save time to the redistributions of a program, see :func:`dace_redist.optimize`.

    Collective over ``comm``, which JSON does not hold: a pass that was read from JSON uses the world.

    :param permissive: True to apply transformations that permit more then, such as results that are rounded otherwise.
    """

    CATEGORY = "Optimization"

    symbols = properties.Property(dtype=dict, allow_none=True, default=None, desc="Values of symbols")
    permissive = properties.Property(dtype=bool, default=False, desc="Whether transformations are permissive")
    _comm: Any = None

    def __init__(self, *, comm: Any = None, symbols: Mapping[str, int] | None = None, permissive: bool = False) -> None:
        super().__init__()
        if not isinstance(symbols, Mapping | None):
            raise TypeError(f"symbols must be a dict of values by name, got {symbols!r}")
        self.symbols, self._comm, self.permissive = symbols and dict(symbols), comm, permissive

    def modifies(self) -> pass_pipeline.Modifies:
        """Return everything."""
        return pass_pipeline.Modifies.Everything

    def should_reapply(self, modified: pass_pipeline.Modifies) -> bool:
        """Return True if nodes have changed."""
        return bool(modified & pass_pipeline.Modifies.Nodes)

    def apply_pass(self, sdfg: SDFG, _: dict[str, Any]) -> int | None:
        """Change the SDFG, nested ones included; return the number of redistributions, None if there are none."""
        comm = checked_communicator(self._comm)
        with together(comm):
            values = checked_symbols(checked_sdfg(sdfg, "optimize"), self.symbols)
            self._apply(sdfg, [LowerRedistribute])
            own = hashes(sdfg)
        found = zip(*comm.allgather(own), strict=True)
        same_nodes, same_code = (len(set(of_ranks)) == 1 for of_ranks in found)
        with together(comm):
            if same_nodes:
                self._apply(sdfg, [*OF_NODES, *(OF_CODE if same_code else ())])
                _join_short(sdfg, values)
            place_in_shared_memory(sdfg)
            for node, state in redistributions(sdfg) if same_nodes else ():
                beside = _beside(node, state)
                if beside and OverlapRedistribute.can_be_applied_to(state.sdfg, node=node):
                    _start_before(beside, node, state)
            sdfg.validate()
        return len(redistributions(sdfg)) or None

    def _apply(self, sdfg: SDFG, transformations: list[Any]) -> None:
        sdfg.apply_transformations_repeated(transformations, validate=False, permissive=self.permissive)


def hashes(sdfg: SDFG) -> list[str]:
    """Return hashes of a program, without and with the code of its tasklets: equal on ranks with equal programs."""
    bare = copy.deepcopy(sdfg)
    for node, _ in bare.all_nodes_recursive():
        if isinstance(node, nodes.Tasklet):
            node.code = properties.CodeBlock("", node.language)
    return [bare.hash_sdfg(), sdfg.hash_sdfg()]


def _join_short(sdfg: SDFG, values: Mapping[str, int]) -> None:
    for node, state in redistributions(sdfg):
        group = [other for other in independent(node, state) if _is_short(other, state, values)]
        if node in group and len(group) > 1:
            join(group, state)


def _is_short(node: Redistribute, state: SDFGState, values: Mapping[str, int]) -> bool:
    """Return True if the messages of a node, without a chosen strategy, are short enough to be joined."""
    if node.has_choice:
        return False
    try:
        moved = placed_schedule(node, state, values).schedule
        return max(moved.totals.sizes, default=0) * moved.itemsize <= max_joined_bytes
    except ValueError:  # of unknown size, or between too many ranks to count
        return False


def _beside(node: Redistribute, state: SDFGState) -> list[nodes.Node]:
    """Return the computations of a state that neither need the result of a node nor give its input."""
    bound = nx.descendants(state.nx, node) | nx.ancestors(state.nx, node) | {node}
    kinds = nodes.MapEntry | nodes.Tasklet | nodes.NestedSDFG | nodes.LibraryNode
    return [
        other
        for other in state.nodes()
        if isinstance(other, kinds)
        and not isinstance(other, CommNode)
        and other not in bound
        and state.entry_node(other) is None
    ]


def _start_before(beside: list[nodes.Node], node: Redistribute, state: SDFGState) -> None:
    """
    Split a redistribution, and order its start before, and its wait after, the computations beside it::

        input --> node --> request --------------> wait --> output
                              |                     ^
                              v                     |
        operand ----------> other ------> result ---+

    An edge that would close a cycle is left out: other writers may order an operand before the request, or a result
    after the wait.
    """
    wait = OverlapRedistribute.apply_to(state.sdfg, node=node)
    request, after = output_of(node, state, REQUEST).dst, nx.descendants(state.nx, wait)
    for other in beside:
        foreign = isinstance(other, nodes.LibraryNode) and not isinstance(other, RedistNode)
        before = set(state.predecessors(other)) if foreign else {other}  # DaCe's nodes count their edges
        for one in before - nx.ancestors(state.nx, request):
            state.add_nedge(request, one, Memlet())
        last = state.exit_node(other) if isinstance(other, nodes.MapEntry) else other
        results = {edge.dst for edge in state.out_edges(last) if isinstance(edge.dst, nodes.AccessNode)}
        results = {sdutil.get_last_view_node(state, one) for one in results}  # DaCe counts the edges out of a view
        for result in results - after:  # some may have another writer, after it
            state.add_nedge(result, wait, Memlet())
