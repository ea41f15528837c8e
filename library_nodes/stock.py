"""DaCe's own ``Redistribute`` node: its distributions, and this package's strategies as its implementations."""

from __future__ import annotations

import copy
from typing import Any

from dace import Config, library, symbolic
from dace.data.distributed import DistributedDescriptor, ProcessGrid, RedistrArray, SubArray
from dace.libraries import comm
from dace.libraries.comm.environments import MPI
from dace.libraries.comm.nodes.redistribute import ExpandRedistribute
from dace.libraries.comm.nodes.redistribute import Redistribute as StockRedistribute
from dace.sdfg import SDFG, SDFGState, nodes
from dace.transformation.transformation import ExpandTransformation

from dace_redist.distribution import Distribution
from dace_redist.library_nodes.node import lies_on_gpu, simplified
from dace_redist.library_nodes.redistribute import Redistribute
from dace_redist.strategies import AUTO, STRATEGIES, check_places, find_strategy

#: Placeholder for any size in a search for the code of a descriptor.
ANY_SIZE = symbolic.symbol("__any_size")


# Nodes


def node_of(stock: StockRedistribute, state: SDFGState, strategy: str) -> Redistribute:
    """
    Return this package's node for a stock node, without edges, labelled as the stock redistribution descriptor.

    :raises ValueError: If the descriptors of the stock node cannot be expressed; names it.
    """
    made = Redistribute(label_of(stock, state), *distributions_of(stock, state), strategy=strategy)
    made.debuginfo, made.instrument = copy.copy(stock.debuginfo), stock.instrument
    return made


def remove_descriptor_edges(stock: StockRedistribute, state: SDFGState) -> None:
    """Remove the edges that order a stock node after the declaration of its redistribution descriptor."""
    name = label_of(stock, state)
    for edge in [edge for edge in state.in_edges(stock) if edge.data.data == name]:
        state.remove_edge(edge)


def keeps_stock(node: StockRedistribute | Redistribute) -> bool:
    """True if the program names DaCe's own implementation, or a foreign one, for a stock node."""
    return node.implementation not in (None, AUTO, *STRATEGIES)


def strategy_of(stock: StockRedistribute) -> str:
    """Return the strategy that a program or DaCe's configuration names for a stock node, else ``"Auto"``."""
    configured = str(Config.get("library", "comm", "default_implementation"))
    wanted = stock.implementation or (configured if configured in STRATEGIES else AUTO)
    return wanted if wanted in STRATEGIES else AUTO


@library.expansion
class ExpandStockRedistribute(ExpandTransformation):
    """
    Expands a stock node to this package's node, to be expanded next, with the strategy that the program or DaCe's
    configuration names.

    It becomes DaCe's tasklet if the node itself names no strategy, and the one of the configuration cannot redistribute
    its arrays.
    """

    environments = [MPI]

    @staticmethod
    def expansion(stock: StockRedistribute, state: SDFGState, sdfg: SDFG) -> nodes.CodeNode:
        """Return the node, or the tasklet."""
        try:
            made = node_of(stock, state, strategy_of(stock))
            check_places(find_strategy(made.strategy), *map(lies_on_gpu, stock.validate(sdfg, state)))
        except ValueError:
            if stock.implementation in STRATEGIES:
                raise
            return ExpandRedistribute.expansion(stock, state, sdfg)
        remove_descriptor_edges(stock, state)  # its stock code, which stays, runs when the program starts
        return made


for _name in (AUTO, *STRATEGIES):
    StockRedistribute.register_implementation(_name, ExpandStockRedistribute)


def follow_configuration() -> None:
    """
    Make strategies the default of DaCe's ``Redistribute`` if DaCe's configuration asks for this, else DaCe's own code.

    It does by the hook, or by a strategy as ``library.comm.default_implementation``. That holds for all nodes of
    DaCe's library: those that only redistribute by MPI keep it.
    """
    configured = {str(Config.get("library", "comm", "default_implementation"))} & {AUTO, *STRATEGIES}
    asked = configured or "dace_redist.hook" in str(Config.get("call_hooks"))
    StockRedistribute.default_implementation = AUTO if asked else "MPI"
    for node in comm._dace_library_nodes if configured else ():
        if node.default_implementation is None:
            node.implementations |= dict.fromkeys(configured, node.implementations["MPI"])


follow_configuration()


# Descriptors


def label_of(node: Any, state: SDFGState) -> str:
    """Return the label of a node; of a stock node the name of its descriptor, since all stock nodes share a label."""
    if not isinstance(node, StockRedistribute):
        return str(node.label)
    connected = [e.data.data for e in state.in_edges(node) if e.dst_conn == "_rdistrarray"]
    return str(connected[0] if connected else node.redistr)  # renaming does not update the node's own property


def distributions_of(stock: StockRedistribute, state: SDFGState) -> tuple[Distribution, Distribution]:
    """Return source and target of a stock node; raise a ValueError if its descriptors cannot be expressed."""
    name = label_of(stock, state)
    redistribution = state.sdfg.arrays.get(name)
    try:
        if not isinstance(redistribution, RedistrArray):
            raise ValueError("there is no descriptor of that name")
        descriptors = StockDescriptors(state.sdfg)
        for side in referenced(redistribution):
            descriptors.content(side)
        parts = [descriptors.subarrays[side] for side in (redistribution.array_a, redistribution.array_b)]
        source, target = (_distribution_of(part, descriptors.process_grids) for part in parts)
    except ValueError as error:
        raise ValueError(f'Redistribute "{name}": {error}') from error
    return source, target


def _distribution_of(subarray: SubArray, grids: dict[str, ProcessGrid]) -> Distribution:
    """
    Return the distribution of a stock sub-array descriptor, over the ranks of the world.

    Tensor axis i is cut into blocks of ``subshape[i]`` along grid axis ``correspondence[i]``. The axes that
    a sub-grid drops are pinned to the coordinate of rank ``exact_grid`` if that is given, else they hold replicas.
    """
    if not subarray.pgrid or subarray.pgrid not in grids:
        raise ValueError(f'Subarray "{subarray.name}" is on no process grid: it cannot be redistributed')
    grid = grids[subarray.pgrid]
    if not grid.is_subgrid:
        return Distribution(subarray.shape, grid.shape, dims=subarray.correspondence, block=subarray.subshape)
    parent = grids[grid.parent_grid]
    if parent.is_subgrid:
        raise ValueError(f'Subarray "{subarray.name}" is on the sub-grid of a sub-grid, which is not supported')
    pins: list[Any] = [None] * len(parent.shape)
    if grid.exact_grid is not None:
        rest = symbolic.pystr_to_symbolic(str(grid.exact_grid))
        for axis in reversed(range(len(pins))):
            pins[axis] = None if grid.color[axis] else simplified(rest % parent.shape[axis])
            rest = symbolic.int_floor(rest, parent.shape[axis])
    kept = [axis for axis, keep in enumerate(grid.color) if keep]
    if not set(subarray.correspondence) <= set(range(len(kept))):
        raise ValueError(
            f'Subarray "{subarray.name}": correspondence must name axes 0 to {len(kept) - 1} of the sub-grid '
            f'"{grid.name}", got {tuple(subarray.correspondence)}'
        )
    dims = [kept[axis] for axis in subarray.correspondence]
    return Distribution(subarray.shape, parent.shape, dims=dims, block=subarray.subshape, pins=pins)


class StockDescriptors:
    """
    Descriptors of an SDFG by their original names.

    Inlining an SDFG renames descriptors on name clashes and replaces their symbols. It changes neither the references
    between descriptors nor the stock code generated from them.

    :param any_sizes: True for placeholders instead of sizes, to find code generated before symbols were replaced.
    """

    def __init__(self, sdfg: SDFG, any_sizes: bool = False) -> None:
        found = [d for d in sdfg.arrays.values() if isinstance(d, DistributedDescriptor)]
        self._all = [with_any_sizes(d) for d in found] if any_sizes else found
        # As an SDFG has them: descriptors look each other up there to write their code.
        self.subarrays = {d.name: d for d in self._all if isinstance(d, SubArray)}
        self.process_grids = {d.name: d for d in self._all if isinstance(d, ProcessGrid)}

    def content(self, name: str) -> tuple[Any, ...]:
        """
        Return the contents of the descriptor of this name, including the descriptors it refers to.

        :raises ValueError: If it is missing, or if inlining left several different ones of that name.
        """
        contents = set()
        parts = ("shape", "subshape", "color", "exact_grid", "correspondence")
        for descriptor in (d for d in self._all if d.name == name):
            own = (str(getattr(descriptor, part, None)) for part in parts)
            contents.add((*own, *(self.content(other) for other in referenced(descriptor))))
        if not contents:
            raise ValueError(f'there is no descriptor "{name}"')
        if len(contents) > 1:
            raise ValueError(
                f'inlining left different descriptors that are all called "{name}"; replace the stock nodes before '
                "simplifying: to_sdfg(simplify=False), then lower_all or set_strategy, then simplify()"
            )
        return contents.pop()


def with_any_sizes(descriptor: DistributedDescriptor) -> DistributedDescriptor:
    """Return a copy of a descriptor with placeholders for sizes."""
    changed = copy.copy(descriptor)
    changed.shape = [ANY_SIZE] * len(descriptor.shape)
    if isinstance(changed, SubArray):
        changed.subshape = [ANY_SIZE] * len(descriptor.subshape)
    if isinstance(changed, ProcessGrid) and descriptor.exact_grid is not None:
        changed.exact_grid = ANY_SIZE
    return changed


def referenced(descriptor: DistributedDescriptor) -> list[str]:
    """Return the names of the descriptors that a descriptor refers to."""
    names = (getattr(descriptor, part, None) for part in ("array_a", "array_b", "pgrid", "parent_grid"))
    return [name for name in names if name]
