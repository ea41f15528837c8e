"""Chunks pass through a small ring of buffers: pack, send, receive and unpack overlap."""

from __future__ import annotations

from dace import library
from dace.sdfg import SDFG, SDFGState, nodes
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.common import redistribute_tasklet
from dace_redist.library_nodes.environment import Runtime
from dace_redist.library_nodes.redistribute import Redistribute


@library.register_expansion(Redistribute, "Pipelined")
class ExpandRedistributePipelined(ExpandTransformation):
    """A call of the library, with a plan of strategy ``Pipelined``."""

    environments = [Runtime]

    @staticmethod
    def expansion(node: Redistribute, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
        """The tasklet in the node's place."""
        return redistribute_tasklet(node, state, sdfg, "Pipelined")
