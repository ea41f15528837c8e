"""Random distributions of which every rank has one local array of known dimensions, as DaCe programs need."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import numpy as np

from dace_redist import BoxDistribution, Distribution, TiledDistribution

RANKS = 4
GRIDS = ((4,), (3,), (2,), (2, 2), (2, 2), (1, 4), (4, 1), (2, 1))


def random_distribution(rng: random.Random, shape: tuple[int, ...], count: int = RANKS) -> Any:
    """Return blocks over ranks, with replicas, pins or margins where there are such, or tiles, or boxes."""
    kind, ndim = rng.random(), len(shape)
    if kind < 0.1:
        owners = np.reshape(rng.choices(range(count), k=math.prod(shape)), shape)
        return TiledDistribution(shape, (1,) * ndim, owners)
    if kind < 0.2:
        cut, rest = rng.randint(1, shape[0] - 1), shape[1:]
        boxes = [((0,) * ndim, (cut, *rest)), ((cut, *(0 for _ in rest)), (shape[0] - cut, *rest))]
        return BoxDistribution(shape, boxes, rng.sample(range(count), 2))
    grid = rng.choice([one for one in GRIDS if math.prod(one) <= count])
    dims = rng.sample([*range(len(grid)), *[None] * ndim], ndim) if kind < 0.6 else None
    if dims is None and len(grid) > ndim:
        dims = [*range(ndim)]
    block = [rng.choice(("balanced", "ceil", 1, 2)) for _ in shape] if kind < 0.5 else "balanced"
    ranks = rng.sample(range(count), math.prod(grid)) if rng.random() < 0.5 else None
    plain = Distribution(shape, grid, dims=dims, block=block, ranks=ranks)
    if plain.replicas > 1 and rng.random() < 0.3:
        return first_replica(plain)
    return dataclasses.replace(plain, halo=1, periodic=rng.random() < 0.5) if kind > 0.8 and has_room(plain) else plain


def has_room(distribution: Distribution) -> bool:
    """Return True if all parts have elements for margins."""
    return all(all(distribution.local_shape(rank)) for rank in distribution.rank_grid().flat)


def first_replica(distribution: Distribution) -> Distribution:
    """Return the distribution without the other replicas."""
    axes = enumerate(distribution.pins)
    return dataclasses.replace(distribution, pins=[0 if axis not in distribution.dims else pin for axis, pin in axes])


def partial_results(distribution: Any) -> int:
    """Return the number of replicas of blocks, which may be partial results."""
    blocks = isinstance(distribution, Distribution) and not any(distribution.halo)
    return int(distribution.replicas) if blocks else 1
