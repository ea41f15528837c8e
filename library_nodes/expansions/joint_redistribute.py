"""The strategies by which several tensors move in one exchange."""

from typing import ClassVar

from dace.library import register_expansion
from dace.sdfg import SDFG, SDFGState, nodes
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.environment import RuntimeEnvironment
from dace_redist.library_nodes.joint_redistribute import JointRedistribute
from dace_redist.library_nodes.tasklets import joint_tasklet


class ExpandJointToStrategy(ExpandTransformation):
    """Redistributes several tensors by a plan of the library; ``strategy`` is the name of the expansion."""

    environments = [RuntimeEnvironment]
    strategy: ClassVar[str]

    @classmethod
    def expansion(cls, node: JointRedistribute, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
        """The tasklet in the node's place."""
        return joint_tasklet(node, state, sdfg, cls.strategy)


@register_expansion(JointRedistribute, "Hierarchical")
class ExpandJointHierarchical(ExpandJointToStrategy):
    """Through node-shared memory within a node, over MPI between nodes."""

    strategy = "Hierarchical"


@register_expansion(JointRedistribute, "Pack")
class ExpandJointPack(ExpandJointToStrategy):
    """Over MPI: all tensors packed into one message for each rank."""

    strategy = "Pack"
