"""Redistributes a matrix from NumPy with mpi4py. Run: mpiexec -n 4 python examples/numpy_mpi4py.py"""

import numpy as np
from mpi4py import MPI

import dace_redist

comm = MPI.COMM_WORLD
shape = (1000, 701)  # need not divide by the number of ranks
rows = dace_redist.Distribution(shape, (comm.size, 1))
columns = dace_redist.Distribution(shape, (1, comm.size))
whole = np.arange(1000.0 * 701).reshape(shape)  # only to make parts and to check them

# Once: a call that plans and moves. Later calls with the same distributions find the plan again.
mine = rows.local(whole, comm.rank).copy()
moved = dace_redist.redistribute(mine, rows, columns, comm=comm)
assert np.array_equal(moved, columns.local(whole, comm.rank))

# Often: a plan that holds buffers and MPI handles, and an array in node-shared memory, which is written only once.
out = dace_redist.shared_empty(columns.local_shape(comm.rank), "float64")
with dace_redist.plan(rows, columns, "float64", comm=comm, strategy="Pipelined", chunk_bytes=1 << 20) as to_columns:
    for step in range(10):
        to_columns(mine + step, out=out)
assert np.array_equal(out, columns.local(whole, comm.rank) + 9)

if comm.rank == 0:
    print(dace_redist.schedule(rows, columns, dtype="float64"))
