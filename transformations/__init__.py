"""Transformations of SDFGs: redistributions, and distribution of einsum programs."""

from __future__ import annotations

import importlib
from typing import Any

from dace_redist.errors import remedies

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
    "lower_all": "stock",
    "optimize": "optimization",
    "place_in_shared_memory": "exchange",
    "set_strategy": "strategy",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'dace_redist.transformations' has no attribute {name!r}")
    with remedies(f"{__name__}.{name}"):
        value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
