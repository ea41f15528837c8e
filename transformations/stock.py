"""Replacement of stock DaCe's ``Redistribute`` node and its descriptors by this package's node."""

from __future__ import annotations

import re
import warnings
from typing import Any

from dace.data.distributed import DistributedDescriptor, RedistrArray
from dace.libraries.comm.nodes.dummy import Dummy
from dace.libraries.comm.nodes.redistribute import Redistribute as StockRedistribute
from dace.sdfg import SDFG, SDFGState
from dace.sdfg import utils as sdutil
from dace.transformation import transformation

from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.stock import (
    ANY_SIZE,
    StockDescriptors,
    distributions_of,
    keeps_stock,
    label_of,
    node_of,
    referenced,
    remove_descriptor_edges,
    strategy_of,
    with_any_sizes,
)
from dace_redist.transformations.patterns import OfRedistribute, accesses, checked_sdfg


class LowerRedistribute(OfRedistribute):
    """
    Replace stock DaCe's ``Redistribute`` node by this package's.

    Stock descriptors that nothing else uses are removed, with their code on the SDFG. ``permissive`` permits to replace
    a node for which the program names DaCe's own code. Before and after::

        A --> DaCe's Redistribute(subarrays) --> B
        A --> Redistribute(distributions) -----> B
    """

    node = transformation.PatternNode(StockRedistribute)

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if the node's descriptors can be expressed, and the program does not name DaCe's own code."""
        try:
            distributions_of(self.node, graph)
        except ValueError:
            return False
        return permissive or not keeps_stock(self.node)

    def apply(self, graph: SDFGState, sdfg: SDFG) -> Redistribute:
        """Replace the node; return the new one."""
        return lower(self.node, graph)


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


def lower(node: Any, state: SDFGState) -> Any:
    """
    Return a node of this package, or replace a stock node.

    :return: The node, labelled as the stock redistribution descriptor.
    :raises ValueError: If the descriptors of a stock node cannot be expressed; names it.
    """
    if not isinstance(node, StockRedistribute):
        return node
    name, made = label_of(node, state), node_of(node, state, strategy_of(node))
    state.add_node(made)
    remove_descriptor_edges(node, state)  # the declaration is removed with the descriptor
    sdutil.change_edge_dest(state, node, made)
    sdutil.change_edge_src(state, node, made)
    state.remove_node(node)
    remove_unused(state.sdfg, name)
    return made


def remove_unused(sdfg: SDFG, redistribution: str) -> None:
    """
    Remove a redistribution descriptor and its code, then its unused sub-arrays, their grids, and the parent grids.

    :param sdfg: Changed in place.
    :param redistribution: Name of the descriptor in the SDFG.
    """
    stock, pending = StockDescriptors(sdfg, any_sizes=True), [redistribution]
    while pending:
        name = pending.pop()
        descriptor = sdfg.arrays.get(name)
        if isinstance(descriptor, DistributedDescriptor) and not _is_used(sdfg, name, descriptor):
            if _remove(sdfg, name, descriptor, stock):
                used = referenced(descriptor)
                pending += [
                    n for n, d in sdfg.arrays.items() if isinstance(d, DistributedDescriptor) and d.name in used
                ]


def _is_used(sdfg: SDFG, name: str, descriptor: DistributedDescriptor) -> bool:
    """Return True if a node or descriptor uses a descriptor, apart from the node that declares its fields."""
    others = [d for d in sdfg.arrays.values() if isinstance(d, DistributedDescriptor)]
    if any(descriptor.name in referenced(d) for d in others):
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
        arguments = (stock,) if isinstance(descriptor, RedistrArray) else ()
        pattern = re.escape(getattr(with_any_sizes(descriptor), which)(*arguments))
        found = re.search(pattern.replace(str(ANY_SIZE), r"[^;{}\n]+?"), text)
        if found is None:
            warnings.warn(f'the stock code of descriptor "{name}" was changed and stays in the program', stacklevel=2)
            return False
        texts[which] = text.replace(found[0], "", 1)
    for which, text in texts.items():
        if "frame" in getattr(sdfg, which):
            getattr(sdfg, which)["frame"].as_string = text
    for state, access in list(accesses(sdfg, name)):
        state.remove_nodes_from([access, *(e.src for e in state.in_edges(access))])
        state.remove_nodes_from([n for n in state.data_nodes() if state.degree(n) == 0])
    sdfg.remove_data(name, validate=False)
    return True
