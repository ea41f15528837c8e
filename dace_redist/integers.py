"""Numbers as callers and the environment pass them, and their checks: sizes, axes, shapes, factors and times."""

from __future__ import annotations

import math
import numbers
import os
import re
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

#: An amount of memory: a number of bytes, or a text such as ``"4GiB"``.
AnyBytes = AnyInt | str

_MAX_BYTES = 2**63 - 1  # bytes are counted as 64-bit integers
_UNITS = {"": 1, "b": 1} | {
    f"{prefix}{unit}": base**power
    for power, prefix in enumerate("kmgt", 1)
    for unit, base in (("ib", 1024), ("b", 1000), ("", 1024))
}


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


def at_least(least: int, name: str, value: Any) -> int:
    """Return ``value`` as an integer; a ValueError if it is less than ``least``, a TypeError if it is none."""
    number = size(name, value)
    if not isinstance(number, int):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number


def checked_memory_bytes(value: Any) -> int | None:
    """Return a bound of memory in bytes: of ``"4GiB"``, ``"500MB"`` or an integer of at least 1; None for None."""
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+)(?:\.(\d+))?\s*(\w*)\s*", value, re.ASCII)
        if found is None or found[3].lower() not in _UNITS:
            raise ValueError(f"memory_bytes must be an amount such as 4GiB, 500MB or 1000000, got {value!r}")
        whole, fraction = found[1], found[2] or ""
        value = int(whole + fraction) * _UNITS[found[3].lower()] // 10 ** len(fraction)
    return None if value is None else at_least(1, "memory_bytes", value)


def checked_nbytes(name: str, shape: Sequence[int], itemsize: int) -> int:
    """Return the bytes of a tensor; a ValueError if 64 bits do not hold them."""
    nbytes = math.prod(shape) * itemsize
    if nbytes > _MAX_BYTES:
        raise ValueError(f"{name} of shape {tuple(shape)} would have {nbytes:.3g} bytes: give smaller sizes")
    return nbytes


def checked_axes(axes: Any, ndim: int) -> tuple[int, ...] | None:
    """Return a permutation of the axes; None if it is the identity, or not given."""
    if axes is None:
        return None
    listed = integers("axes", axes)
    normal = tuple(axis + ndim if isinstance(axis, int) and -ndim <= axis < 0 else axis for axis in listed)
    if sorted(normal) != list(range(ndim)):
        raise ValueError(f"axes must name each of the {ndim} dimensions once, got {listed}")
    return None if normal == tuple(range(ndim)) else normal


def checked_reshape(reshape: Any, target_shape: Sequence[Any]) -> tuple[Any, ...] | None:
    """
    Return the shape of a reshape, of which one extent may be -1; None if there is none.

    :raises TypeError: If it is not a list of integers.
    :raises ValueError: If it is not the target's shape.
    """
    if reshape is None:
        return None
    given, shape = integers("reshape", reshape), tuple(target_shape)
    if given.count(-1) > 1 or any(isinstance(extent, int) and extent < -1 for extent in given):
        raise ValueError(f"reshape must be extents of at least 0, and at most one -1, got {given}")
    if len(given) != len(shape) or any(a not in (-1, b) for a, b in zip(given, shape, strict=True)):
        raise ValueError(f"reshape must be the shape of the target, {shape}, got {given}")
    return shape


def checked_factor(name: str, factor: Any) -> complex:
    """Return a factor of elements, a real number if it is one."""
    if type(factor) in (int, float) and abs(factor) < 1 << 53:
        return float(factor)
    if not isinstance(factor, numbers.Number | np.bool_):
        raise TypeError(f"{name} must be a number, got {factor!r}")
    try:
        value = complex(factor)  # type: ignore[arg-type]
        is_held = not isinstance(factor, numbers.Integral) or int(value.real) == factor
    except OverflowError:
        is_held = False
    if not is_held:
        raise ValueError(f"{name} must be a number that float64 can hold, got {factor}")
    return value if value.imag else value.real


def environment_seconds(name: str, default: float) -> float:
    """Return the seconds that an environment variable gives; a ValueError if it is not a number of at least 0."""
    given = os.environ.get(name, default)
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{name} must be a number of seconds, at least 0, got {given!r}")
    return seconds
