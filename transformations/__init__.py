"""Transformations of SDFGs: redistributions, and distribution of einsum programs."""

from __future__ import annotations

import importlib
from typing import Any

#: Modules of the public names; each is loaded at its first use.
_MODULES = {
    "DistributeEinsum": "distribute",
    "FuseConversion": "redistribution.fuse_conversion",
    "FuseReduceBcast": "redistribution.fuse_reduction",
    "FuseRedistributes": "redistribution.fuse",
    "FuseTranspose": "redistribution.fuse",
    "JoinRedistributes": "redistribution.join",
    "LowerRedistribute": "redistribution.lower",
    "OverlapRedistribute": "redistribution.overlap",
    "PlaceInSharedMemory": "redistribution.place_in_shared_memory",
    "RelabelGrid": "redistribution.relabel_grid",
    "RemoveRedistribute": "redistribution.fuse",
    "SetRedistributeStrategy": "redistribution.set_strategy",
    "choose_strategies": "redistribution.choose_strategies",
    "lower_all": "redistribution.lower",
    "place_in_shared_memory": "redistribution.place_in_shared_memory",
    "set_strategy": "redistribution.set_strategy",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'dace_redist.transformations' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
