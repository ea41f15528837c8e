"""A program with its arguments and NumPy's results; and on simulated ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import dace
import numpy as np
from distributed_simulation import SimulatedRanks
from results import Results, by_numpy, check

from dace_redist import distribute

#: Types of arguments that are numbers of Python.
PYTHON = (int, float, complex)


@dataclasses.dataclass(frozen=True)
class Program:
    """
    A program for :func:`dace_redist.distribute`.

    :param program: As its users write it.
    :param sizes: Values of its symbols: in the gallery they divide by few numbers of ranks.
    :param given: Makes arguments from sizes and a random generator; those left out are random.
    :param positive: True if random arguments are positive.
    :param refused: Pattern of the error, for a program that cannot be distributed.
    """

    program: Any
    sizes: Mapping[str, int]
    given: Callable[[Mapping[str, int], Any], Results] = lambda sizes, rng: {}
    positive: bool = False
    refused: str = ""

    @property
    def name(self) -> str:
        return str(self.program.f.__name__)

    def with_sizes(self, **sizes: int) -> Program:
        return dataclasses.replace(self, sizes={**self.sizes, **sizes})

    def arguments(self) -> Results:
        """Return the arguments, equal at each call."""
        rng = np.random.default_rng(len(self.name))
        made = arguments(self.program, self.sizes, rng, 0.1 if self.positive else -1)
        return {**made, **self.given(self.sizes, rng)}

    def expected(self) -> Results:
        """Return NumPy's results: all arguments afterwards, and return values by their names in DaCe."""
        return by_numpy(self.program.f, self.arguments(), self.sizes)


def arguments(program: Any, sizes: Mapping[str, Any], seed: Any = 0, least: float = -1) -> Results:
    """Return random arguments of a program: numbers up to 1, or integers from -3 to 3."""
    rng, made = np.random.default_rng(seed), {}
    for name, kind in program.f.__annotations__.items():
        array = isinstance(kind, dace.data.Data)
        shape = [int(dace.symbolic.evaluate(extent, sizes)) for extent in kind.shape] if array else []
        dtype = np.dtype((kind.dtype if array else kind).as_numpy_dtype() if kind not in PYTHON else kind)
        if dtype.kind == "i":
            made[name] = rng.integers(-3, 4, shape).astype(dtype)[()]
        else:
            value = rng.uniform(least, 1, shape) + (1j * rng.uniform(-1, 1, shape) if dtype.kind == "c" else 0)
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


def positive_definite(n: int, rng: Any) -> Any:
    """Return a symmetric matrix with eigenvalues between 0.5 and 2.5."""
    Q, _ = np.linalg.qr(rng.uniform(-1, 1, (n, n)))
    return Q @ np.diag(np.linspace(0.5, 2.5, n) ** 1.5) @ Q.T


def orthonormal(n: int, k: int, rng: Any) -> Any:
    """Return a matrix with orthonormal columns."""
    return np.linalg.qr(rng.uniform(-1, 1, (n, k)))[0]
