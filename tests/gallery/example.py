"""Arguments and expected results of a program of the gallery."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import dace
import numpy as np
from results import by_numpy

Arguments = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Example:
    """
    A program of the gallery.

    :param program: As its users write it.
    :param sizes: Values of its symbols: they divide by few numbers of ranks.
    :param given: Makes arguments from sizes and a random generator; those left out are random.
    :param positive: True if random arguments are positive.
    :param refused: Pattern of the error, for a program that cannot be distributed.
    """

    program: Any
    sizes: dict[str, int]
    given: Callable[[dict[str, int], Any], Arguments] = lambda sizes, rng: {}
    positive: bool = False
    refused: str = ""

    @property
    def name(self) -> str:
        return str(self.program.f.__name__)

    def arguments(self) -> Arguments:
        """Return the arguments, equal at each call."""
        rng = np.random.default_rng(len(self.name))
        made = {}
        for name, annotation in self.program.f.__annotations__.items():
            if isinstance(annotation, dace.data.Array):
                shape = [int(dace.symbolic.evaluate(n, self.sizes)) for n in annotation.shape]
                made[name] = rng.uniform(0.1 if self.positive else -1, 1, shape)
                made[name] = made[name].astype(annotation.dtype.as_numpy_dtype())
        return {**made, **self.given(self.sizes, rng)}

    def expected(self) -> Arguments:
        """Return NumPy's results: all arguments afterwards, and return values by their names in DaCe."""
        return by_numpy(self.program.f, self.arguments(), self.sizes)


def positive_definite(n: int, rng: Any) -> Any:
    """Return a symmetric matrix with eigenvalues between 0.5 and 2.5."""
    Q, _ = np.linalg.qr(rng.uniform(-1, 1, (n, n)))
    return Q @ np.diag(np.linspace(0.5, 2.5, n) ** 1.5) @ Q.T


def orthonormal(n: int, k: int, rng: Any) -> Any:
    """Return a matrix with orthonormal columns."""
    return np.linalg.qr(rng.uniform(-1, 1, (n, k)))[0]
