"""Program of two groups that MPI connects: ``spawn`` on 2 ranks, which spawn 3, or ``connect`` on 5 ranks."""

from __future__ import annotations

import sys

from mpi.test_groups import random_pairs
from mpi4py import MPI
from seeds import some


def connected() -> tuple[MPI.Intercomm, bool]:
    """Return the intercommunicator of 2 and 3 ranks, and True in the first group."""
    world, parent = MPI.COMM_WORLD, MPI.Comm.Get_parent()
    if parent != MPI.COMM_NULL:
        return parent, False
    if sys.argv[1] == "spawn":
        return world.Spawn(sys.executable, sys.argv, maxprocs=3), True
    first = world.rank < 2
    port = world.bcast(MPI.Open_port() if world.rank == 0 else None)
    group = world.Split(0 if first else 1)
    return group.Accept(port) if first else group.Connect(port), first


inter, first = connected()
random_pairs(inter, first, some(20))
inter.Disconnect()
print("moved all\n", end="", flush=True)
