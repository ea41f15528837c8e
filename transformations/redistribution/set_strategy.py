"""Chooses by hand how redistributions are carried out."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

from dace import properties
from dace.libraries.comm.nodes.redistribute import Redistribute as StockRedistribute
from dace.sdfg import SDFG, SDFGState
from dace.sdfg import utils as sdutil
from dace.transformation import transformation

from dace_redist.library_nodes import Redistribute
from dace_redist.strategies import OPTIONS, check_options, find_strategy
from dace_redist.transformations.redistribution.lower import checked_sdfg, lower
from dace_redist.transformations.redistribution.stock_descriptors import descriptor_name

#: Which nodes: all (None), those whose label matches a pattern, or those a function picks.
Where = str | Callable[[Any, SDFGState], bool] | None


@properties.make_properties
class SetRedistributeStrategy(transformation.SingleStateTransformation):
    """Sets the strategy of one ``Redistribute`` node of this package; for stock ones see :class:`LowerRedistribute`."""

    node = transformation.PatternNode(Redistribute)

    strategy = properties.Property(dtype=str, default="Auto", category="Parameters", desc="Name of the strategy")
    options = properties.DictProperty(str, object, default={}, category="Parameters", desc="Options of the strategy")
    label = properties.Property(dtype=str, default="*", category="Parameters", desc="Pattern of the labels it is for")

    @classmethod
    def expressions(cls) -> list[Any]:
        """One node."""
        return [sdutil.node_path_graph(cls.node)]

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Whether the node is one of those meant and would change; DaCe would hide an error from here."""
        if not fnmatch.fnmatchcase(self.node.label, self.label):
            return False
        try:
            strategy = find_strategy(self.strategy)
            options = check_options(strategy, self.options)
        except (ValueError, TypeError):
            return True  # apply() raises it
        defaults = {name: OPTIONS[name].default for name in strategy.options}
        return self.node.strategy != strategy.name or self.node.options != defaults | options

    def apply(self, graph: SDFGState, sdfg: SDFG) -> None:
        """
        Sets strategy and options.

        :raises ValueError: If the strategy or an option is unknown or out of range.
        """
        self.node.set_strategy(self.strategy, **self.options)


def set_strategy(sdfg: SDFG, name: str, where: Where = None, **options: Any) -> SDFG:
    """
    Sets how redistributions are carried out; stock nodes among them become this package's first.

    With ``"MPI"`` stock nodes stay as they are.

    :param sdfg: Changed in place, nested SDFGs included.
    :param name: Name of a strategy, or ``"Auto"``.
    :param where: None: all nodes; a string: those whose label matches it (``*`` and ``?`` as in file names);
        a function of node and state: those for which it returns True.
    :param options: Options of the strategy, e.g. ``chunk_bytes=8 << 20``.
    :return: The same SDFG.
    :raises ValueError: If the strategy or an option is unknown or out of range, if no node matches, or if it is
        ``"MPI"`` and an array of a node lies on the GPU.
    :raises TypeError: If ``sdfg`` is none, or an option is of another type.
    """
    checked_sdfg(sdfg, "set_strategy")
    strategy = find_strategy(name)
    check_options(strategy, options)
    chosen = chosen_nodes(sdfg, where)
    for node, state in chosen if strategy.name == "MPI" else ():
        if isinstance(node, Redistribute) and any(node.on_gpu(state.sdfg, state)):
            raise ValueError(node.refusal_of_stock_code)
    for node, state in chosen:
        if isinstance(node, StockRedistribute):
            if strategy.name == "MPI":
                continue
            node = lower(node, state, state.sdfg)
        node.set_strategy(name, **options)
    return sdfg


def chosen_nodes(sdfg: SDFG, where: Where = None) -> list[tuple[Redistribute | StockRedistribute, SDFGState]]:
    """
    The redistributions that match, of this package and stock ones, those of nested SDFGs included.

    :param where: Which, as for :func:`set_strategy`.
    :return: Nodes with the states that hold them.
    :raises ValueError: If ``where`` is given and none matches; names those there are.
    """
    every = [(n, s) for n, s in sdfg.all_nodes_recursive() if isinstance(n, Redistribute | StockRedistribute)]
    chosen = [(node, state) for node, state in every if _meant(where, node, state)]
    if where is not None and not chosen:
        labels = ", ".join(sorted(_label(node, state) for node, state in every)) or "none"
        raise ValueError(f"no redistribution of {sdfg.name} matches {where!r}; it has {labels}")
    return chosen


def _label(node: Redistribute | StockRedistribute, state: SDFGState) -> str:
    """A stock node is named by its descriptor: all of them have one label."""
    return descriptor_name(node, state) if isinstance(node, StockRedistribute) else str(node.label)


def _meant(where: Where, node: Any, state: SDFGState) -> bool:
    if where is None:
        return True
    return bool(where(node, state)) if callable(where) else fnmatch.fnmatchcase(_label(node, state), where)
