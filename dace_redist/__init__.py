"""Fast redistribution of N-dimensional arrays across MPI ranks, for NumPy, DaCe, C and Fortran."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

if importlib.util.find_spec("dace_redist._core") is None:  # else Python says: most likely due to a circular import
    raise ImportError(
        f"{Path(__file__).parent} is the source of dace_redist, without its compiled _core, and found before an "
        "installed one: work in another folder, or pip install -e . there"
    )

from dace_redist._version import __version__ as __version__
from dace_redist.einsum.distributed import einsum as einsum  # not at its first use: the package has its name
from dace_redist.errors import remedies
from dace_redist.schedule import schedule as schedule  # likewise

_STUB = Path(__file__).with_suffix(".pyi").read_text().splitlines()
#: Modules of the public names, which are imported at their first use; the lines of the stub are their only list.
_HOMES = {words[3]: words[1] for words in map(str.split, _STUB) if words[:1] == ["from"]}
__all__ = sorted(set(_HOMES) - {"__version__"})
#: Public modules, likewise.
_MODULES = ("errors", "interop", "library_nodes", "strategies", "transformations")

_used_without_dace: dict[str, Any] = {}


def __getattr__(name: str) -> Any:
    used = _used_without_dace.get(name)
    if used is not None and "dace" not in sys.modules:
        return used
    if name in _MODULES:
        return importlib.import_module(f"dace_redist.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'dace_redist' has no attribute {name!r}")
    if "dace" in sys.modules:  # so that DaCe knows what the name means inside a program
        importlib.import_module("dace_redist.library_nodes")
    with remedies(f"dace_redist.{name}"):
        value = getattr(importlib.import_module(_HOMES[name]), name)
    (globals() if "dace" in sys.modules else _used_without_dace)[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, *_MODULES]


if hasattr(sys.modules.get("dace"), "program"):  # strategies are implementations of DaCe's own nodes from now on
    importlib.import_module("dace_redist.library_nodes")
