"""Fast redistribution of N-dimensional arrays across MPI ranks, for NumPy, DaCe, C and Fortran."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from typing import Any

from dace_redist._version import __version__ as __version__
from dace_redist.schedule import schedule as schedule  # not at its first use: the module has its name

#: Modules of the public names, which are imported at their first use; read from the stub, their only list.
_HOMES = {
    alias.name: str(line.module)
    for line in ast.parse(Path(__file__).with_suffix(".pyi").read_text()).body
    if isinstance(line, ast.ImportFrom)
    for alias in line.names
}
__all__ = sorted(set(_HOMES) - {"__version__"})

_used_without_dace: dict[str, Any] = {}


def __getattr__(name: str) -> Any:
    used = _used_without_dace.get(name)
    if used is not None and "dace" not in sys.modules:
        return used
    if name in ("library_nodes", "transformations"):
        return importlib.import_module(f"dace_redist.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'dace_redist' has no attribute {name!r}")
    if "dace" in sys.modules:  # so that DaCe knows what the name means inside a program
        importlib.import_module("dace_redist.library_nodes")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    (globals() if "dace" in sys.modules else _used_without_dace)[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


if hasattr(sys.modules.get("dace"), "program"):  # strategies are implementations of DaCe's own nodes from now on
    importlib.import_module("dace_redist.library_nodes")
