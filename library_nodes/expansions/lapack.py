"""Solve linear systems by LAPACK."""

from dace.library import register_expansion
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.environment import BlasEnvironment
from dace_redist.library_nodes.linear_solve import LinearSolve
from dace_redist.library_nodes.tasklets import linear_solve_tasklet


@register_expansion(LinearSolve, "LAPACK")
class ExpandLinearSolveLapack(ExpandTransformation):
    """A call of the library's linear solver."""

    environments = [BlasEnvironment]
    expansion = staticmethod(linear_solve_tasklet)
