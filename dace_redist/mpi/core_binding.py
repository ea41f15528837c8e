"""Ranks that share cores, dealt out evenly."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def pinned_to_core(comm: Any) -> Iterator[int | None]:
    """
    Keeps this rank on one core, if the ranks of its node share all cores and there are no more cores than ranks.

    Linux may leave three of four busy ranks on one of two cores for tens of milliseconds while a rank on the other only
    waits; what is measured then is where they happened to wake up. Ranks that the launcher bound to cores of their own
    are left alone. Entering is collective; afterwards the rank may run where it could before.

    :param comm: mpi4py communicator of the ranks that compute.
    :return: The core, or None if the rank is left where it is.
    """
    from mpi4py import MPI

    cores = sorted(os.sched_getaffinity(0))
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    shared = all(other == cores for other in node.allgather(cores))
    rank, ranks = int(node.rank), int(node.size)
    node.Free()
    if not shared or ranks < len(cores):
        yield None
        return
    core = cores[rank * len(cores) // ranks]
    os.sched_setaffinity(0, [core])
    try:
        yield core
    finally:
        os.sched_setaffinity(0, cores)
