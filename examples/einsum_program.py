"""Distributes a program of einsums over all ranks. Run: mpiexec -n 4 python examples/einsum_program.py"""

import dace
import numpy as np
from mpi4py import MPI

import dace_redist

I, J, K, R = (dace.symbol(name, dace.int64) for name in "IJKR")  # noqa: E741


@dace.program
def gram_of_mttkrp(X: dace.float64[I, J, K], B: dace.float64[J, R], C: dace.float64[K, R]):
    M = np.einsum("ijk,ja,ka->ia", X, B, C)
    return M.T @ M


comm = MPI.COMM_WORLD
sizes = dict(I=60, J=50, K=40, R=6)
program = dace_redist.distribute(gram_of_mttkrp, comm.size, sizes)
if comm.rank == 0:
    print(program)  # contraction order, process grids, bytes per rank

rng = np.random.default_rng(0)  # the same on every rank
X, B, C = rng.random((60, 50, 40)), rng.random((50, 6)), rng.random((40, 6))
parts = program.scatter(X=X, B=B, C=C)  # or make each part in place: program.inputs["X"].distribution
part = program.run(**parts)  # the first run compiles
result = program.gather(part)  # None except on rank 0

if comm.rank == 0:
    M = np.einsum("ijk,ja,ka->ia", X, B, C)
    assert np.allclose(result, M.T @ M)
    print("equal to NumPy's result")
