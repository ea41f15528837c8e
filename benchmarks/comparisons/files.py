"""
Files, and exchanges of many arrays by name, against the way without this package.

Files lie in the folder of ``TMPDIR``; those of the other way are flushed to the disk, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

from comparisons.comparison import Comparison, UnsuitableError
from dace_redist import DistributedArray, Distribution, load, redistribute, save
from dace_redist.mpi.collective import together
from dace_redist.native.cmake_build import ensure_library

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


_DR_FLOAT64 = 11  # of dr_type


class _RawFile(ctypes.Structure):
    """A ``dr_file``, see ``dace_redist.h``."""

    _fields_ = (
        ("path", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("raw", ctypes.c_int),
        ("others", ctypes.c_int64 * 11),
    )


def _written_in_place(comm: MPI.Intracomm, side: Distribution, array: np.ndarray, path: str) -> Callable[[], None]:
    """Return a function that writes an array of float64 by ``dr_save`` into a raw file, where it is."""
    library, handle, ndim = ctypes.CDLL(str(ensure_library())), ctypes.c_void_p(), len(side.shape)
    numbers, axes = ctypes.c_int64 * ndim, (ctypes.c_int * ndim)(*range(ndim))
    shape, grid = numbers(*side.shape), numbers(*side.grid)
    block = None if "balanced" in side.block else numbers(*map(int, side.block))
    library.dr_distribution_create_blocks(ndim, shape, ndim, grid, axes, block, None, ctypes.byref(handle))
    own = (ctypes.c_int if MPI._sizeof(MPI.Comm) == 4 else ctypes.c_void_p).from_address(MPI._addressof(comm))
    file, address = _RawFile(path.encode(), _DR_FLOAT64, 1), ctypes.c_void_p(array.ctypes.data)

    def write() -> None:
        if library.dr_save(ctypes.byref(file), handle, own, address) != 0:
            raise OSError(f"dr_save failed: {path}")

    return write


def npy(comm: MPI.Intracomm, shape: tuple[int, ...]) -> Iterator[Comparison]:
    """
    Prepare one array, against ``Write_all`` and ``Read_all`` with a subarray, or a darray, as the view of the file.

    Both ways of reading make a new array. Untimed repetitions of the same way go before each that makes a new file: the
    first ones pay for what the other way has left to the file system, old files and blocks of the disk not used before.
    """
    if len(shape) != 2 or comm.size > 1 and comm.size % 2 or shape[0] % 16 or shape[1] % 8:
        raise UnsuitableError("needs an even number of ranks, and 2 lengths that are multiples of 16 and 8")
    grid = (2, comm.size // 2) if comm.size > 2 else (1, comm.size)
    sides = {
        "columns": Distribution(shape, (1, comm.size)),
        "pencils": Distribution((shape[0] // 16, 128, shape[1] // 8), (1, *grid)),
        "block-cyclic 64": Distribution.block_cyclic(shape, grid, 64),
    }
    with _folder(comm) as folder:
        for layout, side in sides.items():
            if layout == "block-cyclic 64":
                view = MPI.DOUBLE.Create_darray(
                    comm.size, comm.rank, shape, [MPI.DISTRIBUTE_CYCLIC] * 2, [64, 64], grid
                )
            else:
                start = [part.start for part in side.slices(comm.rank)]
                view = MPI.DOUBLE.Create_subarray(side.shape, side.local_shape(comm.rank), start)
            view.Commit()
            yield from _npy(comm, folder, layout, side, view)
            view.Free()


def _npy(comm: MPI.Intracomm, folder: str, layout: str, side: Distribution, view: MPI.Datatype) -> Iterator[Comparison]:
    array = DistributedArray(np.ones(side.local_shape(comm.rank)), side, comm)
    ours, raw, other = (f"{folder}/{name}" for name in ("a.npy", "a.bin", "other.bin"))

    def by_mpi(writes: bool, new: bool = False) -> np.ndarray:
        if new and comm.rank == 0 and os.path.exists(other):
            os.unlink(other)
        comm.barrier()
        buffer = array.local if writes else np.empty_like(array.local)
        file = MPI.File.Open(comm, other, MPI.MODE_CREATE | MPI.MODE_WRONLY if writes else MPI.MODE_RDONLY)
        file.Set_view(0, MPI.DOUBLE, view)
        if writes:
            file.Write_all(buffer)
            file.Sync()
        else:
            file.Read_all(buffer)
        file.Close()
        return buffer

    new: dict[str, Callable[[], Any]] = {"save": lambda: save(ours, array), "Write_all": lambda: by_mpi(True, new=True)}
    yield Comparison(f"write a new file, {layout}", new, settle=3)
    old: dict[str, Callable[[], Any]] = {
        "dr_save": _written_in_place(comm, side, array.local, raw),
        "Write_all": lambda: by_mpi(True),
    }
    yield Comparison(f"write in place, {layout}", old)
    reads: dict[str, Callable[[], Any]] = {
        "load": lambda: load(ours, side, comm=comm).local,
        "Read_all": lambda: by_mpi(False),
    }
    with together(comm):
        assert all(np.array_equal(read(), array.local) for read in reads.values()), "load and Read_all do not agree"
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
