"""
Files, and exchanges of many arrays by name, against the way without this package.

Files lie in the folder of ``TMPDIR``; those of the other way are flushed to the disk, too.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

from comparisons.comparison import Comparison, UnsuitableError
from dace_redist import DistributedArray, Distribution, load, redistribute, save
from dace_redist.mpi.collective import together

Slices = tuple[slice, ...]
TENSORS = 12  # of a checkpoint
DTYPE, GRID = np.dtype("f4"), (2, 2)  # of the array that is read


@contextlib.contextmanager
def _folder(comm: MPI.Intracomm) -> Iterator[str]:
    """Make a folder for all ranks."""
    with tempfile.TemporaryDirectory() as own:  # that of rank 0 is used
        yield comm.bcast(own)
        comm.barrier()


def _blocks(distribution: Distribution, rank: int) -> Iterator[tuple[Slices, Slices]]:
    """Yield the blocks of a rank: where they lie in the whole tensor and in its local array."""
    runs = []
    for index in distribution.global_index(rank):
        if not len(index):
            return
        cuts = [0, *(np.flatnonzero(np.diff(index) != 1) + 1).tolist(), len(index)]
        runs.append([(slice(index[a], index[b - 1] + 1), slice(a, b)) for a, b in zip(cuts, cuts[1:], strict=False)])
    for choice in np.ndindex(*map(len, runs)):
        yield tuple(zip(*(run[i] for run, i in zip(runs, choice, strict=True)), strict=True))  # type: ignore[misc]


def hdf5(comm: MPI.Intracomm, shape: tuple[int, ...]) -> Iterator[Comparison]:
    """
    Prepare 12 matrices in one file, written by all ranks and read by all but one.

    h5py's file allows one writer: one rank after another writes its hyperslabs, and all ranks read theirs.
    """
    if len(shape) != 2 or comm.size < 2 or comm.size % 2:
        raise UnsuitableError("needs an even number of ranks, and 2 lengths")
    cyclic = [Distribution.block_cyclic(shape, grid, 64) for grid in ((2, comm.size // 2), (1, comm.size - 1))]
    sides = {"rows": [Distribution(shape, (ranks, 1)) for ranks in (comm.size, comm.size - 1)]}
    with _folder(comm) as folder:
        for layout, (writing, reading) in (sides | {"block-cyclic 64": cyclic}).items():
            yield from _hdf5(comm, folder, layout, writing, reading)


def _hdf5(
    comm: MPI.Intracomm, folder: str, layout: str, writing: Distribution, reading: Distribution
) -> Iterator[Comparison]:
    import h5py

    names = [f"fields/{i}" for i in range(TENSORS)]
    arrays = {name: DistributedArray(np.ones(writing.local_shape(comm.rank)), writing, comm) for name in names}
    reads = comm.rank < comm.size - 1
    group, ours, other = comm.Split(reads), f"{folder}/ours.h5", f"{folder}/other.h5"

    def write_by_h5py() -> None:
        for rank in range(comm.size):
            if rank == comm.rank:
                with h5py.File(other, "a" if rank else "w") as file:
                    for name in names:
                        dataset = file.require_dataset(name, writing.shape, "f8", exact=True)
                        for there, here in _blocks(writing, rank):
                            dataset[there] = arrays[name].local[here]
                if rank == comm.size - 1:
                    with open(other, "rb") as raw:
                        os.fsync(raw.fileno())
            comm.barrier()

    def read() -> None:
        if reads:
            load(ours, dict.fromkeys(names, reading), comm=group)

    def read_by_h5py() -> None:
        if reads:
            with h5py.File(other) as file:
                for name in names:
                    out = np.empty(reading.local_shape(comm.rank))
                    for there, here in _blocks(reading, comm.rank):
                        out[here] = file[name][there]

    yield Comparison(f"write, {layout}", {"save": lambda: save(ours, arrays), "h5py": write_by_h5py})
    yield Comparison(f"read, {layout}", {"load": read, "h5py": read_by_h5py})
    group.Free()


def npy(comm: MPI.Intracomm, shape: tuple[int, ...]) -> Iterator[Comparison]:
    """
    Prepare one matrix, against ``Write_all`` and ``Read_all`` with a subarray, or a darray, as the view of the file.

    MPI writes a new file, or the old one; this package writes a new file, which takes the place of the old one.
    """
    if len(shape) != 2 or comm.size % 2:
        raise UnsuitableError("needs an even number of ranks, and 2 lengths")
    pencils, grid = Distribution(shape, (1, comm.size)), (2, comm.size // 2)
    start = [part.start for part in pencils.slices(comm.rank)]
    subarray = MPI.DOUBLE.Create_subarray(shape, pencils.local_shape(comm.rank), start)
    darray = MPI.DOUBLE.Create_darray(comm.size, comm.rank, shape, [MPI.DISTRIBUTE_CYCLIC] * 2, [64, 64], grid)
    cyclic = Distribution.block_cyclic(shape, grid, 64)
    with _folder(comm) as folder:
        for layout, side, view in (("pencils", pencils, subarray), ("block-cyclic 64", cyclic, darray)):
            view.Commit()
            yield from _npy(comm, folder, layout, side, view)
            view.Free()


def _npy(comm: MPI.Intracomm, folder: str, layout: str, side: Distribution, view: MPI.Datatype) -> Iterator[Comparison]:
    array = DistributedArray(np.ones(side.local_shape(comm.rank)), side, comm)
    ours, other, read = f"{folder}/a.npy", f"{folder}/other.bin", np.empty_like(array.local)

    def by_mpi(mode: int, move: str, buffer: np.ndarray, new: bool = False) -> None:
        if new and comm.rank == 0 and os.path.exists(other):
            os.unlink(other)
        comm.barrier()
        file = MPI.File.Open(comm, other, mode)
        file.Set_view(0, MPI.DOUBLE, view)
        getattr(file, move)(buffer)
        if move == "Write_all":
            file.Sync()
        file.Close()

    write = functools.partial(by_mpi, MPI.MODE_CREATE | MPI.MODE_WRONLY, "Write_all", array.local)
    writes: dict[str, Callable[[], Any]] = {"save": lambda: save(ours, array)}
    writes |= {"Write_all, a new file": lambda: write(new=True), "Write_all, the old file": write}
    yield Comparison(f"write, {layout}", writes)
    reads = {"load": lambda: load(ours, side, comm=comm), "Read_all": lambda: by_mpi(MPI.MODE_RDONLY, "Read_all", read)}
    yield Comparison(f"read, {layout}", reads)


def _own_hyperslab(path: str, target: Distribution, rank: int) -> np.ndarray:
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
    """Prepare one HDF5 file, which each rank reads by one call of HDF5, too."""
    if comm.size != 4 or len(shape) != 2 or any(extent % 128 for extent in shape):
        raise UnsuitableError("needs 4 ranks, and 2 lengths that are multiples of 128")
    targets = {
        "2 x 2 blocks": Distribution(shape, GRID, block=[n // p for n, p in zip(shape, GRID, strict=True)]),
        "block-cyclic 64": Distribution.block_cyclic(shape, GRID, 64),
    }
    with _folder(comm) as folder:
        path = f"{folder}/array.h5"
        rows = Distribution(shape, (comm.size,))
        part = np.random.default_rng(comm.rank).random(rows.local_shape(comm.rank), DTYPE)
        save(path, DistributedArray(part, rows, comm))
        for what, target in targets.items():
            ways = {
                "load": lambda target=target: load(path, target, comm=comm).local,
                "own hyperslab": lambda target=target: _own_hyperslab(path, target, comm.rank),
            }
            first, second = (way() for way in ways.values())
            with together(comm):
                assert np.array_equal(first, second), "load and own hyperslab do not agree"
            yield Comparison(what, ways)


def by_name(comm: MPI.Intracomm, shape: tuple[int, ...]) -> Iterator[Comparison]:
    """Prepare 1,000 small arrays."""
    source, target = (Distribution.split(shape, axis, comm.size) for axis in (0, 1))
    arrays = {f"a{i}": np.ones(source.local_shape(comm.rank)) for i in range(1000)}
    sides = dict.fromkeys(arrays, source), dict.fromkeys(arrays, target)
    methods: dict[str, Callable[[], Any]] = {
        "one call": lambda: redistribute(arrays, *sides, comm=comm),
        "a call for each": lambda: [redistribute(array, source, target, comm=comm) for array in arrays.values()],
    }
    yield Comparison("1,000 arrays", methods)
