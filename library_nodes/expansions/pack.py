"""Pack each message, one per pair of ranks, unpack in order of arrival."""

from dace.library import register_expansion

from dace_redist.library_nodes.redistribute import Redistribute
from dace_redist.library_nodes.tasklets import ExpandToStrategy


@register_expansion(Redistribute, "Pack")
class ExpandRedistributePack(ExpandToStrategy):
    """A call of the library, with a plan of strategy ``Pack``."""

    strategy = "Pack"
