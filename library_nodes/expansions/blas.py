"""Contract tensors by BLAS, with loops and blocked copies around it."""

from dace.library import register_expansion
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.contraction import Contraction
from dace_redist.library_nodes.environment import BlasEnvironment
from dace_redist.library_nodes.tasklets import contraction_tasklet


@register_expansion(Contraction, "BLAS")
class ExpandContractionBlas(ExpandTransformation):
    """A call of the library of contractions."""

    environments = [BlasEnvironment]
    expansion = staticmethod(contraction_tasklet)
