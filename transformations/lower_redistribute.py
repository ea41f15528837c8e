"""Turns stock DaCe's ``Redistribute`` node and its descriptors into this package's node."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

from dace import symbolic
from dace.data.distributed import DistributedDescriptor, ProcessGrid, RedistrArray, SubArray
from dace.libraries.comm.nodes.dummy import Dummy
from dace.libraries.comm.nodes.redistribute import Redistribute as StockRedistribute
from dace.sdfg import SDFG, SDFGState, nodes
from dace.sdfg import utils as sdutil
from dace.transformation import transformation

from dace_redist.distribution import Distribution
from dace_redist.library_nodes import Redistribute


def distribution_of(subarray: SubArray, sdfg: SDFG) -> Distribution:
    """
    The distribution that a stock sub-array descriptor stands for.

    Tensor axis i is cut into blocks of ``subshape[i]`` along grid axis ``correspondence[i]``. On a sub-grid the axes
    it drops hold the coordinate of the rank ``exact_grid`` if that is given, replicas otherwise.

    :param subarray: The descriptor; its process grid is one of ``sdfg``.
    :param sdfg: The SDFG that holds both.
    :return: The distribution, over the ranks of the world.
    :raises ValueError: If the descriptor names no process grid, or a sub-grid of a sub-grid.
    """
    if not subarray.pgrid or subarray.pgrid not in sdfg.process_grids:
        raise ValueError(f'Subarray "{subarray.name}" is on no process grid: it cannot be redistributed')
    grid = sdfg.process_grids[subarray.pgrid]
    if not grid.is_subgrid:
        return Distribution(subarray.shape, grid.shape, dims=subarray.correspondence, block=subarray.subshape)
    parent = sdfg.process_grids[grid.parent_grid]
    if parent.is_subgrid:
        raise ValueError(f'Subarray "{subarray.name}" is on the sub-grid of a sub-grid, which is not supported')
    kept = [axis for axis, keep in enumerate(grid.color) if keep]
    return Distribution(
        subarray.shape,
        parent.shape,
        dims=[kept[axis] for axis in subarray.correspondence],
        block=subarray.subshape,
        pins=[None if keep else coordinate for keep, coordinate in zip(grid.color, _exact(grid, parent), strict=True)],
    )


def _exact(grid: ProcessGrid, parent: ProcessGrid) -> list[Any]:
    """Coordinates, in the parent grid, of the rank that ``exact_grid`` names; None everywhere if it names none."""
    if grid.exact_grid is None:
        return [None] * len(parent.shape)
    coordinates, rest = [], symbolic.pystr_to_symbolic(str(grid.exact_grid))
    for extent in reversed(parent.shape):
        coordinates.append(rest % extent)
        rest = symbolic.int_floor(rest, extent)
    return [symbolic.simplify(c) for c in reversed(coordinates)]


class LowerRedistribute(transformation.SingleStateTransformation):
    """
    Replaces stock DaCe's ``Redistribute`` node by this package's, and removes the stock descriptors that nobody else
    uses, with the code they put on the SDFG.
    """

    stock = transformation.PatternNode(StockRedistribute)

    @classmethod
    def expressions(cls) -> list[Any]:
        """One stock node."""
        return [sdutil.node_path_graph(cls.stock)]

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Whether the node's descriptors are there and can be expressed."""
        try:
            _distributions(self.stock, sdfg)
        except (KeyError, ValueError):
            return False
        return True

    def apply(self, graph: SDFGState, sdfg: SDFG) -> Redistribute:
        """Replaces the node; returns the new one."""
        return lower(self.stock, graph, sdfg)


def _distributions(stock: StockRedistribute, sdfg: SDFG) -> tuple[Distribution, Distribution]:
    redistribution = sdfg.rdistrarrays[stock.redistr]
    subarrays = (sdfg.subarrays[redistribution.array_a], sdfg.subarrays[redistribution.array_b])
    try:
        source, target = (distribution_of(subarray, sdfg) for subarray in subarrays)
    except ValueError as error:
        raise ValueError(f'Redistribute "{stock.redistr}": {error}') from error
    return source, target


def lower(stock: StockRedistribute, state: SDFGState, sdfg: SDFG) -> Redistribute:
    """
    Replaces one stock node.

    :param stock: The node.
    :param state: The state that holds it.
    :param sdfg: The SDFG that holds the state.
    :return: The new node, labelled as the stock redistribution descriptor.
    :raises ValueError: If its descriptors cannot be expressed.
    """
    source, target = _distributions(stock, sdfg)
    node = Redistribute(stock.redistr, source, target)
    node.debuginfo, node.instrument = copy.copy(stock.debuginfo), stock.instrument
    state.add_node(node)
    for edge in [e for e in state.in_edges(stock) if e.data.data == stock.redistr]:
        state.remove_edge(edge)  # orders the node after its descriptor's declaration, which it has no more
    sdutil.change_edge_dest(state, stock, node)
    sdutil.change_edge_src(state, stock, node)
    state.remove_node(stock)
    _remove_unused_descriptors(sdfg, stock.redistr)
    return node


def lower_all(sdfg: SDFG) -> list[Redistribute]:
    """
    Replaces every stock node of an SDFG and of the SDFGs nested in it.

    :param sdfg: Changed in place.
    :return: The new nodes.
    :raises ValueError: If one of them cannot be expressed; names it.
    """
    stock = [(n, s) for n, s in sdfg.all_nodes_recursive() if isinstance(n, StockRedistribute)]
    return [lower(node, state, state.sdfg) for node, state in stock]


def _remove_unused_descriptors(sdfg: SDFG, redistr: str) -> None:
    """Removes a redistribution descriptor, then what only it used: sub-arrays, their grids, the grids' parents."""
    pending = [redistr]
    while pending:
        name = pending.pop()
        descriptor = sdfg.arrays.get(name)
        if isinstance(descriptor, DistributedDescriptor) and not _users(sdfg, name):
            pending += [other for other in _referenced(descriptor) if other]
            _remove_descriptor(sdfg, name, descriptor)


def _referenced(descriptor: DistributedDescriptor) -> tuple[str | None, ...]:
    if isinstance(descriptor, RedistrArray):
        return descriptor.array_a, descriptor.array_b
    return (descriptor.pgrid,) if isinstance(descriptor, SubArray) else (descriptor.parent_grid,)


def _users(sdfg: SDFG, name: str) -> list[Any]:
    """Nodes and descriptors that need a descriptor, but for the node that only declares its fields."""
    users: list[Any] = [d for other, d in sdfg.arrays.items() if other != name and _refers(d, name)]
    users += [n for n, _ in sdfg.all_nodes_recursive() if isinstance(n, StockRedistribute) and n.redistr == name]
    for state, access in _accesses(sdfg, name):
        users += [e.dst for e in state.out_edges(access)]
        users += [e.src for e in state.in_edges(access) if not isinstance(e.src, Dummy)]
    return users


def _refers(descriptor: Any, name: str) -> bool:
    return isinstance(descriptor, DistributedDescriptor) and name in _referenced(descriptor)


def _accesses(sdfg: SDFG, name: str) -> Iterator[tuple[SDFGState, nodes.AccessNode]]:
    for state in sdfg.states():
        for access in state.data_nodes():
            if access.data == name:
                yield state, access


def _remove_descriptor(sdfg: SDFG, name: str, descriptor: DistributedDescriptor) -> None:
    on_sdfg = (sdfg,) if isinstance(descriptor, RedistrArray) else ()
    init, leave = descriptor.init_code(*on_sdfg), descriptor.exit_code(*on_sdfg)
    if not (_contains(sdfg.init_code, init) and _contains(sdfg.exit_code, leave)):
        warnings.warn(f'the stock code of descriptor "{name}" was changed and stays in the program', stacklevel=2)
        return
    _cut(sdfg.init_code, init)
    _cut(sdfg.exit_code, leave)
    for state, access in list(_accesses(sdfg, name)):
        declaring = [e.src for e in state.in_edges(access)]
        state.remove_nodes_from([access, *declaring])
        state.remove_nodes_from([n for n in state.data_nodes() if state.degree(n) == 0])
    sdfg.remove_data(name, validate=False)


def _contains(code: dict[str, Any], text: str) -> bool:
    return not text or ("frame" in code and text in code["frame"].as_string)


def _cut(code: dict[str, Any], text: str) -> None:
    if text:
        code["frame"].as_string = code["frame"].as_string.replace(text, "", 1)
