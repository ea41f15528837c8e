"""Parts of tensors: boxes that are copied to tensors of their own or from them, and tensors in other shapes."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters
from typing import Any, NamedTuple

import numpy as np
from dace import SDFG, data, symbolic

from dace_redist.library_nodes.node import simplified
from dace_redist.transformations.einsum.reading import SourceLocation, equal, logical_shape
from dace_redist.transformations.einsum.steps import Reshape, Slice, Step


class Box(NamedTuple):
    """
    A box of an array.

    :param offsets: First index along each axis.
    :param extents: Elements along each axis.
    :param kept: Axes that a tensor of its elements has; along the others it has one element.
    """

    offsets: tuple[Any, ...]
    extents: tuple[Any, ...]
    kept: tuple[int, ...]

    @property
    def shape(self) -> tuple[Any, ...]:
        """Shape of a tensor of its elements."""
        return tuple(self.extents[axis] for axis in self.kept)

    def is_whole(self, array: data.Data) -> bool:
        """Whether it is the whole array."""
        starts = all(equal(offset, 0) for offset in self.offsets)
        return starts and all(equal(extent, n) for extent, n in zip(self.extents, array.shape, strict=True))


def box_of(subset: Any, array: data.Data, location: SourceLocation, ndim: int | None = None) -> Box:
    """
    The box that a memlet covers.

    :param subset: Of the memlet.
    :param array: Its array.
    :param location: Where it stands.
    :param ndim: Dimensions wanted; None: axes of which one element of several is taken are left out.
    :raises ValueError: If it is no box.
    """
    ranges = list(subset.ndrange())
    if any(step != 1 for _, _, step in ranges):
        location.refuse(f"it takes [{subset}], a slice with a step; only slices without one can be distributed")
    offsets = tuple(begin for begin, _, _ in ranges)
    extents = tuple(simplified(end - begin + 1) for begin, end, _ in ranges)
    spare = [axis for axis, n in enumerate(extents) if equal(n, 1)]
    if ndim is None:
        dropped = {axis for axis in spare if not equal(array.shape[axis], 1)}
    else:  # of axes of one element those of which there are more in the array first
        spare.sort(key=lambda axis: equal(array.shape[axis], 1))
        dropped = set(spare[: max(0, len(ranges) - ndim)])
    return Box(offsets, extents, tuple(axis for axis in range(len(ranges)) if axis not in dropped))


def read_part(sdfg: SDFG, name: str, box: Box, location: SourceLocation) -> Step:
    """A step that copies a box of a tensor to a new one, its result."""
    array = sdfg.arrays[name]
    changing = {getattr(region, "loop_variable", "") for region in sdfg.all_control_flow_regions()}
    changing |= {name for edge in sdfg.all_interstate_edges() for name in edge.data.assignments}
    if changing & {symbol for extent in box.extents for symbol in symbolic.symlist(extent)}:
        location.refuse(
            f"the extents {box.extents} of a slice of {name} change while the program runs; take the whole axis, or "
            "loop over its indices"
        )
    made = sdfg.add_temp_transient(box.shape or [1], array.dtype)[0]
    return _moving(sdfg, location, str(made), _slice(name, box, str(made), written=False))


def written_part(sdfg: SDFG, name: str, box: Box, value: str, location: SourceLocation) -> Step:
    """A step that copies a tensor to a box of another one."""
    return _moving(sdfg, location, name, _slice(name, box, value, written=True))


def _slice(name: str, box: Box, other: str, written: bool) -> Slice:
    scalar = len(box.kept) == 1 and equal(box.shape[0], 1)
    return Slice(name, box.offsets, box.extents, () if scalar else box.kept, other, written)


def reshaped(sdfg: SDFG, source: str, target: str, location: SourceLocation) -> Step:
    """A step that gives the elements of a tensor another shape."""
    if sdfg.arrays[source].dtype != sdfg.arrays[target].dtype:
        location.refuse(f"it takes the bytes of {source} for elements of another type")
    for name in (source, target):
        array = sdfg.arrays[name]
        strides = np.cumprod([1, *array.shape[:0:-1]])[::-1] if array.shape else []
        if any(n != 1 and not equal(a, b) for a, b, n in zip(array.strides, strides, array.shape, strict=True)):
            location.refuse(f"{name} has not NumPy's default order of elements, so it cannot be reshaped")
    return _moving(sdfg, location, target, Reshape(source))


def _moving(sdfg: SDFG, location: SourceLocation, result: str, moved: Slice | Reshape) -> Step:
    indices = ascii_letters[: len(logical_shape(sdfg.arrays[result]))]
    statement = location.statement((indices,), (result,), indices, result, elementwise=True)
    return Step(statement, moved=moved)


def same_shape(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether two shapes are the same whatever the symbols."""
    return len(first) == len(second) and all(map(equal, first, second))
