"""The DaCe library of this package: the ``Redistribute`` node and one expansion per strategy."""

from dace.library import register_library

from dace_redist.library_nodes.environment import Runtime
from dace_redist.library_nodes.redistribute import Redistribute

from dace_redist.library_nodes import expansions, frontend  # isort: skip (register themselves)

__all__ = ["Redistribute", "Runtime", "expansions", "frontend"]

register_library(__name__, "redist")
