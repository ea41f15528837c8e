"""Packed messages are put into one window; partners synchronise in pairs."""

from dace.library import register_expansion

from dace_redist.library_nodes.redistribute import Redistribute
from dace_redist.library_nodes.tasklets import ExpandToStrategy


@register_expansion(Redistribute, "RMA")
class ExpandRedistributeRMA(ExpandToStrategy):
    """A call of the library, with a plan of strategy ``RMA``."""

    strategy = "RMA"
