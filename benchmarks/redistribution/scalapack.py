"""
ScaLAPACK's ``p?gemr2d``, from Debian's library, for matrices.

ScaLAPACK's matrices lie column by column. A local array in C order is the transpose of one, so the transposed matrix is
described, and nothing is copied.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist.distribution import AnyDistribution, Distribution
from dace_redist.native.loaded_mpi import mpi_in_use
from redistribution.catalogue import Case

_LIBRARY = "scalapack-openmpi"  # Debian's name for the one that is linked with its Open MPI
#: Environment variable: a library that is linked with the MPI in use, in its place.
VARIABLE = "DACE_REDIST_SCALAPACK_LIBRARY"
#: The routine that redistributes, by type.
ROUTINES = {"int32": "pigemr2d", "float32": "psgemr2d", "float64": "pdgemr2d"}
ROUTINES |= {"complex64": "pcgemr2d", "complex128": "pzgemr2d"}
NO_CONTEXT = -1  # what the descriptor of a process outside of a grid says


def why_not(case: Case) -> str | None:
    """Return the reason why a case cannot be given to ScaLAPACK here; None if it can."""
    if len(case.shape) != 2 or case.within is not None:
        return "ScaLAPACK redistributes matrices, whole or in part, out of whole local arrays"
    if str(case.dtype) not in ROUTINES:
        return f"ScaLAPACK has no routine for {case.dtype}"
    if not (_is_expressible(case.source) and _is_expressible(case.target)):
        return "ScaLAPACK knows only block-cyclic distributions with blocks of one size, without replicas"
    return library_missing()


def _is_expressible(distribution: AnyDistribution) -> bool:
    try:
        return isinstance(distribution, Distribution) and len(distribution.scalapack_descriptor(0)) > 0
    except ValueError:
        return False


@functools.cache
def library_missing() -> str | None:
    """Return the reason why the library is of no use with the MPI in use, or None."""
    if os.environ.get(VARIABLE):
        return None
    if ctypes.util.find_library(_LIBRARY) is None:
        return "ScaLAPACK is not installed (apt-get install libscalapack-openmpi-dev)"
    mpi = mpi_in_use()
    if mpi.interface != "openmpi":
        return "ScaLAPACK is linked with the system's Open MPI, which is not the MPI in use"
    # Two MPI libraries in one process would both serve: the library must be linked with the one in use.
    if not (folder := Path(mpi.path).resolve().parent).is_relative_to("/usr/lib"):
        return f"ScaLAPACK is linked with the system's Open MPI, but the MPI in use is in {folder}"
    return None


@functools.cache
def library() -> ctypes.CDLL:
    name = os.environ.get(VARIABLE) or ctypes.util.find_library(_LIBRARY)
    loaded = ctypes.CDLL(name, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    loaded.Csys2blacs_handle.argtypes = [ctypes.c_void_p]
    loaded.Cfree_blacs_system_handle.restype = None
    return loaded


class Grids:
    """
    Process grids of BLACS over a communicator, and descriptors of matrices on them. Making and freeing is collective.

    :param comm: Communicator.
    """

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self._comm, self._blacs = comm, library()
        self._contexts: dict[tuple[tuple[int, ...], bytes], int] = {}
        self._system = self._blacs.Csys2blacs_handle(MPI._handleof(comm))
        self.everyone = self._context(np.arange(comm.size).reshape(1, -1))

    def descriptor(self, distribution: AnyDistribution, order: str = "C") -> Any:
        """
        Return ScaLAPACK's nine numbers for a matrix. Collective.

        :param order: Of the local arrays: ``"F"``, or ``"C"``, for which it is the transposed matrix.
        """
        assert isinstance(distribution, Distribution)
        numbers = distribution.scalapack_descriptor(self._comm.rank)
        ranks, local = distribution.rank_grid()[..., 0], distribution.local_shape(self._comm.rank)
        if order == "C":
            numbers[2:6], ranks = numbers[[3, 2, 5, 4]], ranks.T  # rows are columns, of matrix and blocks
            numbers[8] = max(1, local[1])
        numbers[1] = self._context(ranks)
        return (ctypes.c_int * 9)(*numbers)

    def free(self) -> None:
        """Free the process grids."""
        for context in self._contexts.values():
            if context != NO_CONTEXT:
                self._blacs.Cblacs_gridexit(context)
        self._blacs.Cfree_blacs_system_handle(self._system)

    def _context(self, ranks: npt.NDArray[Any]) -> int:
        """Return the cached context of a process grid of these ranks; NO_CONTEXT on other ranks."""
        members = np.asfortranarray(ranks, np.int32)
        key = (ranks.shape, members.tobytes("F"))
        if key not in self._contexts:
            context, (rows, columns) = ctypes.c_int(self._system), ranks.shape
            address = members.ctypes.data_as(ctypes.c_void_p)
            self._blacs.Cblacs_gridmap(ctypes.byref(context), address, rows, rows, columns)
            self._contexts[key] = context.value
        return self._contexts[key]


class Gemr2d:
    """
    ``p?gemr2d``: the same matrix, or a part of it, in another distribution. Making and freeing it is collective.

    Distributions and types that it takes: see :func:`why_not`; ``region`` is as in :func:`dace_redist.redistribute`.
    """

    def __init__(
        self,
        comm: Any,
        dtype: np.dtype[Any],
        source: AnyDistribution,
        target: AnyDistribution,
        region: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self._grids = Grids(comm)
        self.free = self._grids.free
        self._routine = library()["C" + ROUTINES[str(dtype)]]
        self._routine.restype = None
        self._descriptors = [self._grids.descriptor(side) for side in (source, target)]
        parts = [tuple(part)[::-1] for part in region or ((0, 0), (0, 0), source.shape)]  # rows are columns
        self._first = [(row + 1, column + 1) for row, column in parts[:2]]  # indices begin at 1
        self._shape = parts[2]

    def run(self, source: npt.NDArray[Any], target: npt.NDArray[Any]) -> None:
        """Redistribute. Collective."""
        sides = zip((source, target), self._first, self._descriptors, strict=True)
        before, after = ((ctypes.c_void_p(array.ctypes.data), *first, descriptor) for array, first, descriptor in sides)
        self._routine(*self._shape, *before, *after, self._grids.everyone)
