"""Straight copies inside a node, chunks over MPI between nodes."""

from dace.library import register_expansion

from dace_redist.library_nodes.redistribute import Redistribute
from dace_redist.library_nodes.tasklets import ExpandToStrategy


@register_expansion(Redistribute, "Hierarchical")
class ExpandRedistributeHierarchical(ExpandToStrategy):
    """A call of the library, with a plan of strategy ``Hierarchical``."""

    strategy = "Hierarchical"
