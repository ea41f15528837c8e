"""Arrays of mpiarray: ``mpiarray.DistributedArray``, in blocks on a row-major process grid, or on every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from dace_redist.interop import Part, blocks


def communicator(array: Any) -> MPI.Intracomm:
    """Return the communicator of an array."""
    own = array.layout.comm
    return own if isinstance(own, MPI.Intracomm) else MPI.COMM_SELF  # mpiarray's stand-in of one rank


def read(array: Any, comm: MPI.Intracomm) -> Part:
    """Return this rank's part of an array, without its halo. Local."""
    layout, own = array.layout, communicator(array)
    lengths = tuple(tuple(np.diff(cuts).tolist()) for cuts in layout.bounds)
    ranks = np.arange(own.size).reshape(*layout.process_grid, -1)
    return Part(np.asarray(array.local), blocks.Blocks(lengths, ranks).distribution(), own)


def make(part: Part) -> Any:
    """
    Return a ``DistributedArray`` without a copy and without a halo.

    The distribution has one block for each rank, ranks in row-major order and no part empty, or is replicated.
    """
    import mpiarray

    of = blocks.Blocks.of(part.distribution)
    in_order = np.array_equal(of.ranks.ravel(), np.arange(part.comm.size))
    if not in_order or 1 not in (of.ranks.shape[-1], of.ranks[..., 0].size) or 0 in sum(of.lengths, ()):
        raise ValueError(
            f"mpiarray has one block, not empty, on each of {part.comm.size} ranks in row-major order, or all; got "
            f"{part.distribution}: redistribute() first"
        )
    bounds = [np.cumsum([0, *lengths]).tolist() for lengths in of.lengths]
    layout = (
        mpiarray.Layout(of.shape, comm=part.comm, bounds=bounds)
        if of.ranks.shape[-1] == 1
        else mpiarray.Layout(of.shape, comm=part.comm, split=None)
    )
    return mpiarray.DistributedArray(layout, part.local)
