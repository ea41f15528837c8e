"""Contract tensors by BLAS, with loops and blocked copies around it."""

from __future__ import annotations

from dace import library
from dace.sdfg import SDFG, SDFGState, nodes
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.blas_environment import Blas
from dace_redist.library_nodes.common import contraction_tasklet
from dace_redist.library_nodes.contraction import Contraction


@library.register_expansion(Contraction, "BLAS")
class ExpandContractionBlas(ExpandTransformation):
    """A call of the library of contractions."""

    environments = [Blas]

    @staticmethod
    def expansion(node: Contraction, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
        """The tasklet in the node's place."""
        return contraction_tasklet(node, state, sdfg)
