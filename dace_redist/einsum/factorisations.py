"""Process grids of a given number of ranks: factorisations of that number with one factor per index."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dace_redist.einsum.placement import Array, ceil_division


def useful_parts(extent: int, ranks: int) -> frozenset[int]:
    """
    Return the useful numbers of blocks of an axis: those for which no smaller number gives blocks as small.

    :param extent: Elements along the axis.
    :param ranks: The largest number of blocks.
    """
    extent = max(extent, 1)
    root = math.isqrt(extent)
    blocks = {*range(1, root + 1), *(ceil_division(extent, parts) for parts in range(1, root + 2))}
    return frozenset(parts for block in blocks if (parts := ceil_division(extent, block)) <= ranks)


def factorisations(number: int, allowed: Sequence[frozenset[int]]) -> Array:
    """
    Return all factorisations of a number with one factor per index: an array of shape (factorisations, indices).

    :param number: The product.
    :param allowed: Possible factors of each index.
    """
    divisors = _divisors(number)
    grids, rest = np.zeros((1, 0), np.int64), np.array([number], np.int64)
    for position, factors in enumerate(allowed):
        last = position == len(allowed) - 1
        rows, values = [], []
        for factor in sorted(factors.intersection(divisors)):
            fits = np.flatnonzero(rest == factor if last else rest % factor == 0)
            rows.append(fits)
            values.append(np.full(len(fits), factor, np.int64))
        if not rows:
            return np.zeros((0, len(allowed)), np.int64)
        row, value = np.concatenate(rows), np.concatenate(values)
        grids, rest = np.column_stack([grids[row], value]), rest[row] // value
    return grids if len(allowed) or number == 1 else grids[:0]


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})
