"""Function :func:`gather`."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from dace_redist.distribution import AnyDistribution
from dace_redist.integers import AnyInt
from dace_redist.mpi.collective import checked_communicator
from dace_redist.redistribution.problem.agreement import agreed_root
from dace_redist.redistribution.redistribute import redistribute


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
