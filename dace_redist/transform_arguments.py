"""Arguments of a transform, checked: axes, region, reshape and factors."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dace_redist.integers import integers


class Region(NamedTuple):
    """
    Box of the source tensor that goes to a box of the target tensor.

    :param source_offset: First index of the box in the source, in the source's axes.
    :param target_offset: First index of the box in the target, in the target's axes.
    :param shape: Extents of the box, in the source's axes.
    """

    source_offset: tuple[Any, ...]
    target_offset: tuple[Any, ...]
    shape: tuple[Any, ...]


def checked_axes(axes: Any, ndim: int) -> tuple[int, ...] | None:
    """Return a permutation of the axes; None if it is the identity, or not given."""
    if axes is None:
        return None
    listed = integers("axes", axes)
    normal = tuple(axis + ndim if isinstance(axis, int) and -ndim <= axis < 0 else axis for axis in listed)
    if sorted(normal) != list(range(ndim)):
        raise ValueError(f"axes must name each of the {ndim} dimensions once, got {listed}")
    return None if normal == tuple(range(ndim)) else normal


def checked_region(region: Any, ndim: int) -> Region | None:
    """Return the region of a redistribution; None if it is not given."""
    if region is None:
        return None
    try:
        parts = tuple(region)
    except TypeError:
        parts = ()
    if len(parts) != 3:
        raise TypeError(f"region must be (source_offset, target_offset, shape), got {region!r}")
    checked = [integers(f"region: {name}", part) for name, part in zip(Region._fields, parts, strict=True)]
    for name, part in zip(Region._fields, checked, strict=True):
        if len(part) != ndim:
            raise ValueError(f"region: {name} needs {ndim} entries, one per dimension, got {part}")
    return Region(*checked)


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
