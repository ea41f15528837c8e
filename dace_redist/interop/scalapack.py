"""Matrices of ScaLAPACK: process grids of BLACS, and ``NPScal`` of scalapack4py."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import DESCRIPTOR, Distribution
from dace_redist.interop import Part

#: What ``blacs_get`` returns: the Fortran handle of a context's communicator, of processes in row-major order.
_COMMUNICATOR = ctypes.c_int(10)


def grid_ranks(context: int, library: Any, comm: MPI.Intracomm | None = None) -> npt.NDArray[np.int64]:
    """
    Return the ranks of the process grid of a BLACS context, for ``Distribution.from_scalapack``. Local.

    :param library: ScaLAPACK's or BLACS's library, a ``ctypes.CDLL``.
    :param comm: Communicator that numbers the ranks; default: the world.
    :raises ValueError: If the context is not one of this process, or a process of it is not in ``comm``.
    """
    numbers = [ctypes.c_int() for _ in range(4)]
    library.blacs_gridinfo_.restype = None
    library.blacs_gridinfo_(ctypes.byref(ctypes.c_int(context)), *map(ctypes.byref, numbers))
    rows, columns, *_ = (number.value for number in numbers)
    if rows < 1 or columns < 1:
        raise ValueError(f"context must be a BLACS context that has this process, got {context}")
    handle = ctypes.c_int()
    library.blacs_get_(ctypes.byref(ctypes.c_int(context)), ctypes.byref(_COMMUNICATOR), ctypes.byref(handle))
    group, all_ranks = MPI.Comm.f2py(handle.value).Get_group(), MPI.COMM_WORLD if comm is None else comm
    ranks = MPI.Group.Translate_ranks(group, range(rows * columns), all_ranks.Get_group())
    if MPI.UNDEFINED in ranks:
        raise ValueError(f"the processes of BLACS context {context} must be in comm, but some are not")
    return np.array(ranks).reshape(rows, columns)


def read(array: Any, comm: MPI.Intracomm) -> Part:
    """Return this rank's part of an ``NPScal``. Local."""
    d = array.descr
    ranks = grid_ranks(d.ctxt, array.sl.blacs, comm)
    numbers = [int(getattr(d, name)) for name in DESCRIPTOR]
    return Part(array.loc_array, Distribution.from_scalapack(numbers, ranks), comm)


def make(part: Part, grid: Any) -> Any:
    """
    Return an ``NPScal`` of scalapack4py, without a copy if the local array is Fortran-ordered.

    :param grid: ``BLACSGrid`` of the ranks of the distribution.
    :raises ValueError: If the grid has other ranks, or ScaLAPACK cannot describe the distribution.
    """
    from scalapack4py.npscal import BLACSDescriptor, NPScal

    if not isinstance(part.distribution, Distribution):
        raise ValueError(f"ScaLAPACK has blocks of one size, got {part.distribution}: redistribute() first")
    descriptor = part.distribution.scalapack_descriptor(part.comm.rank)
    ranks, theirs = part.distribution.rank_grid()[..., 0], grid_ranks(grid.ictxt, grid._lib.blacs, part.comm)
    if not np.array_equal(ranks, theirs):
        raise ValueError(f"grid must have the ranks {ranks.tolist()} of the distribution, got {theirs.tolist()}")
    described = BLACSDescriptor(*descriptor[2:8].tolist())
    return NPScal(loc_array=np.asfortranarray(part.local), grid=grid, descriptor=described, dtype=part.local.dtype)
