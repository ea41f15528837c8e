"""Reading a distributed array from an HDF5 file, against each rank reading its own hyperslab."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from mpi4py import MPI

from comparisons.comparison import Comparison, UnsuitableError
from dace_redist import DistributedArray, Distribution, load, save
from dace_redist.mpi.collective import together

DTYPE = np.dtype("f4")
GRID = (2, 2)


def own_hyperslab(path: Path, target: Distribution, rank: int) -> np.ndarray:
    """Read a rank's blocks of equal length by one call of HDF5."""
    import h5py

    local = np.empty(target.local_shape(rank), DTYPE)
    coordinates = [int(c) for c in np.unravel_index(rank, GRID)]
    block = tuple(int(b) for b in target.block)
    stride = tuple(b * p for b, p in zip(block, GRID, strict=True))
    count = tuple(n // s for n, s in zip(target.shape, stride, strict=True))
    with h5py.File(path, "r") as file:
        dataset = file["data"].id
        selected = dataset.get_space()
        selected.select_hyperslab(
            tuple(c * b for c, b in zip(coordinates, block, strict=True)), count, stride=stride, block=block
        )
        dataset.read(h5py.h5s.create_simple(local.shape), selected, local)
    return local


def read(comm: MPI.Intracomm, shape: tuple[int, ...]) -> Iterator[Comparison]:
    if comm.size != 4 or len(shape) != 2 or any(extent % 128 for extent in shape):
        raise UnsuitableError("needs 4 ranks, and 2 lengths that are multiples of 128")
    targets = {
        "2 x 2 blocks": Distribution(shape, GRID, block=[n // p for n, p in zip(shape, GRID, strict=True)]),
        "block-cyclic 64": Distribution.block_cyclic(shape, GRID, 64),
    }
    with tempfile.TemporaryDirectory() as own:  # that of rank 0 is used
        path = Path(comm.bcast(own)) / "array.h5"
        rows = Distribution(shape, (comm.size,))
        part = np.random.default_rng(comm.rank).random(rows.local_shape(comm.rank), DTYPE)
        save(path, DistributedArray(part, rows, comm))
        for what, target in targets.items():
            ways = {
                "load": lambda target=target: load(path, target, comm=comm).local,
                "own hyperslab": lambda target=target: own_hyperslab(path, target, comm.rank),
            }
            first, second = (way() for way in ways.values())
            with together(comm):
                assert np.array_equal(first, second), "load and own hyperslab do not agree"
            yield Comparison(what, ways)
        comm.barrier()
