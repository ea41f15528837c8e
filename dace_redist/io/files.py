"""Functions :func:`load` and :func:`save`."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution, check_distribution
from dace_redist.integers import AnyInt, AnyInts, check_memory_bytes
from dace_redist.io.access import Access
from dace_redist.io.pieces import Selection, checked_ranks
from dace_redist.io.stored import Layout, StoredArray, discard, format_of, naming
from dace_redist.mpi.collective import check_same, checked_communicator, together
from dace_redist.mpi.launch import check_ranks
from dace_redist.redistribution.arrays import array_view
from dace_redist.redistribution.arrays.new import new_array
from dace_redist.redistribution.distributed_array import DistributedArray
from dace_redist.transform import Transform


def load(
    path: str | bytes | os.PathLike[str],
    target: AnyDistribution,
    *,
    comm: MPI.Intracomm | None = None,
    name: str | None = None,
    index: Any = None,
    target_dtype: npt.DTypeLike | None = None,
    readers: AnyInt | AnyInts | None = None,
    memory_bytes: AnyInt | None = None,
    strategy: str = "Auto",
    progress: bool = False,
) -> DistributedArray:
    """
    Read a distributed array from a file. Collective over ``comm``.

    Some ranks read long contiguous pieces or whole chunks, and exchanges bring the elements where they belong. If every
    rank's part consists of contiguous runs of at least 1 MiB, or of whole chunks, each rank reads its own.

    :param path: File ``.npy``, ``.h5``, ``.hdf5`` or ``.hdf``, or folder ``.zarr``.
    :param target: Distribution of the result.
    :param comm: mpi4py communicator; default: the world.
    :param name: Dataset of an HDF5 file, default: its only one; path in a Zarr store, default: its root.
    :param index: Part of the file's array, as of ``numpy.s_``: slices of positive step, integers, and an Ellipsis.
        Default: all of it.
    :param target_dtype: Element type of the result; default: that of the file, in this machine's byte order.
    :param readers: Number of ranks that read, or a list of them. The others need not see the file. Default: one rank
        for each 4 MiB, at equal distances.
    :param memory_bytes: Maximum bytes of buffers per rank. Default: pieces of 64 MiB, and the buffers of the strategy.
    :param strategy: Strategy of the exchanges.
    :param progress: True for a progress bar on rank 0.
    :return: The array, in node-shared memory if there is enough; zeros in margins beyond its ends.
    :raises OSError: On every rank, if a rank that reads cannot open or read the file.
    :raises ValueError: On every rank, if an argument is invalid on one of them, or the file is damaged, or ranks see
        different arrays.
    :raises TypeError: On every rank, if elements of the file cannot be converted to ``target_dtype``.
    :raises RuntimeError: On every rank, if h5py or zarr is missing, or fails.
    """
    comm = checked_communicator(comm)
    with together(comm):
        path = os.fsdecode(path)
        form = format_of(path)
        named = _checked("readers", readers, target, name, memory_bytes, comm.size)
    given = {"index": index, "target_dtype": target_dtype, "readers": named}
    _check_same(comm, target, path=path, name=name, **given, memory_bytes=memory_bytes, strategy=strategy)
    leader, layout = named[0] if isinstance(named, tuple) else 0, None
    with together(comm), naming(path):
        if comm.rank == leader:
            with contextlib.closing(form.open_array(path, name)) as first:
                layout = first.layout
    layout = comm.bcast(layout, leader)
    with together(comm):
        selection = Selection.of(layout, index)
        shape = selection.selected.shape[layout.order]
        if shape != tuple(target.shape):
            raise ValueError(f"load: target must have the shape {shape} of the array in {path!r}, got {target.shape}")
        element = _converted(layout.dtype, target_dtype, len(shape))
        out = new_array(None, target.local_shape(comm.rank), element, "cpu", shared=True)
        if any(target.halo):  # margins at the ends of the array
            out[...] = 0

    def opened() -> StoredArray:
        stored: StoredArray = form.open_array(path, name)
        if stored.layout != layout:
            stored.close()
            raise ValueError(f"load: ranks see different arrays in {path!r}: {layout} and, on another, {stored.layout}")
        return stored

    how = memory_bytes, strategy, path, f"load {path}" if progress else ""
    access = Access(comm, selection, target, *how, named, own=element == layout.dtype)
    access.run(opened, out, layout.dtype, reading=True)
    return DistributedArray(out, target, comm)


def save(
    path: str | bytes | os.PathLike[str],
    array: DistributedArray,
    *,
    name: str | None = None,
    target_dtype: npt.DTypeLike | None = None,
    writers: AnyInt | AnyInts | None = None,
    memory_bytes: AnyInt | None = None,
    strategy: str = "Auto",
    progress: bool = False,
    **storage: Any,
) -> None:
    """
    Write a distributed array to a file. Collective over the communicator of the array.

    The array is written beside the old file, which it replaces when it is complete: if anything fails, the old file is
    as it was. All else in an HDF5 file, which is copied, or a Zarr store stays; consolidated metadata is renewed. An
    old array leaves its attributes and, if shape and element type are equal and ``storage`` is empty, its chunks,
    filters, fill value, links and dimension scales. Data of ``.npy`` and HDF5 files is on the disk when the function
    returns.

    :param path: File or folder, as for :func:`load`.
    :param array: Array to write.
    :param name: Dataset of an HDF5 file, default: ``data``; path in a Zarr store, default: its root.
    :param target_dtype: Element type in the file; default: that of the array.
    :param writers: As ``readers`` of :func:`load`. An HDF5 dataset with any of ``storage`` is written by one rank.
    :param memory_bytes, strategy, progress: See :func:`load`.
    :param storage: Arguments of ``h5py.Group.create_dataset`` or ``zarr.create_array``; for ``.npy`` files
        ``fortran_order``. New arrays of a Zarr store have its format.
    :raises OSError: On every rank, if a rank that writes cannot, as on a full disk.
    :raises ValueError: On every rank, if an argument is invalid on one of them; if ``name`` lies below an array or on a
        link out of the file; if a dataset with dimension scales or further hard links cannot stay.
    :raises TypeError: On every rank, if elements cannot be converted to ``target_dtype``, or the format has no such
        type; or ``array`` is not a DistributedArray on one of them, which then takes the world for the communicator.
    :raises RuntimeError: On every rank, if h5py or zarr is missing, or fails.
    """
    comm, new = checked_communicator(array.comm if isinstance(array, DistributedArray) else None), None
    with together(comm):
        if not isinstance(array, DistributedArray):
            raise TypeError(f"array must be a DistributedArray, got {type(array).__name__}")
        source, path = array.distribution, os.fsdecode(path)
        form = format_of(path)
        named = _checked("writers", writers, source, name, memory_bytes, comm.size)
        view = array_view("array", array.local)
        if view.device == "gpu":
            raise ValueError("save: array must lie in main memory, but lies on the GPU: copy it first")
        element = _converted(view.dtype, target_dtype, len(source.shape))
    given = {"element_type": element, "writers": named, "op": array.op, "storage": storage}
    _check_same(comm, source, path=path, name=name, **given, memory_bytes=memory_bytes, strategy=strategy)
    leader = named[0] if isinstance(named, tuple) else 0
    with together(comm), naming(path):
        if comm.rank == leader:
            layout = Layout(tuple(source.shape), element, (1,) * len(source.shape))
            new = form.create(os.path.realpath(path), name, layout, storage)
    new = comm.bcast(new, leader)
    try:
        how = memory_bytes, strategy, path, f"save {path}" if progress else ""
        direct = element == view.dtype and view.in_c_order and isinstance(array.local, np.ndarray)
        ranks = (leader,) if new.one_writer else named
        access = Access(comm, Selection.of(new.layout), source, *how, ranks, direct, array.op)
        access.run(lambda: form.open_new(new), array.local, element, reading=False)
        with together(comm), naming(path):
            if comm.rank == leader:
                form.commit(new)
    except BaseException:
        if comm.rank == leader:
            discard(new.path)
        raise


def _checked(
    what: str, ranks: Any, distribution: Any, name: Any, memory_bytes: Any, size: int
) -> int | tuple[int, ...] | None:
    """Check arguments that loading and saving share; return the ranks that access the file, if they are named."""
    check_distribution("target", distribution)
    check_ranks("target", distribution, size)
    if not isinstance(name, str | None):
        raise TypeError(f"name must be the name of an array in the file, or None, got {name!r}")
    if memory_bytes is not None:
        check_memory_bytes(memory_bytes)
    return checked_ranks(what, ranks, size)


def _check_same(comm: MPI.Intracomm, distribution: AnyDistribution, **others: Any) -> None:
    """Check that ranks have equal arguments, and distributions. Collective."""
    others["distribution"] = distribution, hash(distribution.encoded)  # whose text may leave out boxes
    check_same(comm, others)


def _converted(dtype: np.dtype[Any], target_dtype: Any, ndim: int) -> np.dtype[Any]:
    """Return the type that elements are converted to; a TypeError if they cannot be."""
    return Transform(ndim, dtype, target_dtype).target_dtype
