"""Adds partial sums by MPI's reductions."""

from dace.library import register_expansion
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.environment import RuntimeEnvironment
from dace_redist.library_nodes.sum_replicas import SumReplicas
from dace_redist.library_nodes.tasklets import sum_replicas_tasklet


@register_expansion(SumReplicas, "MPI")
class ExpandSumReplicasMPI(ExpandTransformation):
    """A call of the library, with a plan that adds."""

    environments = [RuntimeEnvironment]
    expansion = staticmethod(sum_replicas_tasklet)
