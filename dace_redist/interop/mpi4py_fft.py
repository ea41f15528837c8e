"""
Arrays of mpi4py-fft: ``mpi4py_fft.DistArray``, in balanced blocks on a process grid. And its transfers, by plans.

``python -m dace_redist.interop.mpi4py_fft PROGRAM ...`` runs a program with :func:`install`.
"""

from __future__ import annotations

import functools
import runpy
import sys
from collections import Counter
from typing import Any

import numpy as np
from mpi4py import MPI

from dace_redist.distribution import Distribution
from dace_redist.interop import Part, blocks
from dace_redist.mpi.collective import remembered
from dace_redist.native.interface import prepare
from dace_redist.planned_distribution import balanced_lengths
from dace_redist.redistribution.cache import plan_cache
from dace_redist.redistribution.problem import Arguments, Problem


def read(array: Any, comm: MPI.Intracomm) -> Part:
    """
    Return this rank's part of an array. Local.

    :raises ValueError: If the array's communicators are not those of a row-major grid over the ranks of ``comm``.
    """
    local = array.view(np.ndarray)
    if array._p0 is None:  # of one dimension: each rank has the whole
        return Part(local, blocks.split(array.shape, None, (), comm.size), comm)
    shape, grid = tuple(array.global_shape), array.commsizes
    ranks = np.arange(np.prod(grid)).reshape(grid)
    group, coordinates = comm.Get_group(), [own.rank for own in array.subcomm]
    for axis, own in enumerate(array.subcomm):
        line = np.moveaxis(ranks, axis, -1)[tuple(coordinates[:axis] + coordinates[axis + 1 :])].tolist()
        members = MPI.Group.Translate_ranks(own.Get_group(), list(range(own.size)), group)
        if ranks.size != comm.size or list(members) != line:
            raise ValueError(
                f"array must lie on a row-major grid {tuple(grid)} over the {comm.size} ranks of comm, but its axis "
                f"{axis} is split over the ranks {list(members)}, not {line}: pass the communicator of the array"
            )
    lengths = tuple(balanced_lengths(extent, parts) for extent, parts in zip(shape, grid, strict=True))
    return Part(local, blocks.Blocks(lengths, ranks[..., None]).distribution(), comm)


def make(part: Part, rank: int = 0) -> Any:
    """
    Return a ``DistArray`` without a copy, unless the local array is not in C order. Collective.

    The distribution has balanced blocks, ranks in row-major order, and an axis that is not split.

    :param rank: Number of leading axes that are components of a vector or tensor.
    """
    from mpi4py_fft import DistArray
    from mpi4py_fft.pencil import Subcomm

    of = blocks.Blocks.of(part.distribution)
    parts = of.ranks.shape[:-1]
    fits = all(lengths == balanced_lengths(sum(lengths), len(lengths)) for lengths in of.lengths)
    if (
        not fits
        or not np.array_equal(of.ranks.ravel(), np.arange(part.comm.size))
        or of.ranks.shape[-1] > 1
        or (1 not in parts[rank:] or set(parts[:rank]) > {1})
    ):
        raise ValueError(
            f"mpi4py-fft has balanced blocks on {part.comm.size} ranks in row-major order and an axis that is not "
            f"split; got {part.distribution}: redistribute() first"
        )
    grid = part.comm.Create_cart(parts[rank:], reorder=False)
    return DistArray(
        of.shape, Subcomm(grid), dtype=part.local.dtype, buffer=np.ascontiguousarray(part.local), rank=rank
    )


class Installed:
    """Replacement of ``mpi4py_fft.pencil.Transfer``; a context manager that takes it back at the end."""

    def __init__(self, pencil: Any, transfer: type) -> None:
        self._pencil, self._before = pencil, pencil.Transfer
        pencil.Transfer = transfer

    def remove(self) -> None:
        """Make transfers as before from now on."""
        self._pencil.Transfer = self._before

    def __enter__(self) -> Installed:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def install(*, min_bytes: int = 4096, calls: int = 2) -> Installed:
    """
    Have mpi4py-fft move its arrays by plans, which transfers of equal shapes on a communicator share. Local; all ranks
    must do so, ahead of the first transfer, with the same arguments.

    :param min_bytes: Mean bytes between two ranks below which transfers stay with ``Alltoallw``.
    :param calls: Number of equal transfers that stay with it before a plan is made, which takes longer.
    """
    from mpi4py_fft import pencil

    return Installed(pencil, _transfer_class(pencil, min_bytes, calls))


@functools.lru_cache(maxsize=256)
def _problem(shape: tuple[int, ...], dtype: np.dtype[Any], whole: int, split: int, ranks: int) -> Problem:
    """Return the transfer of an array that is whole along one axis and split along another to the other way round."""
    source, target = (Distribution.split(shape, axis, ranks) for axis in (split, whole))
    return Arguments(source, target, {}, "Hierarchical", {}, None).checked(dtype, ranks)


def _transfer_class(pencil: Any, min_bytes: int, calls: int) -> type:
    class Transfer(pencil.Transfer):  # type: ignore[misc,name-defined]
        """mpi4py-fft's transfer, by a plan where that pays."""

        def __init__(
            self, comm: Any, shape: Any, dtype: Any, subshapeA: Any, axisA: int, subshapeB: Any, axisB: int
        ) -> None:
            self.comm, self.shape, self.dtype = comm, tuple(shape), np.dtype(dtype)
            self.subshapeA, self.axisA = tuple(subshapeA), axisA
            self.subshapeB, self.axisB = tuple(subshapeB), axisB
            size = comm.size
            self._counts_displs = [1] * size, [0] * size
            self._fits = np.prod(self.shape) * self.dtype.itemsize >= min_bytes * size**2

        def __getattr__(self, name: str) -> Any:
            """Make the datatypes at their first use."""
            if name not in ("_subtypesA", "_subtypesB"):
                raise AttributeError(name)
            axis, subshape = (self.axisA, self.subshapeA) if name == "_subtypesA" else (self.axisB, self.subshapeB)
            types = pencil._subarraytypes(self.comm, self.shape, axis, subshape, self.dtype)
            setattr(self, name, types)
            return types

        def forward(self, arrayA: Any, arrayB: Any) -> None:
            if not self._moved(arrayA, arrayB, self.axisA, self.axisB):
                super().forward(arrayA, arrayB)

        def backward(self, arrayB: Any, arrayA: Any) -> None:
            if not self._moved(arrayB, arrayA, self.axisB, self.axisA):
                super().backward(arrayB, arrayA)

        def _moved(self, array: Any, out: Any, whole: int, split: int) -> bool:
            """Move by a plan, if there is to be one: then return True."""
            if not self._fits:
                return False
            problem = _problem(self.shape, self.dtype, whole, split, self.comm.size)
            cache = plan_cache(self.comm)
            if problem not in cache.plans:
                used = remembered(self.comm, "transfers of mpi4py-fft", Counter[Problem])
                used[problem] += 1
                if used[problem] <= calls:
                    return False
                prepare(self.comm)
            cache.get(self.comm, problem)(np.asarray(array), np.asarray(out))
            return True

        def destroy(self) -> None:
            for name in ("_subtypesA", "_subtypesB"):
                for datatype in self.__dict__.pop(name, ()):
                    datatype.Free()

    return Transfer


if __name__ == "__main__":
    del sys.argv[0]
    install()
    runpy.run_path(sys.argv[0], run_name="__main__")
