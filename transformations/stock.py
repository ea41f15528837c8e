"""Replacement of stock DaCe's ``Redistribute`` node and its descriptors by this package's node."""

from __future__ import annotations

import copy
import re
import warnings
from typing import Any

from dace import symbolic
from dace.data.distributed import DistributedDescriptor, ProcessGrid, RedistrArray, SubArray
from dace.libraries.comm.nodes.dummy import Dummy
from dace.libraries.comm.nodes.redistribute import Redistribute as StockRedistribute
from dace.sdfg import SDFG, SDFGState
from dace.sdfg import utils as sdutil
from dace.transformation import transformation

from dace_redist.distribution import Distribution
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.node import simplified
from dace_redist.transformations.patterns import accesses, checked_sdfg

#: Placeholder for any size in a search for the code of a descriptor.
_ANY_SIZE = symbolic.symbol("__any_size")


class LowerRedistribute(transformation.SingleStateTransformation):
    """
    Replace stock DaCe's ``Redistribute`` node by this package's.

    Stock descriptors that nothing else uses are removed, with their code on the SDFG.
    """

    stock = transformation.PatternNode(StockRedistribute)

    @classmethod
    def expressions(cls) -> list[Any]:
        """Return the pattern: one stock node."""
        return [sdutil.node_path_graph(cls.stock)]

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if the node's descriptors exist and can be expressed."""
        try:
            _distributions(self.stock, graph)
        except ValueError:
            return False
        return True

    def apply(self, graph: SDFGState, sdfg: SDFG) -> Redistribute:
        """Replace the node; return the new one."""
        return lower(self.stock, graph)


def lower_all(sdfg: SDFG) -> list[Redistribute]:
    """
    Replace every stock node of an SDFG and of its nested SDFGs.

    :param sdfg: Changed in place.
    :return: The new nodes.
    :raises ValueError: If one of them cannot be expressed; names it.
    :raises TypeError: If ``sdfg`` is not an SDFG.
    """
    every = checked_sdfg(sdfg, "lower_all").all_nodes_recursive()
    return [lower(*found) for found in [(n, state) for n, state in every if isinstance(n, StockRedistribute)]]


def lower(node: Redistribute | StockRedistribute, state: SDFGState) -> Redistribute:
    """
    Return a node of this package, or replace a stock node.

    :return: The node, labelled as the stock redistribution descriptor.
    :raises ValueError: If the descriptors of a stock node cannot be expressed; names it.
    """
    if isinstance(node, Redistribute):
        return node
    name = label_of(node, state)
    made = Redistribute(name, *_distributions(node, state))
    made.debuginfo, made.instrument = copy.copy(node.debuginfo), node.instrument
    state.add_node(made)
    for edge in [e for e in state.in_edges(node) if e.data.data == name]:
        state.remove_edge(edge)  # the edge ordered the node after the declaration of its descriptor, which is removed
    sdutil.change_edge_dest(state, node, made)
    sdutil.change_edge_src(state, node, made)
    state.remove_node(node)
    remove_unused(state.sdfg, name)
    return made


def label_of(node: Redistribute | StockRedistribute, state: SDFGState) -> str:
    """Return the label of a node; of a stock node the name of its descriptor, since all stock nodes share a label."""
    if isinstance(node, Redistribute):
        return str(node.label)
    connected = [e.data.data for e in state.in_edges(node) if e.dst_conn == "_rdistrarray"]
    return str(connected[0] if connected else node.redistr)  # renaming does not update the node's own property


def _distributions(stock: StockRedistribute, state: SDFGState) -> tuple[Distribution, Distribution]:
    name = label_of(stock, state)
    redistribution = state.sdfg.arrays.get(name)
    try:
        if not isinstance(redistribution, RedistrArray):
            raise ValueError("there is no descriptor of that name")
        descriptors = StockDescriptors(state.sdfg)
        for side in _referenced(redistribution):
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
    dims = [kept[axis] for axis in subarray.correspondence]
    return Distribution(subarray.shape, parent.shape, dims=dims, block=subarray.subshape, pins=pins)


class StockDescriptors:
    """
    Descriptors of an SDFG by their original names.

    Inlining an SDFG renames descriptors on name clashes and replaces their symbols. It changes neither the references
    between descriptors nor the stock code generated from them.

    :param sdfg: The SDFG.
    """

    def __init__(self, sdfg: SDFG) -> None:
        self._all = [d for d in sdfg.arrays.values() if isinstance(d, DistributedDescriptor)]

    @property
    def subarrays(self) -> dict[str, SubArray]:
        """Sub-arrays by name."""
        return {d.name: d for d in self._all if isinstance(d, SubArray)}

    @property
    def process_grids(self) -> dict[str, ProcessGrid]:
        """Process grids by name."""
        return {d.name: d for d in self._all if isinstance(d, ProcessGrid)}

    def content(self, name: str) -> tuple[Any, ...]:
        """
        Return the contents of the descriptor of this name, including the descriptors it refers to.

        :raises ValueError: If it is missing, or if inlining left several different ones of that name.
        """
        contents = set()
        parts = ("shape", "subshape", "color", "exact_grid", "correspondence")
        for descriptor in (d for d in self._all if d.name == name):
            own = (str(getattr(descriptor, part, None)) for part in parts)
            contents.add((*own, *(self.content(other) for other in _referenced(descriptor))))
        if not contents:
            raise ValueError(f'there is no descriptor "{name}"')
        if len(contents) > 1:
            raise ValueError(
                f'inlining left different descriptors that are all called "{name}"; replace the stock nodes before '
                "simplifying: to_sdfg(simplify=False), then lower_all or set_strategy, then simplify()"
            )
        return contents.pop()

    def with_any_sizes(self) -> StockDescriptors:
        """Return the descriptors with placeholders for sizes, to find code generated before symbols were replaced."""
        other = copy.copy(self)
        other._all = [_with_any_sizes(descriptor) for descriptor in self._all]
        return other


def _with_any_sizes(descriptor: DistributedDescriptor) -> DistributedDescriptor:
    changed = copy.copy(descriptor)
    changed.shape = [_ANY_SIZE] * len(descriptor.shape)
    if isinstance(changed, SubArray):
        changed.subshape = [_ANY_SIZE] * len(descriptor.subshape)
    if isinstance(changed, ProcessGrid) and descriptor.exact_grid is not None:
        changed.exact_grid = _ANY_SIZE
    return changed


def _referenced(descriptor: DistributedDescriptor) -> list[str]:
    """Return the names of the descriptors that a descriptor refers to."""
    names = (getattr(descriptor, part, None) for part in ("array_a", "array_b", "pgrid", "parent_grid"))
    return [name for name in names if name]


def remove_unused(sdfg: SDFG, redistribution: str) -> None:
    """
    Remove a redistribution descriptor and its code, then its unused sub-arrays, their grids, and the parent grids.

    :param sdfg: Changed in place.
    :param redistribution: Name of the descriptor in the SDFG.
    """
    stock, pending = StockDescriptors(sdfg), [redistribution]
    while pending:
        name = pending.pop()
        descriptor = sdfg.arrays.get(name)
        if isinstance(descriptor, DistributedDescriptor) and not _is_used(sdfg, name, descriptor):
            if _remove(sdfg, name, descriptor, stock):
                used = _referenced(descriptor)
                pending += [
                    n for n, d in sdfg.arrays.items() if isinstance(d, DistributedDescriptor) and d.name in used
                ]


def _is_used(sdfg: SDFG, name: str, descriptor: DistributedDescriptor) -> bool:
    """Return True if a node or descriptor uses a descriptor, apart from the node that declares its fields."""
    others = [d for d in sdfg.arrays.values() if isinstance(d, DistributedDescriptor)]
    if any(descriptor.name in _referenced(d) for d in others):
        return True
    for state, access in accesses(sdfg, name):
        before = (edge.src for edge in state.in_edges(access))
        if state.out_degree(access) or any(not isinstance(node, Dummy) for node in before):
            return True
    every = ((node, state) for state in sdfg.states() for node in state.nodes())
    return any(isinstance(node, StockRedistribute) and label_of(node, state) == name for node, state in every)


def _remove(sdfg: SDFG, name: str, descriptor: DistributedDescriptor, stock: StockDescriptors) -> bool:
    """Remove one descriptor with its code; return False, without changes, if the code is not found."""
    texts = {}
    for which, code in (("init_code", sdfg.init_code), ("exit_code", sdfg.exit_code)):
        text = code["frame"].as_string if "frame" in code else ""
        part = _code(descriptor, which, stock)
        if part not in text:
            pattern = re.escape(_code(_with_any_sizes(descriptor), which, stock.with_any_sizes()))
            found = re.search(pattern.replace(str(_ANY_SIZE), r"[^;{}\n]+?"), text)
            if found is None:
                warnings.warn(
                    f'the stock code of descriptor "{name}" was changed and stays in the program', stacklevel=2
                )
                return False
            part = found[0]
        texts[which] = text.replace(part, "", 1) if part else text
    for which, text in texts.items():
        if "frame" in getattr(sdfg, which):
            getattr(sdfg, which)["frame"].as_string = text
    for state, access in list(accesses(sdfg, name)):
        state.remove_nodes_from([access, *(e.src for e in state.in_edges(access))])
        state.remove_nodes_from([n for n in state.data_nodes() if state.degree(n) == 0])
    sdfg.remove_data(name, validate=False)
    return True


def _code(descriptor: DistributedDescriptor, which: str, stock: StockDescriptors) -> str:
    return str(getattr(descriptor, which)(*((stock,) if isinstance(descriptor, RedistrArray) else ())))
