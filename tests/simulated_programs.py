"""Programs on simulated ranks, compared with NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dace
import numpy as np
from distributed_simulation import SimulatedRanks
from results import Results, by_numpy, check

from dace_redist import distribute

#: Types of arguments that are numbers of Python.
PYTHON = (int, float, complex)


def arguments(program: Any, sizes: Mapping[str, Any], seed: int = 0) -> Results:
    """Return random arguments of a program: numbers between -1 and 1, or integers from -3 to 3."""
    rng, made = np.random.default_rng(seed), {}
    for name, kind in program.f.__annotations__.items():
        array = isinstance(kind, dace.data.Data)
        shape = [int(dace.symbolic.evaluate(extent, sizes)) for extent in kind.shape] if array else []
        dtype = np.dtype((kind.dtype if array else kind).as_numpy_dtype() if kind not in PYTHON else kind)
        if dtype.kind == "i":
            made[name] = rng.integers(-3, 4, shape).astype(dtype)[()]
        else:
            value = rng.uniform(-1, 1, shape) + (1j * rng.uniform(-1, 1, shape) if dtype.kind == "c" else 0)
            made[name] = np.asarray(value).astype(dtype)[()]
        if kind in PYTHON:
            made[name] = kind(made[name])
    return made


def sizes_of(program: Any, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of the symbols in a program's arguments."""
    kinds = program.f.__annotations__.values()
    used = {str(symbol) for kind in kinds for symbol in getattr(kind, "free_symbols", ())}
    return {name: size for name, size in sizes.items() if name in used}


def simulate(program: Any, ranks: int, sizes: Mapping[str, Any], **tolerances: float) -> Any:
    """Compare all results of a program with NumPy; return the distributed program."""
    given, distributed = arguments(program, sizes), distribute(program, ranks, sizes)
    found = SimulatedRanks(distributed).run(**given)
    check(found, by_numpy(program.f, given, sizes), given, f"on {ranks} ranks", **tolerances)
    return distributed
