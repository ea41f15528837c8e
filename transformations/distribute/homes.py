"""Homes of tensors of which boxes are read or written, and of those boxes. Start reading at: homes_of_boxes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial
from typing import TypeAlias

from networkx.utils import UnionFind

from dace_redist.einsum.grids import LOAD_TOLERANCE
from dace_redist.einsum.placement import Placement, ceil_division
from dace_redist.einsum.statement import Statement, repeats_in
from dace_redist.transformations.distribute.ir import Axis, Body, Slice, axes_alike, operations

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

#: Minimum share of an axis that a box must span to be split as its tensor.
MIN_SHARE = 0.5
#: Maximum share of boxes that may move; where more would, the planner is free.
MAX_SHARE = 0.5


def homes_of_boxes(
    body: Body, shapes: Shapes, whole: Mapping[str, Collection[int]], ranks: int, known: Collection[str] = ()
) -> dict[str, Placement]:
    """
    Return placements of tensors of which boxes are used, such that little of the boxes moves, and of large boxes.

    Each is split along one axis: the halo of a stencil is then a margin. Operands and results of contractions are left
    to the planner.

    :param whole: Axes of each tensor that are not split.
    :param known: Tensors whose homes or grids are given.
    """
    slices = [one for one in operations(body) if isinstance(one, Slice) and shapes[one.whole]]
    statements = [one for one in operations(body) if isinstance(one, Statement)]
    planned = {name for one in statements if not one.elementwise for name in one.names}
    alike, used, own, moved, uneven = _alike(body), Counter[str](), Counter[Axis](), Counter[Axis](), set[Axis]()
    for one in slices:
        extents = one.extents(shapes)
        elements = repeats_in(one.place["loops"]) * math.prod(extents)
        used[one.whole] += elements
        for axis, extent in enumerate(shapes[one.whole]):
            spans = extents[axis] / max(extent, 1) if axis in one.box.kept else 0.0
            own[one.whole, axis] += elements * (1 - spans)
    for name in sorted(used):
        loads = [ceil_division(extent, ranks) * ranks / max(extent, 1) for extent in shapes[name]]
        together: dict[Axis, float] = {}
        for axis, load in enumerate(loads):
            group = alike[name, axis]
            together[group] = min(together.get(group, math.inf), own[name, axis])
            uneven |= {group} if load > (1 + LOAD_TOLERANCE) * min(loads) else set()
        moved.update(together)

    def cost(name: str, axis: int) -> tuple[bool, float, float]:
        group = alike[name, axis]
        return group in uneven, moved[group], own[name, axis]

    free = {name: [axis for axis in range(len(shapes[name])) if axis not in whole[name]] for name in used}
    wholes = sorted(name for name in used.keys() - planned - {*known} if free[name])
    best = {name: min(free[name], key=partial(cost, name)) for name in wholes}
    axes = {name: axis for name, axis in best.items() if own[name, axis] < MAX_SHARE * used[name]}
    for one in slices:
        axis = axes.get(one.whole)
        if shapes[one.part] and axis in one.box.kept and one.part not in known:
            at = one.box.kept.index(axis)
            if at not in whole[one.part] and shapes[one.part][at] >= MIN_SHARE * shapes[one.whole][axis]:
                axes.setdefault(one.part, at)
    return {name: in_blocks(shapes[name], ranks, axis) for name, axis in axes.items()}


def _alike(body: Body) -> UnionFind:
    """Return groups of axes of tensors, each by name and number, that should be split alike."""
    groups = UnionFind()
    for one in operations(body):
        for pair in axes_alike(one) if isinstance(one, Slice) or getattr(one, "elementwise", False) else ():
            groups.union(*pair)
    return groups


def in_blocks(shape: tuple[int, ...], ranks: int, split: int | None = None) -> Placement:
    """Return the placement of a tensor split along an axis; default: the longest one."""
    split = shape.index(max(shape)) if shape and split is None else split
    dims = tuple(0 if axis == split else None for axis in range(len(shape)))
    return Placement((ranks,), dims, (1,) * len(shape), tuple(range(ranks)))
