"""Arrays of PETSc by petsc4py: ``Vec``, also of a ``DMDA``, and dense ``Mat``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import Distribution
from dace_redist.interop import Part, blocks

#: PETSc's types of dense matrices in main memory.
_DENSE = ("seqdense", "mpidense")


def communicator(array: Any) -> MPI.Intracomm:
    """Return the communicator of an array or a ``DMDA``; a ValueError if it is destroyed, or was never created."""
    if not array:
        kind = type(array).__name__
        raise ValueError(f"{kind} of PETSc is not in use: destroyed, or never created; pass it before destroy()")
    return array.comm.tompi4py()  # type: ignore[no-any-return]


def read(array: Any, comm: MPI.Intracomm) -> Part:
    """Return this rank's part of an array. Local."""
    where, own = distribution(array), communicator(array)
    shape = where.local_shape(own.rank)
    if hasattr(array, "getDenseArray"):
        return Part(array.getDenseArray(readonly=True), where, own)
    return Part(_in_order_of_axes(array.getArray(readonly=True), shape, _components(dm_of(array))), where, own)


def distribution(of: Any) -> Distribution:
    """
    Return the distribution of a ``DMDA``, a ``Vec`` or a ``Mat``. Local.

    Axes of a ``DMDA`` are x, y, z and, if there are several, its degrees of freedom, as ``getVecArray`` has them.

    :raises ValueError: If a ``Mat`` is not dense, a ``Vec`` is a local one of its ``DMDA``, or it has been destroyed.
    """
    size = communicator(of).size
    if hasattr(of, "getDenseArray"):
        if of.getType() not in _DENSE:  # PETSc does not show the memory of its ScaLAPACK matrices
            raise ValueError(f'Mat must be dense, got {of.getType()}: pass Mat.convert("dense", PETSc.Mat())')
        return blocks.split(of.getSize(), 0, np.diff(of.getOwnershipRanges()).tolist(), size)
    dm = dm_of(of) if hasattr(of, "getArray") else of
    if not dm or dm.getType() != "da":
        return blocks.split((of.getSize(),), 0, np.diff(of.getOwnershipRanges()).tolist(), size)
    lengths = tuple(tuple(map(int, of_axis)) for of_axis in dm.getOwnershipRanges())
    ranks = np.arange(dm.comm.size).reshape(dm.getProcSizes(), order="F")
    if _components(dm) > 1:
        lengths, ranks = (*lengths, (_components(dm),)), ranks[..., None]
    where = blocks.Blocks(lengths, ranks[..., None])
    if of is not dm and (size, of.getSize()) != (dm.comm.size, math.prod(where.shape)):
        raise ValueError(
            f"Vec must be a global one of its DMDA, with {math.prod(where.shape)} elements, but has {of.getSize()}, as "
            "local ones have: call DMDA.localToGlobal() first"
        )
    return where.distribution()


def make(part: Part, kind: str = "vec", dm: Any = None) -> Any:
    """
    Return a ``Vec`` of a ``DMDA``, or a ``Mat``. Collective. A local array that is not Fortran-ordered is copied.

    :param kind: ``"vec"``, or ``"dense"`` for a ``Mat``.
    :param dm: ``DMDA`` of the ``Vec``; default: a new one, with one degree of freedom.
    :raises ValueError: If PETSc does not have the distribution; names one that it has.
    :raises TypeError: If elements are not PETSc's scalars.
    """
    from petsc4py import PETSc

    if kind not in ("vec", "dense") or (dm is not None and kind != "vec"):
        raise ValueError(
            f"kind must be vec or dense, and vec if dm is given; got {kind!r}: Mat.convert() makes "
            "others of a dense one"
        )
    if part.local.dtype != PETSc.ScalarType:
        scalar = np.dtype(PETSc.ScalarType)
        raise TypeError(
            f"elements of this PETSc are {scalar}, got {part.local.dtype}: redistribute() with target_dtype"
        )
    return _dense(PETSc, part) if kind == "dense" else _vec(PETSc, part, dm)


def dm_of(vec: Any) -> Any:
    """Return the ``DM`` of a ``Vec`` by its own class; false if there is none."""
    dm = vec.getDM()
    if dm and type(dm).__name__ == "DM":  # petsc4py 3.18 has the base class only, and does not count the reference
        dm.incRef()
        vec.compose("dace_redist", dm)
        dm = vec.query("dace_redist")
        vec.compose("dace_redist", None)
    return dm


def _components(dm: Any) -> int:
    return int(dm.getDof()) if dm and dm.getType() == "da" else 1


def _in_order_of_axes(flat: npt.NDArray[Any], shape: tuple[int, ...], components: int) -> npt.NDArray[Any]:
    """Return a view of a ``Vec``'s memory, whose degrees of freedom are closest, then the axes x, y, z."""
    if components == 1:
        return flat.reshape(shape, order="F")
    return np.moveaxis(flat.reshape((components, *shape[:-1]), order="F"), 0, -1)


def _check_fits(part: Part, expected: Distribution, remedy: str) -> None:
    if not expected.is_equivalent_to(part.distribution):
        raise ValueError(f"PETSc needs {expected}, got {part.distribution}: redistribute() to {remedy} first")


def _vec(petsc: Any, part: Part, dm: Any) -> Any:
    if dm is None:
        of = blocks.Blocks.of(part.distribution)
        grid, size = of.ranks.shape[:-1], part.comm.size
        if not 1 <= len(grid) <= 3 or of.ranks.size != size or of.ranks.shape[-1] > 1:
            raise ValueError(f"a DMDA has 1 to 3 axes and one block on each of {size} ranks, got {part.distribution}")
        how = {"sizes": of.shape, "proc_sizes": grid, "ownership_ranges": of.lengths, "stencil_width": 0}
        ranks = np.arange(size).reshape(grid, order="F")
        _check_fits(part, blocks.Blocks(of.lengths, ranks[..., None]).distribution(), "it")
        dm = petsc.DMDA().create(dim=len(grid), dof=1, comm=part.comm, **how)
    _check_fits(part, distribution(dm), "interop.petsc.distribution(dm)")
    local = part.local if _components(dm) == 1 else np.moveaxis(part.local, -1, 0)
    vec = dm.createGlobalVec()
    vec.placeArray(np.asfortranarray(local).ravel(order="F"))
    return vec


def _dense(petsc: Any, part: Part) -> Any:
    of, size = blocks.Blocks.of(part.distribution), part.comm.size
    if of.ranks.shape != (size, 1, 1) or not np.array_equal(of.ranks.ravel(), np.arange(size)):
        raise ValueError(
            f"PETSc splits the rows of dense matrices over ranks 0 to {size - 1}, got {part.distribution}: "
            f"redistribute() to Distribution.split(shape, 0, {size}) first"
        )
    rows, columns = of.shape
    sizes = (of.lengths[0][part.comm.rank], rows), (None, columns)
    return petsc.Mat().createDense(sizes, array=np.asfortranarray(part.local), comm=part.comm)
