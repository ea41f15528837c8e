"""Pack what goes from one rank to another, of all tensors, into one message."""

from dace.library import register_expansion
from dace.sdfg import SDFG, SDFGState, nodes
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.environment import RuntimeEnvironment
from dace_redist.library_nodes.joint_redistribute import JointRedistribute
from dace_redist.library_nodes.tasklets import joint_tasklet


@register_expansion(JointRedistribute, "Pack")
class ExpandJointRedistribute(ExpandTransformation):
    """A call of the library."""

    environments = [RuntimeEnvironment]

    @staticmethod
    def expansion(node: JointRedistribute, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
        """The tasklet in the node's place."""
        return joint_tasklet(node, state, sdfg)
