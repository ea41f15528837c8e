"""Selection of redistributions of an SDFG, and choice of their strategies: by hand, or from the tuning record."""

from __future__ import annotations

import copy
import fnmatch
import os
from collections.abc import Callable, Mapping
from typing import Any

from dace.libraries.comm.nodes.redistribute import Redistribute as StockRedistribute
from dace.sdfg import SDFG, SDFGState

from dace_redist.errors import RedistributionError
from dace_redist.library_nodes import JointRedistribute, Redistribute
from dace_redist.library_nodes.environment import is_node_shared
from dace_redist.library_nodes.node import symbols_of
from dace_redist.library_nodes.stock import keeps_stock
from dace_redist.mpi.collective import check_same, checked_communicator, together
from dace_redist.schedule import schedule
from dace_redist.strategies import AUTO, OPTIONS, check_options, find_strategy, options_on_gpu
from dace_redist.transformations.patterns import checked_sdfg, numbers_of, value_of, with_values
from dace_redist.transformations.stock import label_of, lower
from dace_redist.tuning.auto import NOT_IN_C_ORDER, Choice, choose_all
from dace_redist.tuning.problem import TuningProblem, check_memory, memory_name

#: Selection of nodes: all (None), a pattern of labels, or a predicate.
Where = str | Callable[[Any, SDFGState], bool] | None


def chosen_nodes(sdfg: SDFG, where: Where = None, joint: bool = False) -> list[tuple[Any, SDFGState]]:
    """
    Return the selected redistributions, of this package and stock ones, including those of nested SDFGs.

    :param where: Selection of nodes, as for :func:`dace_redist.set_strategy`.
    :param joint: True to return nodes that move several tensors, too.
    :raises ValueError: If ``where`` is given and no node matches; lists the labels.
    """
    kinds = (Redistribute, StockRedistribute, *([JointRedistribute] if joint else []))
    every = [(n, s) for n, s in sdfg.all_nodes_recursive() if isinstance(n, kinds)]
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
) -> list[tuple[str, TuningProblem]]:
    """
    Return label and problem of every redistribution of an SDFG, including stock nodes and nested SDFGs.

    :param sdfg: The SDFG; not changed.
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


def problem_of(
    node: Redistribute, state: SDFGState, values: Mapping[str, int], memory: str | None = None
) -> TuningProblem:
    """
    Return the problem of a node, given the values of the symbols of the outermost SDFG.

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
    moved = schedule(source, target, read.dtype, axes=axes, region=region, reshape=reshape)
    return TuningProblem(moved, memory)


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
    :return: ``sdfg``.
    :raises ValueError: If an argument is invalid, or no node matches.
    :raises TypeError: If ``sdfg`` is not an SDFG, or an option has the wrong type.
    """
    checked_sdfg(sdfg, "set_strategy")
    check_options(find_strategy(name), options)
    chosen = chosen_nodes(sdfg, where, joint=True)
    if not chosen:
        expanded = any(getattr(node, "environments", ()) for node, _ in sdfg.all_nodes_recursive())
        remedy = ", or no longer: call set_strategy before DaCe expands library nodes, as auto_optimize does"
        raise ValueError(f"no redistribution to set a strategy for: {sdfg.name} has none{remedy * expanded}")
    for node, state in chosen:
        lower(node, state).set_strategy(name, **options)
    return sdfg


def choose_strategies(
    sdfg: SDFG,
    record: str | os.PathLike[str] | None = None,
    *,
    comm: Any = None,
    symbols: Mapping[str, int] | None = None,
    where: Where = None,
    memory: str | None = None,
    every: bool = False,
) -> dict[Redistribute, Choice]:
    """
    Set strategy and options of every redistribution with strategy ``"Auto"``. Collective over ``comm``.

    They come from the record of :func:`dace_redist.tune`, else they are the default, as for arrays that are not in C
    order, or that lie on a GPU when no GPU is available. Stock nodes are replaced first; those that cannot be
    expressed, or that have the implementation ``"MPI"``, are unchanged.

    :param sdfg: Changed in place, nested SDFGs included.
    :param record: File of the tuning record; default: ``DACE_REDIST_RECORD``, else the user's file.
    :param comm: mpi4py communicator that the program will run on; default: the world.
    :param symbols: Values of symbols; a node whose sizes are then still symbolic remains ``"Auto"``.
    :param where: Selection of nodes, as for :func:`dace_redist.set_strategy`; default: all.
    :param memory: Kind of main memory of the arrays, as for :func:`dace_redist.tune`; default: as in the SDFG.
    :param every: True to apply recorded choices also to nodes with another strategy than ``"Auto"``.
    :return: The choice and its reason, for every node considered.
    :raises ValueError: On every rank, if a name is not a symbol, if no node matches, if ranks have different programs,
        or if the record is damaged.
    :raises TypeError: On every rank, if an argument has the wrong type.
    :raises OSError: On every rank, if the record cannot be read.
    """
    comm = checked_communicator(comm)
    problems: dict[Redistribute, TuningProblem] = {}
    choices: dict[Redistribute, Choice] = {}
    with together(comm):
        values = checked_symbols(checked_sdfg(sdfg, "choose_strategies"), symbols)
        if memory is not None:
            check_memory(memory)
        for node, state in _considered(sdfg, where, every):
            try:
                if all(array.is_packed_c_strides() for array, _ in node.arrays(state.sdfg, state)):
                    problems[node] = problem_of(node, state, values, memory)
                else:
                    choices[node] = Choice(node.strategy, {}, False, NOT_IN_C_ORDER)
            except ValueError as error:
                choices[node] = Choice(node.strategy, {}, False, f"not measured: {error}")
    keys = [(str(node.label), problem.identity) for node, problem in problems.items()]
    check_same(comm, {"the redistributions of their programs": keys})
    for on_gpu in (False, True):
        group = {node: problem for node, problem in problems.items() if problem.on_gpu == on_gpu}
        choices |= _chosen(group, comm, record)
    for node, choice in choices.items():
        if choice.recorded:
            common = {n: v for n, v in node.options.items() if n in AUTO.options and v != OPTIONS[n].default}
            options = {**choice.options, **common}
            on_gpu = node in problems and problems[node].on_gpu
            node.set_strategy(choice.strategy, **(options_on_gpu(choice.strategy, options) if on_gpu else options))
    return choices


def _chosen(
    problems: Mapping[Redistribute, TuningProblem], comm: Any, record: str | os.PathLike[str] | None
) -> dict[Redistribute, Choice]:
    """Return the choices for arrays in main memory, or for arrays on GPUs. Collective."""
    try:
        return dict(zip(problems, choose_all(list(problems.values()), comm, record), strict=True)) if problems else {}
    except (RuntimeError, RedistributionError) as error:  # a BuildError is a RuntimeError
        if not any(problem.on_gpu for problem in problems.values()):
            raise
        return {node: Choice(node.strategy, {}, False, f"no GPU can be used here: {error}") for node in problems}


def _considered(sdfg: SDFG, where: Where, every: bool) -> list[tuple[Redistribute, SDFGState]]:
    """Return the nodes to choose for, after replacing stock nodes that can be and do not name DaCe's own code."""
    considered = []
    for found, state in chosen_nodes(sdfg, where):
        if keeps_stock(found):
            continue
        try:
            node = lower(found, state)
        except ValueError:
            continue
        if every or node.implementation is None:
            considered.append((node, state))
    return considered
