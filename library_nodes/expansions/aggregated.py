"""Straight copies inside a node, joined messages between nodes."""

from dace.library import register_expansion

from dace_redist.library_nodes.redistribute import Redistribute
from dace_redist.library_nodes.tasklets import ExpandToStrategy


@register_expansion(Redistribute, "Aggregated")
class ExpandRedistributeAggregated(ExpandToStrategy):
    """A call of the library, with a plan of strategy ``Aggregated``."""

    strategy = "Aggregated"
