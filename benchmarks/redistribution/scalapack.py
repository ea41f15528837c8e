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
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist.distribution import AnyDistribution, Distribution
from redistribution.catalogue import Case

_LIBRARY = "scalapack-openmpi"  # Debian's name for the one that is linked with its Open MPI
_ROUTINES = {"int32": "pigemr2d", "float32": "psgemr2d", "float64": "pdgemr2d"}
_ROUTINES |= {"complex64": "pcgemr2d", "complex128": "pzgemr2d"}
_NO_CONTEXT = -1  # what the descriptor of a process outside of a grid says


def why_not(case: Case) -> str | None:
    """Why a case cannot be given to ScaLAPACK here, or None if it can."""
    if len(case.shape) != 2 or case.within is not None:
        return "ScaLAPACK redistributes whole matrices only"
    if str(case.dtype) not in _ROUTINES:
        return f"ScaLAPACK has no routine for {case.dtype}"
    for distribution in (case.source, case.target):
        if not isinstance(distribution, Distribution) or _blocks(distribution) is None:
            return "ScaLAPACK knows only block-cyclic distributions with blocks of one size, without replicas"
    return _library_missing()


@functools.cache
def _library_missing() -> str | None:
    """Why the library is of no use in this process, or None."""
    name = ctypes.util.find_library(_LIBRARY)
    if name is None:
        return "ScaLAPACK is not installed (apt-get install libscalapack-openmpi-dev)"
    folders = {Path(line.split()[-1]).resolve().parent for line in _mapped() if "/libmpi.so" in line}
    if not folders:
        return "ScaLAPACK: no libmpi.so is loaded"
    # Two MPI libraries in one process would both serve: the library must be linked with the one in use.
    if not all(folder.is_relative_to("/usr/lib") for folder in folders):
        return f"ScaLAPACK is linked with the system's Open MPI, but the MPI in use is in {min(folders)}"
    return None


def _mapped() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines()


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(ctypes.util.find_library(_LIBRARY), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    library.Csys2blacs_handle.argtypes = [ctypes.c_void_p]
    library.Cfree_blacs_system_handle.restype = None
    return library


class Gemr2d:
    """
    A case as a call of ``p?gemr2d``. Making and freeing it is collective.

    :param case: A case for which :func:`why_not` is None.
    :param comm: Communicator of its ranks.
    """

    def __init__(self, case: Case, comm: Any) -> None:
        from mpi4py import MPI

        self._blacs, self._case = _library(), case
        self._contexts: list[int] = []
        self._system = self._blacs.Csys2blacs_handle(MPI._handleof(comm))
        self._all = self._grid(np.arange(comm.size).reshape(1, -1))
        self._descriptors = [self._descriptor(case.source, comm.rank), self._descriptor(case.target, comm.rank)]
        self._routine = getattr(self._blacs, "C" + _ROUTINES[str(case.dtype)])
        self._routine.restype = None

    def run(self, source: npt.NDArray[Any], target: npt.NDArray[Any]) -> None:
        """Redistributes. Collective."""
        columns, rows = self._case.shape
        matrices = [
            (ctypes.c_void_p(array.ctypes.data), 1, 1, descriptor)
            for array, descriptor in zip((source, target), self._descriptors, strict=True)
        ]
        self._routine(rows, columns, *matrices[0], *matrices[1], self._all)

    def free(self) -> None:
        """Frees the process grids."""
        for context in self._contexts:
            if context != _NO_CONTEXT:
                self._blacs.Cblacs_gridexit(context)
        self._blacs.Cfree_blacs_system_handle(self._system)

    def _grid(self, ranks: npt.NDArray[Any]) -> int:
        """A process grid with these ranks; _NO_CONTEXT on others."""
        context = ctypes.c_int(self._system)
        members = np.asfortranarray(ranks, np.int32)
        rows, columns = ranks.shape
        self._blacs.Cblacs_gridmap(ctypes.byref(context), members.ctypes.data_as(ctypes.c_void_p), rows, rows, columns)
        self._contexts.append(context.value)
        return context.value

    def _descriptor(self, distribution: AnyDistribution, rank: int) -> Any:
        """ScaLAPACK's nine numbers for the transposed matrix."""
        assert isinstance(distribution, Distribution)
        sizes, ranks = _blocks(distribution), _ranks(distribution)
        assert sizes is not None
        context = self._grid(ranks.T)
        columns, rows = distribution.shape
        leading = max(1, distribution.local_shape(rank)[1])
        dense = 1
        numbers = (dense, context, rows, columns, sizes[1], sizes[0], 0, 0, leading)
        return (ctypes.c_int * 9)(*numbers)


def _blocks(distribution: Distribution) -> tuple[int, int] | None:
    """Elements per block and dimension, or None if ScaLAPACK cannot say it."""
    used = [axis for axis in distribution.dims if axis is not None]
    if any(p > 1 and a not in used for a, p in enumerate(distribution.grid) if distribution.pins[a] is None):
        return None
    sizes = []
    for extent, block, axis in zip(distribution.shape, distribution.block, distribution.dims, strict=True):
        parts = 1 if axis is None else distribution.grid[axis]
        if block == "balanced" and extent % parts:
            return None
        sizes.append(block if isinstance(block, int) else -(-extent // parts))
    return sizes[0], sizes[1]


def _ranks(distribution: Distribution) -> npt.NDArray[Any]:
    """Ranks of the process grid, in an array with one axis per tensor axis."""
    grid = np.asarray(distribution.ranks or range(int(np.prod(distribution.grid)))).reshape(distribution.grid)
    grid = grid[tuple(slice(None) if pin is None else slice(pin, pin + 1) for pin in distribution.pins)]
    axes = [axis for axis in distribution.dims if axis is not None]
    rest = [axis for axis in range(grid.ndim) if axis not in axes]
    shape = [1 if axis is None else grid.shape[axis] for axis in distribution.dims]
    ranks: npt.NDArray[Any] = grid.transpose([*axes, *rest]).reshape(shape)
    return ranks
