"""Transformations of SDFGs: redistributions, and distribution of einsum programs."""

from __future__ import annotations

import importlib
from typing import Any

#: Modules of the public names; each is loaded at its first use.
_MODULES = {
    "DistributeEinsum": "distribute",
    "FuseConversion": "convert",
    "FuseReduceBcast": "reduce",
    "FuseRedistributes": "fuse",
    "FuseTranspose": "fuse",
    "JoinRedistributes": "exchange",
    "LowerRedistribute": "stock",
    "OptimizeRedistributions": "optimization",
    "OverlapRedistribute": "exchange",
    "PlaceInSharedMemory": "exchange",
    "RemoveRedistribute": "fuse",
    "choose_strategies": "strategy",
    "lower_all": "stock",
    "optimize": "optimization",
    "place_in_shared_memory": "exchange",
    "set_strategy": "strategy",
}
__all__ = list(_MODULES)

#: What to use instead of names of earlier versions.
_REMOVED = {"RelabelGrid": "renumber the ranks of distributions by dace_redist.relabel"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        instead = f": removed, {_REMOVED[name]}" if name in _REMOVED else ""
        raise AttributeError(f"module 'dace_redist.transformations' has no attribute {name!r}{instead}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
