"""Two functions by MPI's calls, and by ours. Run: mpiexec -n 4 python examples/by_mpi_calls.py"""

import numpy as np
from mpi4py import MPI

from dace_redist import Distribution, redistribute, scatter

comm = MPI.COMM_WORLD
shape, size = (100, 70), comm.size
rows, columns = (Distribution.split(shape, axis, size) for axis in (0, 1))


def alltoallw(A):
    bounds = [[n // size * rank + min(rank, n % size) for rank in range(size + 1)] for n in shape]
    (height, width), first = np.diff(bounds), np.array(bounds)
    B = np.empty((shape[0], width[comm.rank]))
    sent = [MPI.DOUBLE.Create_subarray(A.shape, (len(A), width[r]), (0, first[1, r])) for r in range(size)]
    received = [MPI.DOUBLE.Create_subarray(B.shape, (height[r], B.shape[1]), (first[0, r], 0)) for r in range(size)]
    for datatype in (*sent, *received):
        datatype.Commit()
    comm.Alltoallw([A, ([1] * size, [0] * size), sent], [B, ([1] * size, [0] * size), received])
    for datatype in (*sent, *received):
        datatype.Free()
    return B


def scatterv(whole):
    bounds = [shape[1] // size * rank + min(rank, shape[1] % size) for rank in range(size + 1)]
    B = np.empty((shape[0], bounds[comm.rank + 1] - bounds[comm.rank]))
    packed = np.concatenate([part.ravel() for part in np.split(whole, bounds[1:-1], 1)]) if comm.rank == 0 else None
    comm.Scatterv([packed, shape[0] * np.diff(bounds)], B)
    return B


whole = np.arange(7000.0).reshape(shape)
moved = redistribute(rows.local(whole, comm.rank), rows, columns)
assert np.array_equal(alltoallw(rows.local(whole, comm.rank)), moved)
assert np.array_equal(scatterv(whole if comm.rank == 0 else None), scatter(whole if comm.rank == 0 else None, columns))
print("equal") if comm.rank == 0 else None
