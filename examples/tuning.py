"""Measures strategies for one redistribution, and uses the fastest. Run: mpiexec -n 4 python examples/tuning.py"""

import numpy as np
from mpi4py import MPI

import dace_redist

comm = MPI.COMM_WORLD
shape = (720, 840)
source = dace_redist.Distribution(shape, (2, 2))
target = dace_redist.Distribution(shape, (4, 1), block=(16, None))  # rows in cycles of 16

found = dace_redist.tune(source, target, "float32", comm, limit_seconds=5)

A = np.full(source.local_shape(comm.rank), comm.rank, "float32")
with dace_redist.plan(source, target, "float32", comm=comm, **found.best) as plan:
    B = plan(A)

if comm.rank == 0:
    print(found)  # every candidate with its time
    print(f"moved by {plan.strategy} {plan.options}")
