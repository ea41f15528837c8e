"""Lookup and removal of the descriptors and the code of a stock redistribution in an SDFG."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterator
from typing import Any

from dace import symbolic
from dace.data.distributed import DistributedDescriptor, ProcessGrid, RedistrArray, SubArray
from dace.libraries.comm.nodes.dummy import Dummy
from dace.libraries.comm.nodes.redistribute import Redistribute as StockRedistribute
from dace.sdfg import SDFG, SDFGState, nodes

#: Placeholder for any size in a search for the code of a descriptor.
_ANY_SIZE = symbolic.symbol("__any_size")


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

    def of(self, redistribution: RedistrArray) -> tuple[SubArray, SubArray]:
        """
        Return the two sub-arrays of a redistribution.

        :raises ValueError: If one is missing, or if inlining left several different ones of that name.
        """
        for name in referenced(redistribution):
            self._content(name)
        return self.subarrays[redistribution.array_a], self.subarrays[redistribution.array_b]

    def _content(self, name: str) -> tuple[Any, ...]:
        """Return the contents of the descriptor of this name, including the descriptors it refers to."""
        contents = set()
        for descriptor in (d for d in self._all if d.name == name):
            sizes = [str(getattr(descriptor, part, None)) for part in ("shape", "subshape", "color", "exact_grid")]
            axes = str(getattr(descriptor, "correspondence", None))
            contents.add((*sizes, axes, *(self._content(other) for other in referenced(descriptor))))
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


def descriptor_name(stock: StockRedistribute, state: SDFGState) -> str:
    """Return the name of a stock node's descriptor in the SDFG; renaming does not update the node's own property."""
    connected = [e.data.data for e in state.in_edges(stock) if e.dst_conn == "_rdistrarray"]
    return str(connected[0] if connected else stock.redistr)


def referenced(descriptor: DistributedDescriptor) -> list[str]:
    """Return the names of the descriptors that a descriptor refers to."""
    names: tuple[str | None, ...] = ()
    if isinstance(descriptor, RedistrArray):
        names = (descriptor.array_a, descriptor.array_b)
    elif isinstance(descriptor, SubArray):
        names = (descriptor.pgrid,)
    elif isinstance(descriptor, ProcessGrid):
        names = (descriptor.parent_grid,)
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
                used = referenced(descriptor)
                pending += [
                    n for n, d in sdfg.arrays.items() if isinstance(d, DistributedDescriptor) and d.name in used
                ]


def _is_used(sdfg: SDFG, name: str, descriptor: DistributedDescriptor) -> bool:
    """Return True if a node or descriptor uses a descriptor, apart from the node that declares its fields."""
    others = [d for d in sdfg.arrays.values() if isinstance(d, DistributedDescriptor)]
    nodes_of_it = (
        [e.dst for e in state.out_edges(access)]
        + [e.src for e in state.in_edges(access) if not isinstance(e.src, Dummy)]
        for state, access in _accesses(sdfg, name)
    )
    unconnected = (
        isinstance(node, StockRedistribute) and descriptor_name(node, state) == name
        for state in sdfg.states()
        for node in state.nodes()
    )
    return any(descriptor.name in referenced(d) for d in others) or any(nodes_of_it) or any(unconnected)


def _accesses(sdfg: SDFG, name: str) -> Iterator[tuple[SDFGState, nodes.AccessNode]]:
    for state in sdfg.states():
        for access in state.data_nodes():
            if access.data == name:
                yield state, access


def _remove(sdfg: SDFG, name: str, descriptor: DistributedDescriptor, stock: StockDescriptors) -> bool:
    """Remove one descriptor with its code; return False, without changes, if the code is not found."""
    spans = {}
    for which, code in (("init_code", sdfg.init_code), ("exit_code", sdfg.exit_code)):
        text = code["frame"].as_string if "frame" in code else ""
        spans[which] = _span(text, _code(descriptor, which, stock)) or _span_of_any_sizes(
            text, descriptor, which, stock
        )
    if None in spans.values():
        warnings.warn(f'the stock code of descriptor "{name}" was changed and stays in the program', stacklevel=2)
        return False
    for which, (lo, hi) in spans.items():
        code = getattr(sdfg, which)
        if lo < hi:
            code["frame"].as_string = code["frame"].as_string[:lo] + code["frame"].as_string[hi:]
    for state, access in list(_accesses(sdfg, name)):
        state.remove_nodes_from([access, *(e.src for e in state.in_edges(access))])
        state.remove_nodes_from([n for n in state.data_nodes() if state.degree(n) == 0])
    sdfg.remove_data(name, validate=False)
    return True


def _code(descriptor: DistributedDescriptor, which: str, stock: StockDescriptors) -> str:
    arguments = (stock,) if isinstance(descriptor, RedistrArray) else ()
    return str(getattr(descriptor, which)(*arguments))


def _span(text: str, part: str) -> tuple[int, int] | None:
    at = text.find(part)
    return None if at < 0 else (at, at + len(part))


def _span_of_any_sizes(
    text: str, descriptor: DistributedDescriptor, which: str, stock: StockDescriptors
) -> tuple[int, int] | None:
    code = _code(_with_any_sizes(descriptor), which, stock.with_any_sizes())
    found = re.search(re.escape(code).replace(str(_ANY_SIZE), r"[^;{}\n]+?"), text)
    return found.span() if found else None
