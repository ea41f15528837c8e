"""Applies this package's transformations to an SDFG. Run: mpiexec -n 4 python examples/transform_sdfg.py"""

import dace
import numpy as np
from dace.sdfg.utils import distributed_compile
from mpi4py import MPI

import dace_redist


@dace.program
def doubled_to_rows(A: dace.float64[32, 32]):
    squares = dace.comm.Cart_create([2, 2])
    rows = dace.comm.Cart_create([4, 1])
    B = np.empty_like(A, shape=(16, 64))
    source = dace.comm.Subarray((64, 64), A, process_grid=squares)
    target = dace.comm.Subarray((64, 64), B, process_grid=rows)
    dace.comm.Redistribute(2 * A, source, B, target)
    return B + 1


comm = MPI.COMM_WORLD
sdfg = doubled_to_rows.to_sdfg()  # or dace.SDFG.from_file("program.sdfg")

lowered = sdfg.apply_transformations_repeated(
    dace_redist.transformations.LowerRedistribute
)  # DaCe's Redistribute -> this package's
dace_redist.set_strategy(sdfg, "Hierarchical", where="*")  # or a function of node and state
shared = sdfg.apply_transformations_repeated(
    dace_redist.transformations.PlaceInSharedMemory
)  # transients next to a redistribution
sdfg.validate()

program = distributed_compile(sdfg, comm)  # rank 0 compiles, all load
whole = np.arange(64.0 * 64).reshape(64, 64)
i, j = divmod(comm.rank, 2)
B = program(A=whole[32 * i : 32 * (i + 1), 32 * j : 32 * (j + 1)].copy())
assert np.array_equal(B, 2 * whole[16 * comm.rank : 16 * (comm.rank + 1)] + 1)
if comm.rank == 0:
    print(f"{lowered} redistribution lowered, {shared} between arrays in node-shared memory")
