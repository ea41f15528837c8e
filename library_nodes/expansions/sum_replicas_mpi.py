"""Adds partial sums by MPI's reductions."""

from __future__ import annotations

from dace import library
from dace.sdfg import SDFG, SDFGState, nodes
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.common import sum_replicas_tasklet
from dace_redist.library_nodes.environment import Runtime
from dace_redist.library_nodes.sum_replicas import SumReplicas


@library.register_expansion(SumReplicas, "MPI")
class ExpandSumReplicasMPI(ExpandTransformation):
    """Generates ``dace_redist::sum_replicas(...)``."""

    environments = [Runtime]

    @staticmethod
    def expansion(node: SumReplicas, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
        """The tasklet in the node's place."""
        return sum_replicas_tasklet(node, state, sdfg)
