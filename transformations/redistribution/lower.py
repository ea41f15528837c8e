"""Replacement of stock DaCe's ``Redistribute`` node and its descriptors by this package's node."""

from __future__ import annotations

import copy
from typing import Any

from dace import symbolic
from dace.data.distributed import ProcessGrid, RedistrArray, SubArray
from dace.libraries.comm.nodes.redistribute import Redistribute as StockRedistribute
from dace.sdfg import SDFG, SDFGState
from dace.sdfg import utils as sdutil
from dace.transformation import transformation

from dace_redist.distribution import Distribution
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.node import simplified
from dace_redist.transformations.redistribution.stock_descriptors import (
    StockDescriptors,
    descriptor_name,
    remove_unused,
)


def checked_sdfg(given: Any, caller: str) -> SDFG:
    """
    Return an SDFG unchanged; raise for anything else.

    :param given: Argument to check.
    :param caller: Name of the calling function, for the message.
    :raises TypeError: If it is not an SDFG; the message explains how to get that of a ``@dace.program``.
    """
    if isinstance(given, SDFG):
        return given
    remedy = ": pass its SDFG, program.to_sdfg()" if hasattr(given, "to_sdfg") else ""
    raise TypeError(f"{caller} takes an SDFG, got {type(given).__name__}{remedy}")


def distribution_of(subarray: SubArray, grids: dict[str, ProcessGrid]) -> Distribution:
    """
    Return the distribution of a stock sub-array descriptor.

    Tensor axis i is cut into blocks of ``subshape[i]`` along grid axis ``correspondence[i]``. The axes that
    a sub-grid drops are pinned to the coordinate of rank ``exact_grid`` if that is given, else they hold replicas.

    :param subarray: The descriptor.
    :param grids: Process grids by name.
    :return: The distribution, over the ranks of the world.
    :raises ValueError: If the descriptor names no process grid, or a sub-grid of a sub-grid.
    """
    if not subarray.pgrid or subarray.pgrid not in grids:
        raise ValueError(f'Subarray "{subarray.name}" is on no process grid: it cannot be redistributed')
    grid = grids[subarray.pgrid]
    if not grid.is_subgrid:
        return Distribution(subarray.shape, grid.shape, dims=subarray.correspondence, block=subarray.subshape)
    parent = grids[grid.parent_grid]
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
    """Return the coordinates, in the parent grid, of rank ``exact_grid``; None for each axis without one."""
    if grid.exact_grid is None:
        return [None] * len(parent.shape)
    coordinates, rest = [], symbolic.pystr_to_symbolic(str(grid.exact_grid))
    for extent in reversed(parent.shape):
        coordinates.append(rest % extent)
        rest = symbolic.int_floor(rest, extent)
    return [simplified(c) for c in reversed(coordinates)]


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
            _distributions(self.stock, graph, sdfg)
        except ValueError:
            return False
        return True

    def apply(self, graph: SDFGState, sdfg: SDFG) -> Redistribute:
        """Replace the node; return the new one."""
        return lower(self.stock, graph, sdfg)


def _distributions(stock: StockRedistribute, state: SDFGState, sdfg: SDFG) -> tuple[Distribution, Distribution]:
    name = descriptor_name(stock, state)
    redistribution = sdfg.arrays.get(name)
    if not isinstance(redistribution, RedistrArray):
        raise ValueError(f'Redistribute "{name}": there is no descriptor of that name')
    try:
        descriptors = StockDescriptors(sdfg)
        source, target = (distribution_of(part, descriptors.process_grids) for part in descriptors.of(redistribution))
    except ValueError as error:
        raise ValueError(f'Redistribute "{name}": {error}') from error
    return source, target


def lower(stock: StockRedistribute, state: SDFGState, sdfg: SDFG) -> Redistribute:
    """
    Replace one stock node.

    :param stock: The node.
    :param state: Its state.
    :param sdfg: The SDFG of the state.
    :return: The new node, labelled as the stock redistribution descriptor.
    :raises ValueError: If its descriptors cannot be expressed.
    """
    name = descriptor_name(stock, state)
    node = Redistribute(name, *_distributions(stock, state, sdfg))
    node.debuginfo, node.instrument = copy.copy(stock.debuginfo), stock.instrument
    state.add_node(node)
    for edge in [e for e in state.in_edges(stock) if e.data.data == name]:
        state.remove_edge(edge)  # the edge ordered the node after the declaration of its descriptor, which is removed
    sdutil.change_edge_dest(state, stock, node)
    sdutil.change_edge_src(state, stock, node)
    state.remove_node(stock)
    remove_unused(sdfg, name)
    return node


def lower_all(sdfg: SDFG) -> list[Redistribute]:
    """
    Replace every stock node of an SDFG and of its nested SDFGs.

    :param sdfg: Changed in place.
    :return: The new nodes.
    :raises ValueError: If one of them cannot be expressed; names it.
    :raises TypeError: If ``sdfg`` is not an SDFG.
    """
    every = checked_sdfg(sdfg, "lower_all").all_nodes_recursive()
    stock = [(node, state) for node, state in every if isinstance(node, StockRedistribute)]
    return [lower(node, state, state.sdfg) for node, state in stock]
