"""Ranks that call one operation after another, of which the last rank calls each late; see test_waiting.py."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from dace_redist import DistributedArray, Distribution, plan, redistribute, save

world = MPI.COMM_WORLD


def late() -> None:
    """Wait on the last rank for longer than the others do before they say so."""
    world.Barrier()
    time.sleep(3 if world.rank == world.size - 1 else 0)


def pair(comm: MPI.Intracomm) -> tuple[Distribution, Distribution, np.ndarray]:
    rows, columns = Distribution((8, 8), (comm.size, 1)), Distribution((8, 8), (1, comm.size))
    return rows, columns, np.ones(rows.local_shape(comm.rank))


rows, columns, part = pair(MPI.COMM_SELF)
redistribute(part, rows, columns, comm=MPI.COMM_SELF)  # loads the library, which may take seconds
rows, columns, part = pair(world)
late()
redistribute(part, rows, columns)  # of a communicator that was never used
late()
save(Path(sys.argv[1], "late.npy"), DistributedArray(part, rows, world))
with plan(rows, columns, part.dtype) as move:
    late()
    move(part)
last_two = world.Split(world.rank == 0, -world.rank)
rows, columns, part = pair(last_two)
late()
if world.rank > 0:
    redistribute(part, rows, columns, comm=last_two)
