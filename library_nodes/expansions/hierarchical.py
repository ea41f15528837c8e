"""Straight copies inside a node, chunks over MPI between nodes."""

from __future__ import annotations

from dace import library
from dace.sdfg import SDFG, SDFGState, nodes
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.common import redistribute_tasklet
from dace_redist.library_nodes.environment import Runtime
from dace_redist.library_nodes.redistribute import Redistribute


@library.register_expansion(Redistribute, "Hierarchical")
class ExpandRedistributeHierarchical(ExpandTransformation):
    """A call of the library, with a plan of strategy ``Hierarchical``."""

    environments = [Runtime]

    @staticmethod
    def expansion(node: Redistribute, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
        """The tasklet in the node's place."""
        return redistribute_tasklet(node, state, sdfg, "Hierarchical")
