"""Redistributions of others: MPI_Alltoallw by datatypes, mpi4py-fft between pencils, COSTA, PETSc, DTensor on gloo."""

from __future__ import annotations

import ctypes
import math
import os
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py.util.dtlib import from_numpy_dtype

from dace_redist.distribution import AnyDistribution, Distribution
from dace_redist.messages import Message
from dace_redist.timing import comparison
from redistribution.catalogue import Case

Array = npt.NDArray[Any]

#: Environment variable: ``costa.cpp`` compiled with COSTA; see benchmarks/README.md.
COSTA_VARIABLE = "DACE_REDIST_COSTA_LIBRARY"


class Alltoallw(comparison.Alltoallw):
    """One collective with a derived datatype for each partner and side, as mpi4py-fft does between pencils."""

    def __init__(self, case: Case, comm: Any) -> None:
        self._case = case
        super().__init__(case.schedule, comm)

    def _datatype(self, message: Message, sent: bool) -> Any:
        """Return the datatype of a message; a local array that is part of a larger one goes to one rank as a whole."""
        if self._case.within is None:
            return super()._datatype(message, sent)
        side, rank = (self._case.source, message.source) if sent else (self._case.target, message.target)
        shape = side.local_shape(rank)
        # The array handed over begins at the part, not where the larger one does.
        element = from_numpy_dtype(self._case.dtype)
        return self._keep(element.Create_subarray(self._case.within.shape, shape, [0] * len(shape)))


def has_single_owners(case: Case) -> bool:
    """Return True for a whole tensor between distributions in which every element has one owner."""
    sides = (case.source, case.target)
    if not (case.is_whole and all(isinstance(side, Distribution) for side in sides)):
        return False
    return 2 * math.prod(case.shape) == sum(
        math.prod(side.local_shape(rank)) for side in sides for rank in range(case.ranks)
    )


class NestedTypes(Alltoallw):
    """
    Collective with datatypes nested by dimension, as written by hand for block-cyclic matrices: a vector, or an indexed
    type if blocks are not evenly spaced, of rows of vectors.
    """

    @staticmethod
    def fits(case: Case) -> bool:
        """Return True if messages have several blocks, and every element has one owner on each side."""
        messages = [message for rank in range(case.ranks) for message in case.schedule.sends(rank)]
        return has_single_owners(case) and any(len(message.blocks) > 1 for message in messages)

    def _datatype(self, message: Message, sent: bool) -> Any:
        case, side = self._case, 0 if sent else 1
        indices = case.source.global_index(message.source), case.target.global_index(message.target)  # type: ignore[union-attr]
        here = (case.target if side else case.source).local_shape(message.target if side else message.source)
        datatype, stride, displacement = from_numpy_dtype(case.dtype), case.dtype.itemsize, 0
        for axis in reversed(range(len(here))):
            _, *positions = np.intersect1d(indices[0][axis], indices[1][axis], return_indices=True)
            starts, lengths = _intervals(positions[side])
            row = self._keep(datatype.Create_resized(0, stride))
            spacing = np.diff(starts)
            if len(set(lengths)) == 1 and len(set(spacing)) <= 1:
                datatype = self._keep(row.Create_vector(len(starts), lengths[0], spacing[0] if len(spacing) else 1))
                displacement += starts[0] * stride
            else:
                datatype = self._keep(row.Create_indexed(lengths, starts))
            stride *= here[axis]
        return self._keep(datatype.Create_hindexed([1], [displacement]))


def _intervals(positions: npt.NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Return the first positions and lengths of the runs of consecutive numbers in an increasing sequence."""
    parts = np.split(positions, np.flatnonzero(np.diff(positions) != 1) + 1)
    return [int(part[0]) for part in parts], [len(part) for part in parts]


class PencilTransfer:
    """
    mpi4py-fft's transfer: one tensor axis comes together while another is split, over the same ranks.

    :param case: A case with ``pencil`` axes.
    :raises ImportError: If mpi4py-fft is not installed.
    """

    def __init__(self, case: Case, comm: Any) -> None:
        from mpi4py_fft.pencil import Transfer

        source = case.source
        assert case.pencil is not None and isinstance(source, Distribution)
        together, apart = case.pencil
        coordinates = np.array(np.unravel_index(comm.rank, source.grid))
        along = source.dims[together]
        position, coordinates[along] = int(coordinates[along]), 0
        # The ranks that differ only in their part along the axis that comes together.
        self._comm = comm.Split(int(np.ravel_multi_index(coordinates, source.grid)), position)
        shapes = [distribution.local_shape(comm.rank) for distribution in (case.source, case.target)]
        self._transfer = Transfer(self._comm, case.shape, case.dtype, shapes[0], apart, shapes[1], together)

    def run(self, source: Array, target: Array) -> None:
        """Redistribute. Collective."""
        self._transfer.forward(source, target)

    def free(self) -> None:
        """Free the datatypes and the communicator."""
        self._transfer.destroy()
        self._comm.Free()


class Costa:
    """
    COSTA's redistribution of a matrix between blocks with an owner each.

    :param case: One that :meth:`fits`.
    """

    #: ``costa::block_t``.
    _BLOCK = np.dtype([("data", "u8"), ("stride", "i4"), ("row", "i4"), ("column", "i4")], align=True)

    @staticmethod
    def fits(case: Case) -> bool:
        """Return True for matrices of doubles, each with one owner on each side."""
        return len(case.shape) == 2 and case.dtype == np.float64 and has_single_owners(case)

    def __init__(self, case: Case, comm: Any) -> None:
        self._case, self._comm, self._library = case, comm, ctypes.CDLL(os.environ[COSTA_VARIABLE])
        self._library.costa_layout.restype = ctypes.c_void_p
        self._layouts: list[ctypes.c_void_p] = []

    def run(self, source: Array, target: Array) -> None:
        """Redistribute. Collective. The first run makes the layouts, of these arrays."""
        if not self._layouts:
            self._layouts = [self._layout(self._case.source, source), self._layout(self._case.target, target)]
        self._library.costa_run(*self._layouts, self._comm.py2f())

    def free(self) -> None:
        """Free the layouts."""
        for layout in self._layouts:
            self._library.costa_free(layout)

    def _layout(self, distribution: AnyDistribution, array: Array) -> ctypes.c_void_p:
        assert isinstance(distribution, Distribution)
        rows, columns = (distribution.core.block_begins(axis) for axis in (0, 1))
        owners = np.array([[distribution.owner((i, j)) for j in columns] for i in rows], "i4")
        begins = [np.array([*begin, n], "i4") for begin, n in zip((rows, columns), distribution.shape, strict=True)]
        held = distribution.global_index(self._comm.rank)
        places = [np.searchsorted(*one) for one in zip(held, (rows, columns), strict=True)]  # in the local array
        mine = np.argwhere(owners == self._comm.rank)
        blocks = np.empty(len(mine), self._BLOCK)
        blocks["row"], blocks["column"] = mine.T
        blocks["stride"] = array.shape[1]
        first = places[0][mine[:, 0]] * array.shape[1] + places[1][mine[:, 1]]
        blocks["data"] = array.ctypes.data + first * array.itemsize
        pointers = [ctypes.c_void_p(one.ctypes.data) for one in (*begins, owners, blocks)]
        made = self._library.costa_layout(len(rows), len(columns), *pointers[:3], len(blocks), pointers[3])
        return ctypes.c_void_p(made)


class VecScatter:
    """
    PETSc's scatter between two vectors with the local arrays, one after another, by index sets.

    :param case: One that :meth:`fits`.
    """

    @staticmethod
    def fits(case: Case) -> bool:
        """Return True for numbers of PETSc's type, each with one owner on each side."""
        return case.dtype == np.float64 and has_single_owners(case)

    def __init__(self, case: Case, comm: Any) -> None:
        from petsc4py import PETSc

        source, target = case.source, case.target
        assert isinstance(source, Distribution) and isinstance(target, Distribution)
        places, first = np.empty(case.shape, PETSc.IntType), 0  # of the elements in the source's vector
        for rank in range(comm.size):
            shape = source.local_shape(rank)
            places[np.ix_(*source.global_index(rank))] = first + np.arange(math.prod(shape)).reshape(shape)
            first += math.prod(shape)
        read = places[np.ix_(*target.global_index(comm.rank))].ravel()
        sizes = (math.prod(side.local_shape(comm.rank)) for side in (source, target))
        self._source, self._target = (PETSc.Vec().createMPI((size, None), comm=comm) for size in sizes)
        begin, end = self._target.getOwnershipRange()
        written = PETSc.IS().createStride(end - begin, begin, 1, comm=comm)
        wanted = PETSc.IS().createGeneral(read, comm=comm)
        self._scatter = PETSc.Scatter().create(self._source, wanted, self._target, written)

    def run(self, source: Array, target: Array) -> None:
        """Redistribute. Collective."""
        self._source.placeArray(source.reshape(-1))
        self._target.placeArray(target.reshape(-1))
        self._scatter.scatter(self._source, self._target)
        self._source.resetArray()
        self._target.resetArray()

    def free(self) -> None:
        """Free the scatter and its vectors."""
        for made in (self._scatter, self._source, self._target):
            made.destroy()


def init_gloo(comm: Any) -> None:
    """Make PyTorch's process group of a communicator's ranks, with one thread each. Collective."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)  # as all that is measured
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    path = comm.bcast(tempfile.mktemp(prefix="dace-redist-gloo-"))
    store = distributed.FileStore(path, comm.size)
    distributed.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)


class DTensorTransfer:
    """
    PyTorch's ``DTensor.redistribute`` over gloo. Making and freeing it is collective.

    :param case: A case with a device mesh.
    :raises ImportError: If PyTorch is not installed.
    """

    def __init__(self, case: Case, comm: Any) -> None:
        from torch.distributed.tensor import Replicate, Shard, init_device_mesh

        mesh = case.dtensor
        assert mesh is not None
        init_gloo(comm)
        self._mesh, self._shape = init_device_mesh("cpu", tuple(mesh.mesh)), case.shape
        sides = mesh.source, mesh.target
        self._placements = [[Replicate() if axis is None else Shard(axis) for axis in side] for side in sides]
        self._checked = False

    def run(self, source: Array, target: Array) -> None:
        """Redistribute into a new array; the first result is copied to ``target`` for the check. Collective."""
        import torch
        from torch.distributed.tensor import DTensor

        strides = tuple(math.prod(self._shape[i + 1 :]) for i in range(len(self._shape)))
        whole = {"run_check": False, "shape": torch.Size(self._shape), "stride": strides}
        tensor = DTensor.from_local(torch.from_numpy(source), self._mesh, self._placements[0], **whole)
        moved = tensor.redistribute(placements=self._placements[1]).to_local()
        if not self._checked:
            target[...] = np.asarray(moved)
            self._checked = True

    def free(self) -> None:
        """End the process group."""
        from torch import distributed

        distributed.destroy_process_group()
