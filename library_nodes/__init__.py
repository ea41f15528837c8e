"""The DaCe library: the nodes ``Redistribute``, ``JointRedistribute``, ``RedistributeWait``, ``Contraction`` and
``LinearSolve``.
"""

from dace_redist.errors import remedies

with remedies(__name__):
    from dace.library import register_library

from dace_redist.library_nodes.environment import BlasEnvironment, RuntimeEnvironment
from dace_redist.library_nodes.indexed import Contraction, LinearSolve
from dace_redist.library_nodes.joint import JointRedistribute
from dace_redist.library_nodes.redistribute import Redistribute, RedistributeWait

from dace_redist.library_nodes import expansions, frontend, stock  # isort: skip (register themselves)

__all__ = [
    "BlasEnvironment",
    "Contraction",
    "JointRedistribute",
    "LinearSolve",
    "Redistribute",
    "RedistributeWait",
    "RuntimeEnvironment",
    "expansions",
    "frontend",
    "stock",
]

register_library(__name__, "redist")
