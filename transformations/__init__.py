"""Rewrites of SDFGs: those that redistribute tensors, and programs of einsums."""

from dace_redist.transformations.einsum.distribute_einsum import DistributeEinsum
from dace_redist.transformations.redistribution.choose_strategies import choose_strategies
from dace_redist.transformations.redistribution.fuse import FuseRedistributes, FuseTranspose, RemoveRedistribute
from dace_redist.transformations.redistribution.fuse_conversion import FuseConversion
from dace_redist.transformations.redistribution.fuse_reduction import FuseReduceBcast
from dace_redist.transformations.redistribution.join import JoinRedistributes
from dace_redist.transformations.redistribution.lower import LowerRedistribute, lower_all
from dace_redist.transformations.redistribution.overlap import OverlapRedistribute
from dace_redist.transformations.redistribution.place_in_shared_memory import (
    PlaceInSharedMemory,
    place_in_shared_memory,
)
from dace_redist.transformations.redistribution.relabel_grid import RelabelGrid
from dace_redist.transformations.redistribution.set_strategy import SetRedistributeStrategy, set_strategy

__all__ = [
    "DistributeEinsum",
    "FuseConversion",
    "FuseReduceBcast",
    "FuseRedistributes",
    "FuseTranspose",
    "JoinRedistributes",
    "LowerRedistribute",
    "OverlapRedistribute",
    "PlaceInSharedMemory",
    "RelabelGrid",
    "RemoveRedistribute",
    "SetRedistributeStrategy",
    "choose_strategies",
    "lower_all",
    "place_in_shared_memory",
    "set_strategy",
]
