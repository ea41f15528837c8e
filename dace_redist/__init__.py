"""Fast redistribution of distributed tensors over MPI, inside DaCe programs and from NumPy."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from dace_redist._version import __version__ as __version__
from dace_redist.errors import BuildError, RedistributionError
from dace_redist.joint_schedule import JointSchedule
from dace_redist.redistribution.shared_arrays import empty, node_shared_memory
from dace_redist.schedule import Schedule, schedule

if TYPE_CHECKING:
    from dace_redist.distribution import Distribution, TiledDistribution
    from dace_redist.library_nodes import Contraction, JointRedistribute, Redistribute
    from dace_redist.redistribution.plan import Plan, plan
    from dace_redist.redistribution.redistribute import redistribute
    from dace_redist.redistribution.request import Request
    from dace_redist.relabelling import node_weights, relabel
    from dace_redist.transformations import (
        FuseConversion,
        FuseRedistributes,
        FuseReduceBcast,
        FuseTranspose,
        JoinRedistributes,
        LowerRedistribute,
        OverlapRedistribute,
        PlaceInSharedMemory,
        RelabelGrid,
        RemoveRedistribute,
        SetRedistributeStrategy,
        choose_strategies,
        lower_all,
        place_in_shared_memory,
        set_strategy,
    )
    from dace_redist.transformations.distribute import DistributeEinsum, distribute
    from dace_redist.transformations.distribute.runtime.program import DistributedProgram
    from dace_redist.transformations.redistribution.tune import tune
    from dace_redist.tuning.auto import chosen_strategy

__all__ = [
    "BuildError",
    "Contraction",
    "DistributeEinsum",
    "DistributedProgram",
    "Distribution",
    "FuseConversion",
    "FuseReduceBcast",
    "FuseRedistributes",
    "FuseTranspose",
    "JoinRedistributes",
    "JointRedistribute",
    "JointSchedule",
    "LowerRedistribute",
    "OverlapRedistribute",
    "PlaceInSharedMemory",
    "Plan",
    "Redistribute",
    "RedistributionError",
    "RelabelGrid",
    "RemoveRedistribute",
    "Request",
    "Schedule",
    "SetRedistributeStrategy",
    "TiledDistribution",
    "choose_strategies",
    "chosen_strategy",
    "distribute",
    "empty",
    "lower_all",
    "node_shared_memory",
    "node_weights",
    "place_in_shared_memory",
    "plan",
    "redistribute",
    "relabel",
    "schedule",
    "set_strategy",
    "tune",
]

#: Where the names are that load more than NumPy, DaCe or MPI with their first use, or that DaCe must know in programs.
_ON_FIRST_USE = {
    "DistributeEinsum": "dace_redist.transformations.distribute",
    "DistributedProgram": "dace_redist.transformations.distribute.runtime.program",
    "Distribution": "dace_redist.distribution",
    "TiledDistribution": "dace_redist.distribution",
    "Contraction": "dace_redist.library_nodes",
    "FuseConversion": "dace_redist.transformations",
    "FuseReduceBcast": "dace_redist.transformations",
    "FuseRedistributes": "dace_redist.transformations",
    "FuseTranspose": "dace_redist.transformations",
    "RelabelGrid": "dace_redist.transformations",
    "RemoveRedistribute": "dace_redist.transformations",
    "JoinRedistributes": "dace_redist.transformations",
    "JointRedistribute": "dace_redist.library_nodes",
    "OverlapRedistribute": "dace_redist.transformations",
    "LowerRedistribute": "dace_redist.transformations",
    "PlaceInSharedMemory": "dace_redist.transformations",
    "Redistribute": "dace_redist.library_nodes",
    "Request": "dace_redist.redistribution.request",
    "SetRedistributeStrategy": "dace_redist.transformations",
    "choose_strategies": "dace_redist.transformations",
    "chosen_strategy": "dace_redist.tuning.auto",
    "distribute": "dace_redist.transformations.distribute",
    "lower_all": "dace_redist.transformations",
    "place_in_shared_memory": "dace_redist.transformations",
    "Plan": "dace_redist.redistribution.plan",
    "plan": "dace_redist.redistribution.plan",
    "node_weights": "dace_redist.relabelling",
    "redistribute": "dace_redist.redistribution.redistribute",
    "relabel": "dace_redist.relabelling",
    "set_strategy": "dace_redist.transformations",
    "tune": "dace_redist.transformations.redistribution.tune",
}


_used_without_dace: dict[str, Any] = {}


def __getattr__(name: str) -> Any:
    used = _used_without_dace.get(name)
    if used is not None and "dace" not in sys.modules:
        return used
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'dace_redist' has no attribute {name!r}")
    if "dace" in sys.modules:  # so that DaCe knows what the name means inside a program
        importlib.import_module("dace_redist.library_nodes")
    value = getattr(importlib.import_module(_ON_FIRST_USE[name]), name)
    (globals() if "dace" in sys.modules else _used_without_dace)[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
