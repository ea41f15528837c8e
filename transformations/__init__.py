"""Rewrites of SDFGs that redistribute tensors."""

from dace_redist.transformations.choose_redistribute_strategies import choose_strategies
from dace_redist.transformations.lower_redistribute import LowerRedistribute, lower_all
from dace_redist.transformations.set_redistribute_strategy import SetRedistributeStrategy, set_strategy

__all__ = ["LowerRedistribute", "SetRedistributeStrategy", "choose_strategies", "lower_all", "set_strategy"]
