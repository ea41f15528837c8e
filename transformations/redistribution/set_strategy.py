"""Manual choice of strategies."""

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

#: Selection of nodes: all (None), a pattern of labels, or a predicate.
Where = str | Callable[[Any, SDFGState], bool] | None


@properties.make_properties
class SetRedistributeStrategy(transformation.SingleStateTransformation):
    """Set the strategy of one ``Redistribute`` node of this package; for stock nodes see :class:`LowerRedistribute`."""

    node = transformation.PatternNode(Redistribute)

    strategy = properties.Property(dtype=str, default="Auto", category="Parameters", desc="Name of the strategy")
    options = properties.DictProperty(str, object, default={}, category="Parameters", desc="Options of the strategy")
    label = properties.Property(dtype=str, default="*", category="Parameters", desc="Pattern of the labels it is for")

    @classmethod
    def expressions(cls) -> list[Any]:
        """Return the pattern: one node."""
        return [sdutil.node_path_graph(cls.node)]

    def can_be_applied(self, graph: SDFGState, expr_index: int, sdfg: SDFG, permissive: bool = False) -> bool:
        """Return True if the label matches and ``apply`` changes the node or raises: DaCe hides errors raised here."""
        if not fnmatch.fnmatchcase(self.node.label, self.label):
            return False
        try:
            strategy = find_strategy(self.strategy)
            options = check_options(strategy, self.options)
        except (ValueError, TypeError):
            return True  # apply() raises the error
        defaults = {name: OPTIONS[name].default for name in strategy.options}
        return self.node.strategy != strategy.name or self.node.options != defaults | options

    def apply(self, graph: SDFGState, sdfg: SDFG) -> None:
        """
        Set strategy and options.

        :raises ValueError: If the strategy or an option is unknown or out of range.
        """
        self.node.set_strategy(self.strategy, **self.options)


def set_strategy(sdfg: SDFG, name: str, where: Where = None, **options: Any) -> SDFG:
    """
    Set the strategy of redistributions; stock nodes among them are replaced first.

    With ``"MPI"`` stock nodes are unchanged.

    :param sdfg: Changed in place, including nested SDFGs.
    :param name: Name of a strategy, or ``"Auto"``.
    :param where: None: all nodes; a string: those whose label matches it (``*`` and ``?`` as in file names);
        a function of node and state: those for which it returns True.
    :param options: Options of the strategy, e.g. ``chunk_bytes=8 << 20``.
    :return: ``sdfg``.
    :raises ValueError: If the strategy or an option is unknown or out of range, if no node matches, or if it is
        ``"MPI"`` and an array of a node lies on the GPU.
    :raises TypeError: If ``sdfg`` is not an SDFG, or an option has the wrong type.
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
    Return the selected redistributions, of this package and stock ones, including those of nested SDFGs.

    :param where: Selection of nodes, as for :func:`set_strategy`.
    :return: Nodes with their states.
    :raises ValueError: If ``where`` is given and no node matches; lists the labels.
    """
    every = [(n, s) for n, s in sdfg.all_nodes_recursive() if isinstance(n, Redistribute | StockRedistribute)]
    chosen = [(node, state) for node, state in every if _meant(where, node, state)]
    if where is not None and not chosen:
        labels = ", ".join(sorted(_label(node, state) for node, state in every)) or "none"
        raise ValueError(f"no redistribution of {sdfg.name} matches {where!r}; it has {labels}")
    return chosen


def _label(node: Redistribute | StockRedistribute, state: SDFGState) -> str:
    """Return the label of a node; of a stock node the name of its descriptor, since all stock nodes share a label."""
    return descriptor_name(node, state) if isinstance(node, StockRedistribute) else str(node.label)


def _meant(where: Where, node: Any, state: SDFGState) -> bool:
    if where is None:
        return True
    return bool(where(node, state)) if callable(where) else fnmatch.fnmatchcase(_label(node, state), where)
