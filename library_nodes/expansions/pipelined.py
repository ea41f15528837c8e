"""Chunks pass through a small ring of buffers: pack, send, receive and unpack overlap."""

from dace.library import register_expansion

from dace_redist.library_nodes.redistribute import Redistribute
from dace_redist.library_nodes.tasklets import ExpandToStrategy


@register_expansion(Redistribute, "Pipelined")
class ExpandRedistributePipelined(ExpandToStrategy):
    """A call of the library, with a plan of strategy ``Pipelined``."""

    strategy = "Pipelined"
