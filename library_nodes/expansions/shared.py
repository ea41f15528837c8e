"""Ranks of one node copy between each other's memories."""

from dace.library import register_expansion

from dace_redist.library_nodes.redistribute import Redistribute
from dace_redist.library_nodes.tasklets import ExpandToStrategy


@register_expansion(Redistribute, "Shared")
class ExpandRedistributeShared(ExpandToStrategy):
    """A call of the library, with a plan of strategy ``Shared``."""

    strategy = "Shared"
