"""Integers and other numbers as callers pass them, and their checks."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

#: An extent or grid size: a number, or a symbol of a DaCe program (known when the program runs).
Size = Any
Sizes = Sequence[Size] | npt.NDArray[np.integer[Any]]

#: Numbers as callers pass them: of Python or of NumPy.
AnyInt = int | np.integer[Any]
AnyInts = Sequence[AnyInt] | npt.NDArray[np.integer[Any]]
AnyNumber = complex | np.number[Any]


def integers(name: str, values: Any, optional: bool = False) -> tuple[Size, ...]:
    """Return ``values`` as a tuple of integers or symbols, and Nones if ``optional``."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence | np.ndarray):
        raise TypeError(f"{name} must be a sequence of integers{' and None' if optional else ''}, got {values!r}")
    if set(map(type, values)) == {int} and -(2**63) <= min(values) and max(values) < 2**63:  # as lists of many ranks
        return tuple(values)
    return tuple(None if optional and v is None else size(f"{name}[{i}]", v) for i, v in enumerate(values))


def size(name: str, value: Any) -> Size:
    """Return ``value`` as an integer of 64 bits, or as a symbol."""
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if isinstance(value, int | np.integer):
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{name} must fit 64 bits, got {value}")
        return int(value)
    if hasattr(value, "free_symbols"):  # SymPy, and with it DaCe's symbols, without importing either
        return int(value) if value.is_Integer else value
    raise TypeError(f"{name} must be an integer, got {value!r}")


def check_memory_bytes(value: Any) -> None:
    """Raise a TypeError for a bound of memory that is not an integer."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"memory_bytes must be a number of bytes, got {value!r}")
