"""Rewrites of SDFGs: those that redistribute tensors, and programs of einsums."""

from dace_redist.transformations.choose_redistribute_strategies import choose_strategies
from dace_redist.transformations.distribute_einsum import DistributeEinsum
from dace_redist.transformations.lower_redistribute import LowerRedistribute, lower_all
from dace_redist.transformations.place_in_shared_memory import PlaceInSharedMemory, place_in_shared_memory
from dace_redist.transformations.set_redistribute_strategy import SetRedistributeStrategy, set_strategy

__all__ = [
    "DistributeEinsum",
    "LowerRedistribute",
    "PlaceInSharedMemory",
    "SetRedistributeStrategy",
    "choose_strategies",
    "lower_all",
    "place_in_shared_memory",
    "set_strategy",
]
