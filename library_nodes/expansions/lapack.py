"""Solve linear systems by LAPACK."""

from __future__ import annotations

from dace import library
from dace.sdfg import SDFG, SDFGState, nodes
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.blas_environment import Blas
from dace_redist.library_nodes.common import linear_solve_tasklet
from dace_redist.library_nodes.linear_solve import LinearSolve


@library.register_expansion(LinearSolve, "LAPACK")
class ExpandLinearSolveLapack(ExpandTransformation):
    """A call of the library's linear solver."""

    environments = [Blas]

    @staticmethod
    def expansion(node: LinearSolve, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
        """The tasklet in the node's place."""
        return linear_solve_tasklet(node, state, sdfg)
