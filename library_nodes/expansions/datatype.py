"""MPI derived datatypes gather and scatter the elements; receives first, everything non-blocking."""

from dace.library import register_expansion

from dace_redist.library_nodes.redistribute import Redistribute
from dace_redist.library_nodes.tasklets import ExpandToStrategy


@register_expansion(Redistribute, "Datatype")
class ExpandRedistributeDatatype(ExpandToStrategy):
    """A call of the library, with a plan of strategy ``Datatype``."""

    strategy = "Datatype"
