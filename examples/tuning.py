"""Tunes one redistribution; from then on "Auto" takes the winner. Run: mpiexec -n 4 python examples/tuning.py"""

import numpy as np
from mpi4py import MPI

import dace_redist

comm = MPI.COMM_WORLD
shape = (720, 840)
source = dace_redist.Distribution(shape, (2, 2))
target = dace_redist.Distribution(shape, (4, 1), block=(16, None))  # rows in cycles of 16

before = dace_redist.chosen_strategy(source, target, "float32", comm)  # the default
found = dace_redist.tune(source, target, "float32", comm, limit_seconds=5)
after = dace_redist.chosen_strategy(source, target, "float32", comm)  # as recorded

A = np.full(source.local_shape(comm.rank), comm.rank, "float32")
with dace_redist.plan(source, target, "float32", comm=comm) as plan:  # strategy="Auto" by default
    B = plan(A)
    assert plan.strategy == after.strategy  # the default, if a busy machine did not let tune decide

if comm.rank == 0:
    print(found)  # every candidate with its time, and the file that holds the winner
    print(f"Auto took {before.strategy} before, {after.strategy} {after.options} now")
