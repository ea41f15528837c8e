"""Rewrites of SDFGs that redistribute tensors."""

from dace_redist.transformations.lower_redistribute import LowerRedistribute, lower_all
from dace_redist.transformations.set_redistribute_strategy import SetRedistributeStrategy, set_strategy

__all__ = ["LowerRedistribute", "SetRedistributeStrategy", "lower_all", "set_strategy"]
