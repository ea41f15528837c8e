"""Redistributions of an SDFG: selection, values for their symbols, and the problems that the tuner knows them by."""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Callable, Mapping
from typing import Any

from dace.libraries.comm.nodes.redistribute import Redistribute as StockRedistribute
from dace.sdfg import SDFG, SDFGState

from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.environment import is_node_shared
from dace_redist.schedule import schedule
from dace_redist.transformations.patterns import numbers_of, value_of, with_values
from dace_redist.transformations.stock import label_of, lower
from dace_redist.tuning.problem import Problem, memory_name

#: Selection of nodes: all (None), a pattern of labels, or a predicate.
Where = str | Callable[[Any, SDFGState], bool] | None


def chosen_nodes(sdfg: SDFG, where: Where = None) -> list[tuple[Redistribute | StockRedistribute, SDFGState]]:
    """
    Return the selected redistributions, of this package and stock ones, including those of nested SDFGs.

    :param where: Selection of nodes, as for :func:`dace_redist.set_strategy`.
    :raises ValueError: If ``where`` is given and no node matches; lists the labels.
    """
    every = [(n, s) for n, s in sdfg.all_nodes_recursive() if isinstance(n, Redistribute | StockRedistribute)]
    if where is None:
        return every
    if callable(where):
        chosen = [(node, state) for node, state in every if where(node, state)]
    else:
        chosen = [(node, state) for node, state in every if fnmatch.fnmatchcase(label_of(node, state), where)]
    if not chosen:
        labels = ", ".join(sorted(label_of(node, state) for node, state in every)) or "none"
        raise ValueError(f"no redistribution of {sdfg.name} matches {where!r}; it has {labels}")
    return chosen


def problems_of(
    sdfg: SDFG, symbols: Mapping[str, int] | None = None, where: Where = None, memory: str | None = None
) -> list[tuple[str, Problem]]:
    """
    Return label and problem of every redistribution of an SDFG, including stock nodes and nested SDFGs.

    :param sdfg: The SDFG; not changed.
    :param symbols: Values of its symbols.
    :param where: Selection of nodes, as for :func:`dace_redist.set_strategy`.
    :param memory: Kind of memory of the arrays, one of ``MEMORIES``, except arrays on the GPU in the SDFG; default: as
        in the SDFG.
    :raises ValueError: If the SDFG has no redistribution, or if a symbol has no value or a name is not a symbol.
    :raises TypeError: If a value is not an integer.
    """
    values = checked_symbols(sdfg, symbols)
    ours = [(lower(node, state), state) for node, state in chosen_nodes(copy.deepcopy(sdfg), where)]
    if not ours:
        raise ValueError(f"{sdfg.name} has no redistribution to tune")
    return [(str(node.label), problem_of(node, state, values, memory)) for node, state in ours]


def checked_symbols(sdfg: SDFG, symbols: Mapping[str, int] | None) -> dict[str, int]:
    """
    Return the values of symbols as Python integers.

    :raises ValueError: If a name is not a symbol of the SDFG.
    :raises TypeError: If a value is not an integer.
    """
    known = {str(name) for name in (*sdfg.symbols, *sdfg.free_symbols)}
    for name, value in (symbols or {}).items():
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise ValueError(f"symbols: {name!r} is not a symbol of {sdfg.name}; it has {there}")
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"symbols: {name} must be an integer, got {value!r}")
    return {name: int(value) for name, value in (symbols or {}).items()}


def problem_of(node: Redistribute, state: SDFGState, values: Mapping[str, int], memory: str | None = None) -> Problem:
    """
    Return the problem of a node, given the values of the symbols of the outermost SDFG.

    :param memory: Kind of memory of its arrays, unless the SDFG has one on the GPU; default: as in the SDFG. Arguments
        of the caller in main memory count as ordinary.
    :raises ValueError: If a symbol has no value; names the node.
    """
    values = _values_in(state.sdfg, values)
    source, target = (with_values(node, encoded, values) for encoded in (node.source, node.target))
    (read, _), (written, _) = node.arrays(state.sdfg, state)
    if any(node.on_gpu(state.sdfg, state)):
        memory = memory_name(*node.on_gpu(state.sdfg, state), "gpu")
    elif memory is None:
        memory = memory_name(is_node_shared(read), is_node_shared(written))
    axes, region = node.axes or None, [numbers_of(node, part, values) for part in node.index_map.region or ()] or None
    reshape = target.shape if node.reshapes else None
    moved = schedule(source, target, read.dtype, axes=axes, region=region, reshape=reshape)
    return Problem(moved, memory)


def _values_in(sdfg: SDFG, values: Mapping[str, int]) -> dict[str, int]:
    """Return the values of the symbols of an SDFG, from those of the outermost SDFG."""
    own = {name: int(value) for name, value in sdfg.constants.items() if hasattr(value, "__index__")}
    outside = sdfg.parent_nsdfg_node
    if outside is None:
        return own | dict(values)
    around = _values_in(sdfg.parent_sdfg, values)
    mapped = {str(name): value_of(expression, around) for name, expression in outside.symbol_mapping.items()}
    return own | {name: value for name, value in mapped.items() if isinstance(value, int)}
