"""What a tuned choice is for: a key that is the same for every way of writing the same redistribution."""

from __future__ import annotations

import hashlib
import math

import numpy as np

from dace_redist.distribution import AnyDistribution, Distribution
from dace_redist.schedule import Schedule


def schedule_key(moves: Schedule) -> str:
    """
    Names a redistribution by who owns what before and after, and by the size of an element.

    The key is the same in every process and for every way to write the distributions, see :func:`canonical`.

    :param moves: Its schedule; all sizes are numbers.
    :return: 32 hexadecimal digits.
    """
    digest = hashlib.blake2b(str(moves.itemsize).encode(), digest_size=16)
    for distribution in (moves.source, moves.target):
        words = np.asarray(canonical(distribution).words, dtype="<i8")
        digest.update(b"|" + words.tobytes())
    return digest.hexdigest()


def canonical(distribution: AnyDistribution) -> AnyDistribution:
    """
    The distribution in the one form that all its ways of writing have in common.

    Grid axes of one coordinate are left out, blocks are numbers where they are of one size, and ranks are left out
    where they count up from 0. Tiles stay as they are.

    :param distribution: All its sizes are numbers.
    :return: A distribution in which every rank holds the same elements in the same order.
    """
    if not isinstance(distribution, Distribution):
        return distribution
    _ = distribution.core  # a symbol is an error here
    kept = [axis for axis, extent in enumerate(distribution.grid) if extent > 1]
    number = {axis: position for position, axis in enumerate(kept)}
    parts = [1 if dim is None else distribution.grid[dim] for dim in distribution.dims]
    blocks = zip(distribution.shape, parts, distribution.block, strict=True)
    size = math.prod(distribution.grid)
    return Distribution(
        distribution.shape,
        [distribution.grid[axis] for axis in kept] or [1],
        dims=[None if dim is None else number.get(dim) for dim in distribution.dims],
        block=[_canonical_block(*block) for block in blocks],
        ranks=None if distribution.ranks == tuple(range(size)) else distribution.ranks,
        pins=[distribution.pins[axis] for axis in kept] or [None],
    )


def _canonical_block(extent: int, parts: int, block: int | str | None) -> int | str:
    """Elements per block; ``"balanced"`` only where the parts are not those of blocks of equal size."""
    if parts == 1:
        return extent
    equal = -(-extent // parts)
    if block is None:
        return equal
    if isinstance(block, str):
        last_is_short = extent % parts == parts - 1
        return equal if extent % parts == 0 or last_is_short or extent < parts else block
    return min(block, extent)
