"""Wait for a non-blocking redistribution."""

from dace.library import register_expansion
from dace.sdfg import SDFG, SDFGState, nodes
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.environment import RuntimeEnvironment
from dace_redist.library_nodes.redistribute_wait import RedistributeWait
from dace_redist.library_nodes.tasklets import wait_tasklet


@register_expansion(RedistributeWait, "pure")
class ExpandRedistributeWait(ExpandTransformation):
    """A call of the library."""

    environments = [RuntimeEnvironment]

    @staticmethod
    def expansion(node: RedistributeWait, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
        """The tasklet in the node's place."""
        return wait_tasklet(node, state, sdfg)
