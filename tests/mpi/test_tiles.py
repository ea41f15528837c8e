"""
Relative positions of tiles of source and target, by every strategy, element by element.

The categories are those of Cao et al., Redistribution in PaRSEC: sections 3.2 and 8.3 (nine categories), 6.1 (random
owners) and 8.4 (scatter and gather).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import OPTIONS
from distributions import moved, owners_of

from dace_redist import Distribution, TiledDistribution, redistribute

SHAPE = (36, 36)
TILE = 5  # does not divide the shape
PARTS = {"whole": None, "displaced": ((3, 1), (0, 4), (31, 32))}


def under_one_tile(source: int, target: int, extent: int = SHAPE[0]) -> int:
    """Most source tiles that a target tile that begins with one of them lies on, along one dimension."""
    owners = np.arange(extent) // source
    return max(len(set(owners[begin : begin + target])) for begin in range(0, extent, target))


def matrices() -> dict[str, tuple[Any, Any]]:
    """Source and target of each kind, on 4 ranks."""
    small = Distribution(SHAPE, (2, 2), block=(TILE, TILE))
    made: dict[str, tuple[Any, Any]] = {}
    for rows in (1, 2, 3):
        for columns in (1, 2, 3):
            assert (under_one_tile(TILE, TILE * rows), under_one_tile(TILE, TILE * columns)) == (rows, columns)
            large = Distribution(SHAPE, (4, 1), block=(TILE * rows, TILE * columns))
            made[f"{rows} x {columns} source tiles in a target tile"] = small, large
            made[f"{rows} x {columns} target tiles in a source tile"] = large, small
    owners = [np.random.default_rng(seed).integers(0, 4, (8, 8)) for seed in (2873, 3872)]
    tiled = [TiledDistribution(SHAPE, (TILE, TILE), owner) for owner in owners]
    made["random owners"] = tiled[0], tiled[1]
    made["to random owners, larger tiles"] = small, TiledDistribution(SHAPE, (11, 12), owners[0][:4, :3])
    one_each = Distribution(SHAPE, (1, 4))
    made["scatter"], made["gather"] = (one_each, small), (small, one_each)
    root = Distribution(SHAPE, (1, 1), ranks=(3,))
    made["scatter from one rank"], made["gather to one rank"] = (root, small), (small, root)
    return made


def elements(distribution: Any, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the elements that a rank holds, in the order of its local array, straight from the owners."""
    mine = [index for index in np.ndindex(SHAPE) if rank in owners_of(distribution, index)]
    if isinstance(distribution, TiledDistribution):
        mine.sort(key=lambda index: (index[0] // distribution.tile[0], index[1] // distribution.tile[1], index))
    rows, columns = np.array(mine, int).reshape(-1, 2).T.reshape(2, *distribution.local_shape(rank))
    return rows, columns


@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[4], timeout=400)
def test_every_category(comm: Any) -> None:
    A = np.arange(1.0, 1 + SHAPE[0] * SHAPE[1]).reshape(SHAPE)
    wrong = []
    for name, (source, target) in matrices().items():
        here, there = (elements(side, comm.rank) for side in (source, target))
        for part, region in PARTS.items():
            wanted = moved(A, -A, None, region)[there]
            for strategy in OPTIONS:
                out = -A[there]
                redistribute(A[here], source, target, comm=comm, out=out, region=region, strategy=strategy)
                if not np.array_equal(out, wanted):
                    wrong.append(f"{name}, {part}, {strategy}, rank {comm.rank}: {out.tolist()}")
    assert not wrong, wrong[0]
