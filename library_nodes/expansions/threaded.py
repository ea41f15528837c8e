"""Pack with OpenMP threads that share each copy."""

from dace.library import register_expansion

from dace_redist.library_nodes.redistribute import Redistribute
from dace_redist.library_nodes.tasklets import ExpandToStrategy


@register_expansion(Redistribute, "Threaded")
class ExpandRedistributeThreaded(ExpandToStrategy):
    """A call of the library, with a plan of strategy ``Threaded``."""

    strategy = "Threaded"
