"""The strategies by which several tensors move in one exchange."""

from dace.library import register_expansion
from dace.sdfg import SDFG, SDFGState, nodes
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.environment import RuntimeEnvironment
from dace_redist.library_nodes.joint_redistribute import JointRedistribute
from dace_redist.library_nodes.tasklets import joint_tasklet


@register_expansion(JointRedistribute, "Hierarchical")
class ExpandJointHierarchical(ExpandTransformation):
    """Through node-shared memory within a node, over MPI between nodes."""

    environments = [RuntimeEnvironment]

    @staticmethod
    def expansion(node: JointRedistribute, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
        """The tasklet in the node's place."""
        return joint_tasklet(node, state, sdfg, "Hierarchical")


@register_expansion(JointRedistribute, "Pack")
class ExpandJointPack(ExpandTransformation):
    """Over MPI: all tensors packed into one message for each rank."""

    environments = [RuntimeEnvironment]

    @staticmethod
    def expansion(node: JointRedistribute, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
        """The tasklet in the node's place."""
        return joint_tasklet(node, state, sdfg, "Pack")
