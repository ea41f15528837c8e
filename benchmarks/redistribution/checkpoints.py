"""
Times checkpoints, and exchanges of many arrays by name, against the way without this package.

Run: mpiexec -n 4 python benchmarks/redistribution/checkpoints.py [MIB] [REPETITIONS]. Each pair of ways takes turns; a
line has both medians, of the slowest rank, and their ratio (above 1: this package is faster). Files lie in the folder
of ``TMPDIR``; those of the other way are flushed to the disk, too.

- ``h5``: 12 arrays written by all ranks and read by all but one, against h5py, which writes on one rank after another
  (its file allows one writer) and reads on all ranks, both by hyperslabs
- ``npy``: one array, against ``Write_all`` and ``Read_all`` with a subarray, or a darray, as the view of the file,
  which is a new one, or the old one (this package writes a new file, which takes the place of the old one)
- ``names``: 1,000 arrays of 1 KiB in one call, against a call for each
"""

from __future__ import annotations

import functools
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import h5py
import numpy as np
from mpi4py import MPI

from dace_redist import DistributedArray, Distribution, load, redistribute, save

COMM = MPI.COMM_WORLD
MIB = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
REPETITIONS = int(sys.argv[2]) if len(sys.argv) > 2 else 5


def compare(label: str, ours: Callable[[], Any], other: Callable[[], Any]) -> None:
    """Print the medians of two ways that take turns, and their ratio."""
    seconds: list[list[float]] = [[], []]
    for repetition in range(REPETITIONS + 1):
        for number, call in enumerate((ours, other)):
            COMM.barrier()
            begin = time.perf_counter()
            call()
            taken = COMM.allreduce(time.perf_counter() - begin, MPI.MAX)
            seconds[number] += [taken] if repetition else []  # the first time is for plans and caches
    mine, theirs = (statistics.median(times) for times in seconds)
    if COMM.rank == 0:
        print(f"{label:40} {mine:8.3f} s {theirs:8.3f} s   {theirs / mine:6.2f}", flush=True)


def parts(distribution: Distribution, rank: int) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Give the blocks of a rank: where they lie in the whole tensor and in its local array."""
    runs = []
    for index in distribution.global_index(rank):
        if not len(index):
            return
        cuts = [0, *(np.flatnonzero(np.diff(index) != 1) + 1).tolist(), len(index)]
        runs.append([(slice(index[a], index[b - 1] + 1), slice(a, b)) for a, b in zip(cuts, cuts[1:], strict=False)])
    for choice in np.ndindex(*map(len, runs)):
        yield tuple(zip(*(run[i] for run, i in zip(runs, choice, strict=True)), strict=True))  # type: ignore[misc]


def checkpoint(folder: str, layout: str, writing: Distribution, reading: Distribution) -> None:
    """Compare a checkpoint of 12 arrays in HDF5."""
    names = [f"fields/{i}" for i in range(12)]
    arrays = {name: DistributedArray(np.ones(writing.local_shape(COMM.rank)), writing, COMM) for name in names}
    group: Any = COMM.Split(COMM.rank < COMM.size - 1)
    ours, other = f"{folder}/ours.h5", f"{folder}/other.h5"

    def write_by_h5py() -> None:
        for rank in range(COMM.size):
            if rank == COMM.rank:
                with h5py.File(other, "a" if rank else "w") as file:
                    for name in names:
                        dataset = file.require_dataset(name, writing.shape, "f8", exact=True)
                        for there, here in parts(writing, rank):
                            dataset[there] = arrays[name].local[here]
                if rank == COMM.size - 1:
                    with open(other, "rb") as raw:
                        os.fsync(raw.fileno())
            COMM.barrier()

    def read() -> None:
        if COMM.rank < COMM.size - 1:
            load(ours, dict.fromkeys(names, reading), comm=group)

    def read_by_h5py() -> None:
        if COMM.rank < COMM.size - 1:
            with h5py.File(other) as file:
                for name in names:
                    out = np.empty(reading.local_shape(COMM.rank))
                    for there, here in parts(reading, COMM.rank):
                        out[here] = file[name][there]

    compare(f"h5 write, {layout}", lambda: save(ours, arrays), write_by_h5py)
    compare(f"h5 read, {layout}", read, read_by_h5py)


def one_array(folder: str, layout: str, side: Distribution, view: MPI.Datatype) -> None:
    """Compare one array in a .npy file with collective MPI-IO."""
    array = DistributedArray(np.ones(side.local_shape(COMM.rank)), side, COMM)
    view.Commit()
    other = np.empty_like(array.local)

    def by_mpi(mode: int, move: str, buffer: np.ndarray, new: bool = False) -> None:
        path = f"{folder}/other.bin"
        if new and COMM.rank == 0 and os.path.exists(path):
            os.unlink(path)
        COMM.barrier()
        file = MPI.File.Open(COMM, path, mode)
        file.Set_view(0, MPI.DOUBLE, view)
        getattr(file, move)(buffer)
        if move == "Write_all":
            file.Sync()
        file.Close()

    mode = MPI.MODE_CREATE | MPI.MODE_WRONLY
    for new, what in ((True, "a new file"), (False, "the old file")):
        other_way = functools.partial(by_mpi, mode, "Write_all", array.local, new)
        compare(f"npy write, {layout}, {what}", lambda: save(f"{folder}/a.npy", array), other_way)
    read = (lambda: load(f"{folder}/a.npy", side), lambda: by_mpi(MPI.MODE_RDONLY, "Read_all", other))
    compare(f"npy read, {layout}", *read)
    view.Free()


def by_name() -> None:
    """Compare many small arrays in one call with a call for each."""
    source, target = Distribution((16, 8), (COMM.size, 1)), Distribution((16, 8), (1, COMM.size))
    arrays = {f"a{i}": np.ones(source.local_shape(COMM.rank)) for i in range(1000)}
    sides = dict.fromkeys(arrays, source), dict.fromkeys(arrays, target)
    compare(
        "1,000 arrays by name",
        lambda: redistribute(arrays, *sides, comm=COMM),
        lambda: [redistribute(array, source, target, comm=COMM) for array in arrays.values()],
    )


def main() -> None:
    """Run all comparisons."""
    size, folder = COMM.size, COMM.bcast(tempfile.mkdtemp() if COMM.rank == 0 else None)
    by_name()
    extent = int((MIB << 17) ** 0.5) // 256 * 256
    rows = int((MIB << 17) / 12) // 1024 // 256 * 256
    blocks, shape = (rows, 1024), (extent, extent)
    checkpoint(folder, "rows", Distribution(blocks, (size, 1)), Distribution(blocks, (size - 1, 1)))
    cyclic = Distribution.block_cyclic(blocks, (2, size // 2), 64), Distribution.block_cyclic(blocks, (1, size - 1), 64)
    checkpoint(folder, "block-cyclic 64", *cyclic)
    pencils = Distribution(shape, (1, size))
    start = [part.start for part in pencils.slices(COMM.rank)]
    one_array(folder, "pencils", pencils, MPI.DOUBLE.Create_subarray(shape, pencils.local_shape(COMM.rank), start))
    grid = 2, size // 2
    darray = MPI.DOUBLE.Create_darray(size, COMM.rank, shape, [MPI.DISTRIBUTE_CYCLIC] * 2, [64, 64], grid)
    one_array(folder, "block-cyclic 64", Distribution.block_cyclic(shape, grid, 64), darray)
    COMM.barrier()
    if COMM.rank == 0:
        shutil.rmtree(folder)


main()
