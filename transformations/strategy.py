"""Selection of redistributions of an SDFG, and their strategies."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable, Mapping
from typing import Any

from dace.libraries.comm.nodes.redistribute import Redistribute as StockRedistribute
from dace.sdfg import SDFG, SDFGState
from dace.sdfg.nodes import Tasklet

from dace_redist.library_nodes import JointRedistribute, Redistribute
from dace_redist.library_nodes.environment import is_node_shared
from dace_redist.library_nodes.node import symbols_of
from dace_redist.library_nodes.stock import keeps_stock
from dace_redist.schedule import schedule
from dace_redist.strategies import check_options, find_strategy
from dace_redist.timing.memories import PlacedSchedule, memory_name
from dace_redist.transformations.patterns import checked_sdfg, numbers_of, value_of, with_values
from dace_redist.transformations.stock import label_of, lower

#: Selection of nodes: all (None), a pattern of labels, or a predicate.
Where = str | Callable[[Any, SDFGState], bool] | None


def chosen_nodes(sdfg: SDFG, where: Where = None) -> list[tuple[Any, SDFGState]]:
    """
    Return the selected redistributions, of this package, joint ones too, and stock ones, also in nested SDFGs.

    :param where: Selection of nodes, as for :func:`dace_redist.set_strategy`.
    :raises ValueError: If ``where`` is given and no node matches, which lists the labels; if there is no redistribution
        and DaCe has expanded library nodes.
    """
    kinds = Redistribute | JointRedistribute | StockRedistribute
    every = [(n, s) for n, s in sdfg.all_nodes_recursive() if isinstance(n, kinds)]
    if not every:
        code = [node.code.as_string for node, _ in sdfg.all_nodes_recursive() if isinstance(node, Tasklet)]
        if any("__redist" in one or "MPI_" in one for one in code):
            remedy = "set or tune strategies before DaCe expands library nodes, as auto_optimize does"
            raise ValueError(f"{sdfg.name} has no redistribution, or no longer: {remedy}")
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


def placed_schedules(
    sdfg: SDFG, symbols: Mapping[str, int] | None = None, where: Where = None, memory: str | None = None
) -> dict[Redistribute, PlacedSchedule]:
    """
    Return what the redistributions of an SDFG move, for :func:`dace_redist.tune`; stock nodes are replaced first.

    Nodes of several tensors, of arrays that are not in C order, of DaCe's own implementation, and stock nodes that
    cannot be expressed are left out.

    :param sdfg: Changed in place, nested SDFGs included.
    :param where: Selection of nodes, as for :func:`dace_redist.set_strategy`.
    :param memory: Kind of memory of the arrays, one of ``MEMORIES``, except arrays on the GPU in the SDFG; default: as
        in the SDFG.
    :raises ValueError: If none of the redistributions is left, or a symbol has no value or a name is not a symbol.
    :raises TypeError: If a value is not an integer.
    """
    values, placed = checked_symbols(sdfg, symbols), {}
    chosen = chosen_nodes(sdfg, where)
    for found, state in chosen:
        if isinstance(found, JointRedistribute) or keeps_stock(found):
            continue
        with contextlib.suppress(ValueError):
            found = lower(found, state)
        if not isinstance(found, StockRedistribute) and all(
            array.is_packed_c_strides() for array, _ in found.arrays(state.sdfg, state)
        ):
            placed[found] = placed_schedule(found, state, values, memory)
    if chosen and not placed:
        raise ValueError(f"{sdfg.name} has no redistribution to tune")
    return placed


def checked_symbols(sdfg: SDFG, symbols: Mapping[str, int] | None) -> dict[str, int]:
    """
    Return the values of symbols as Python integers.

    :raises ValueError: If a name is not a symbol of the SDFG.
    :raises TypeError: If they are no dict, or a value is not an integer.
    """
    if not isinstance(symbols, Mapping | None):
        raise TypeError(f"symbols must be a dict of values by name, got {symbols!r}")
    known = {str(name) for name in (*sdfg.symbols, *sdfg.free_symbols)}
    for name, value in (symbols or {}).items():
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise ValueError(f"symbols: {name!r} is not a symbol of {sdfg.name}; it has {there}")
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"symbols: {name} must be an integer, got {value!r}")
    return {name: int(value) for name, value in (symbols or {}).items()}


def placed_schedule(
    node: Redistribute, state: SDFGState, values: Mapping[str, int], memory: str | None = None
) -> PlacedSchedule:
    """
    Return what a node moves, given the values of the symbols of the outermost SDFG.

    :param memory: Kind of memory of its arrays, unless the SDFG has one on the GPU; default: as in the SDFG. Arguments
        of the caller in main memory count as ordinary.
    :raises ValueError: If a symbol has no value; names the node.
    """
    values = _values_in(state.sdfg, values)
    source, target = (with_values(node, side, values) for side in node.distributions())
    (read, _), (written, _) = node.arrays(state.sdfg, state)
    if any(node.on_gpu(state.sdfg, state)):
        memory = memory_name(*node.on_gpu(state.sdfg, state), "gpu")
    elif memory is None:
        memory = memory_name(is_node_shared(read), is_node_shared(written))
    axes, region = node.axes or None, [numbers_of(node, part, values) for part in node.index_map.region or ()] or None
    reshape = target.shape if node.reshapes else None
    done, index_map = node.operation(state.sdfg, state), {"axes": axes, "region": region, "reshape": reshape}
    operation = {"alpha": done.alpha, "beta": done.beta, "conj": done.conj, "op": done.op, **node.precision}
    moved = schedule(source, target, done.dtype, target_dtype=done.target_dtype, **index_map, **operation)
    return PlacedSchedule(moved, memory)


def _values_in(sdfg: SDFG, values: Mapping[str, int]) -> dict[str, int]:
    """Return the values of the symbols of an SDFG, from those of the outermost SDFG."""
    own = {name: int(value) for name, value in sdfg.constants.items() if hasattr(value, "__index__")}
    outside = sdfg.parent_nsdfg_node
    if outside is None:
        return own | dict(values)
    around = _values_in(sdfg.parent_sdfg, values)
    mapping = outside.symbol_mapping.items()
    return own | {str(n): value_of(value, around) for n, value in mapping if symbols_of([value]) <= around.keys()}


def set_strategy(sdfg: SDFG, name: str, where: Where = None, **options: Any) -> SDFG:
    """
    Set the strategy of redistributions, joint ones included; stock nodes among them are replaced first.

    :param sdfg: Changed in place, including nested SDFGs.
    :param name: Name of a strategy, or ``"Auto"``.
    :param where: Nodes to set: None: all; a string: those with this label (``*`` and ``?`` as in file names); a
        function of node and state: those for which it returns True. In a ``@dace.program``, a call
        ``redistribute(A, rows, columns)`` has the label ``redistribute_A_new``, with ``out=B`` ``redistribute_A_B``; a
        node of DaCe that of its descriptor, such as ``__tmp0``. Where no node matches, the error lists the labels.
    :param options: See :func:`dace_redist.plan`.
    :return: ``sdfg``, unchanged if it has no redistribution and ``where`` is None.
    :raises ValueError: If an argument is invalid, no node matches, or DaCe has expanded the nodes.
    :raises TypeError: If ``sdfg`` is not an SDFG, or an option has the wrong type.
    """
    checked_sdfg(sdfg, "set_strategy")
    check_options(find_strategy(name), options)
    for node, state in chosen_nodes(sdfg, where):
        lower(node, state).set_strategy(name, **options)
    return sdfg
