"""Whole tensors on one rank: :func:`scatter`, :func:`gather`."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution
from dace_redist.integers import AnyInt
from dace_redist.mpi.collective import checked_communicator, together
from dace_redist.redistribution.arrays import array_view
from dace_redist.redistribution.problem.agreement import agreed_root
from dace_redist.redistribution.redistribute import redistribute


def scatter(whole: Any, target: AnyDistribution, comm: MPI.Intracomm | None = None, root: AnyInt = 0) -> Any:
    """
    Distribute a tensor that one rank has. Collective over ``comm``.

    :param whole: The tensor, of shape ``target.shape``, of any library that :func:`dace_redist.redistribute` takes.
        Only that of rank ``root`` is read.
    :param target: Distribution of the result.
    :param comm: mpi4py communicator; default: the world.
    :param root: Rank that has the tensor.
    :return: This rank's part: an array of NumPy; on rank ``root`` one of the library of ``whole``.
    :raises ValueError: On every rank, if an argument is invalid on one of them, as a tensor on a GPU.
    :raises TypeError: On every rank, if something is of the wrong type.
    """
    comm = checked_communicator(comm)
    source, element = agreed_root("target", target, comm, root), None
    with together(comm):
        if comm.rank == root:
            view = array_view("whole", whole)
            if view.shape != tuple(target.shape):
                raise ValueError(f"scatter: whole must have shape {tuple(target.shape)}, got {view.shape}")
            if view.device == "gpu":
                raise ValueError("scatter: whole must lie in main memory, but lies on the GPU: copy it first")
            element = view.dtype
    element = comm.bcast(element, int(root))
    part = whole if comm.rank == root else np.empty(source.local_shape(comm.rank), element)
    return redistribute(part, source, target, comm=comm)


def gather(part: Any, source: AnyDistribution, comm: MPI.Intracomm | None = None, root: AnyInt = 0) -> Any:
    """
    Collect a distributed tensor on one rank. Collective over ``comm``.

    :param part: This rank's part of the tensor, as for :func:`dace_redist.redistribute`.
    :param source: Its distribution.
    :param comm: mpi4py communicator; default: the world.
    :param root: Rank that gets the tensor.
    :return: The tensor, of the library and device of ``part``, on rank ``root``; None on all others.
    :raises ValueError: On every rank, if an argument is invalid on one of them.
    :raises TypeError: On every rank, if something is of the wrong type.
    """
    comm = checked_communicator(comm)
    whole = redistribute(part, source, agreed_root("source", source, comm, root), comm=comm)
    return whole if comm.rank == root else None
