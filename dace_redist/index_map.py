"""Permuted axes and sub-tensors: maps of the source's indices to the target's. Start reading at: IndexMap."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dace_redist.distribution import integers


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


@dataclasses.dataclass(frozen=True)
class IndexMap:
    """
    Map of the elements that move to their indices in the target; made by :func:`index_map`.

    :param ndim: Dimensions of both tensors.
    :param axes: Source axis that each target axis comes from; None: they are in the same order.
    :param region: Box that moves; None: the whole tensor.
    """

    ndim: int
    axes: tuple[int, ...] | None = None
    region: Region | None = None

    @cached_property
    def encoded(self) -> tuple[Any, ...]:
        """Numbers for the library: none, the axes, or the axes and the three parts of the region."""
        if self.region is not None:
            return (*self.source_axes, *(number for part in self.region for number in part))
        return self.axes or ()

    @cached_property
    def encoded_array(self) -> npt.NDArray[np.int64]:
        """:attr:`encoded` as an array; all its numbers are known."""
        return np.array(self.encoded, np.int64)

    @property
    def source_axes(self) -> tuple[int, ...]:
        """Source axis of each target axis."""
        return self.axes or tuple(range(self.ndim))

    @property
    def target_axes(self) -> tuple[int, ...]:
        """Target axis of each source axis."""
        return tuple(map(self.source_axes.index, range(self.ndim)))

    def covers(self, target_shape: Sequence[int]) -> bool:
        """Check that every element of the target gets a value."""
        if self.region is None:
            return True
        extents = [self.region.shape[axis] for axis in self.source_axes]
        return 0 in target_shape or list(target_shape) == extents

    def __str__(self) -> str:
        """Return text such as ``axes (1, 0), region of (3, 4) from (0, 2) to (1, 1)``; nothing for the identity."""
        parts = [] if self.axes is None else [f"axes {self.axes}"]
        if self.region is not None:
            source, target, shape = self.region
            parts.append(f"region of {shape} from {source} to {target}")
        return ", ".join(parts)


def index_map(axes: Any, region: Any, ndim: int) -> IndexMap:
    """
    Return a map between tensors of ``ndim`` dimensions; the library checks it against their extents.

    :param axes: As of ``numpy.transpose``: the source axis that each target axis comes from; negative ones count from
        the end. None: the same order.
    :param region: (source_offset, target_offset, shape), ``ndim`` numbers each. None: the whole tensor.
    :raises TypeError: If one of them is not a list of integers.
    :raises ValueError: If the axes are not a permutation, or a part of the region has another number of entries.
    """
    return IndexMap(ndim, _checked_axes(axes, ndim), _checked_region(region, ndim))


def _checked_axes(axes: Any, ndim: int) -> tuple[int, ...] | None:
    if axes is None:
        return None
    listed = integers("axes", axes)
    normal = tuple(axis + ndim if isinstance(axis, int) and -ndim <= axis < 0 else axis for axis in listed)
    if sorted(normal) != list(range(ndim)):
        raise ValueError(f"axes must name each of the {ndim} dimensions once, got {listed}")
    return None if normal == tuple(range(ndim)) else normal


def _checked_region(region: Any, ndim: int) -> Region | None:
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
