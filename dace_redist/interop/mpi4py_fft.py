"""Arrays of mpi4py-fft: ``mpi4py_fft.DistArray``, in balanced blocks on a process grid."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from dace_redist.interop import Part, blocks
from dace_redist.mpi.collective import together
from dace_redist.planned_distribution import balanced_lengths


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

    The distribution has balanced blocks, none empty, ranks in row-major order, and an axis that is not split.

    :param rank: Number of leading axes that are components of a vector or tensor.
    :raises ValueError: On every rank, if mpi4py-fft does not have the distribution, or ranks differ in ``rank``.
    """
    from mpi4py_fft import DistArray
    from mpi4py_fft.pencil import Subcomm

    with together(part.comm, {"rank": rank}):
        of = blocks.Blocks.of(part.distribution)
        parts = of.ranks.shape[:-1]
        fits = all(0 not in lengths == balanced_lengths(sum(lengths), len(lengths)) for lengths in of.lengths)
        if (
            not fits
            or not np.array_equal(of.ranks.ravel(), np.arange(part.comm.size))
            or of.ranks.shape[-1] > 1
            or (1 not in parts[rank:] or set(parts[:rank]) > {1})
        ):
            raise ValueError(
                f"mpi4py-fft has balanced blocks, none empty, on {part.comm.size} ranks in row-major order and an axis "
                f"that is not split; got {part.distribution}: redistribute() first"
            )
    grid = part.comm.Create_cart(parts[rank:], reorder=False)
    return DistArray(
        of.shape, Subcomm(grid), dtype=part.local.dtype, buffer=np.ascontiguousarray(part.local), rank=rank
    )
