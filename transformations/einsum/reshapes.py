"""Which axes of a tensor can be split such that each rank has the same elements under another shape."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

from dace_redist.transformations.einsum.reading import equal
from dace_redist.transformations.einsum.sizes import in_numbers


class SplitGroup(NamedTuple):
    """
    Neighbouring axes of one shape that together are neighbouring axes of another shape, split along the first of them.

    :param extent: What is split: the extent of the first axis where there are several.
    :param axes: The axis that is split, in either shape.
    :param inner: Elements of that axis for each of the ``extent``, in either shape.
    """

    extent: Any
    axes: tuple[int, int]
    inner: tuple[Any, Any]


def splittable(source: Sequence[Any], target: Sequence[Any], sizes: Mapping[str, int]) -> SplitGroup:
    """
    The axes that are best split.

    :param source: A shape, which may have symbols.
    :param target: Another one of as many elements.
    :param sizes: Values of the symbols.
    :raises ValueError: If there are none.
    """
    found = []
    ends = [
        (i, j)
        for i, j in product(range(len(source) + 1), range(len(target) + 1))
        if equal(math.prod(source[:i]), math.prod(target[:j]))
    ]
    chain = [(0, 0)]
    for i, j in ends:
        if i > chain[-1][0] and j > chain[-1][1]:
            chain.append((i, j))
    for (i, j), (k, m) in pairwise(chain):
        group = _group(source, target, range(i, k), range(j, m))
        if group is not None:
            found.append(group)
    if not found and equal(math.prod(source), 1):
        return SplitGroup(1, (0, 0), (1, 1))
    if not found:
        raise ValueError(
            f"no axis can be split such that a rank has the same elements under the shapes {tuple(source)} and "
            f"{tuple(target)}: merge or divide whole axes, as in A.reshape(I, J * K)"
        )
    return max(found, key=lambda group: in_numbers([group.extent], sizes)[0])


def _group(source: Sequence[Any], target: Sequence[Any], first: range, second: range) -> SplitGroup | None:
    mine = [axis for axis in first if not equal(source[axis], 1)] or [first[0]]
    theirs = [axis for axis in second if not equal(target[axis], 1)] or [second[0]]
    if len(mine) > 1 < len(theirs):
        return None
    rows = source[mine[0]] if len(mine) > 1 else target[theirs[0]]
    inner = math.prod(source[axis] for axis in mine[1:]) if len(mine) > 1 else 1
    outer = math.prod(target[axis] for axis in theirs[1:]) if len(theirs) > 1 else 1
    return SplitGroup(rows, (mine[0], theirs[0]), (outer, inner))
