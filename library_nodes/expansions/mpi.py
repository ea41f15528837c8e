"""Stock DaCe's own redistribution, kept as the baseline."""

from dace.libraries.comm.environments.mpi import MPI
from dace.library import register_expansion
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.redistribute import Redistribute
from dace_redist.library_nodes.stock_code import stock_tasklet


@register_expansion(Redistribute, "MPI")
class ExpandRedistributeMPI(ExpandTransformation):
    """Generates what stock DaCe's own node would."""

    environments = [MPI]
    expansion = staticmethod(stock_tasklet)
