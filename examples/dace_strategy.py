"""Sets the strategy of a DaCe program that redistributes. Run: mpiexec -n 4 python examples/dace_strategy.py"""

import dace
import numpy as np
from dace.sdfg.utils import distributed_compile
from mpi4py import MPI

import dace_redist


@dace.program
def squares_to_rows(A: dace.float64[32, 32]):
    squares = dace.comm.Cart_create([2, 2])
    rows = dace.comm.Cart_create([4, 1])
    B = np.empty_like(A, shape=(16, 64))
    source = dace.comm.Subarray((64, 64), A, process_grid=squares)
    target = dace.comm.Subarray((64, 64), B, process_grid=rows)
    dace.comm.Redistribute(A, source, B, target)
    return B


comm = MPI.COMM_WORLD
sdfg = squares_to_rows.to_sdfg()
dace_redist.set_strategy(sdfg, "Pipelined", chunk_bytes=1 << 20)  # the program itself does not change
program = distributed_compile(sdfg, comm)  # rank 0 compiles, all load

whole = np.arange(64.0 * 64).reshape(64, 64)
i, j = divmod(comm.rank, 2)
B = program(A=whole[32 * i : 32 * (i + 1), 32 * j : 32 * (j + 1)].copy())
assert np.array_equal(B, whole[16 * comm.rank : 16 * (comm.rank + 1)])
if comm.rank == 0:
    print("rank 0 has the first 16 rows")
