"""Contract tensors on the GPU by cuBLAS, with permuting copies before and after its products of matrices."""

from dace.library import register_expansion
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.contraction import CUBLAS, Contraction
from dace_redist.library_nodes.environment import CublasEnvironment
from dace_redist.library_nodes.tasklets import cublas_tasklet


@register_expansion(Contraction, CUBLAS)
class ExpandContractionCublas(ExpandTransformation):
    """A call of the library of redistribution, which calls cuBLAS."""

    environments = [CublasEnvironment]
    expansion = staticmethod(cublas_tasklet)
