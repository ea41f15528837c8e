"""The programs of DaCe's ``tests/library/mpi/redistribute_test.py``, written anew, and one that stock DaCe cannot run.

Source: https://github.com/spcl/dace, Copyright ETH Zurich and the DaCe authors, BSD-3-Clause. They are symbolic in the
number P of ranks, which is even. Annotations are not postponed: DaCe would look for their names among the globals.
"""

import dace
import numpy as np

P, N, S, T, F, G = (dace.symbol(name) for name in ("P", "N", "S", "T", "F", "G"))


@dace.program
def columns_to_rows_of_blocks(A: dace.int32[4 * P, 16], B: dace.int32[16, 4 * P]):
    first, second = dace.comm.Cart_create([2, P // 2]), dace.comm.Cart_create([P // 2, 2])
    source = dace.comm.Subarray((8 * P, 8 * P), A, process_grid=first)
    target = dace.comm.Subarray((8 * P, 8 * P), B, process_grid=second)
    dace.comm.Redistribute(A, source, B, target)


@dace.program
def blocks_to_rows(A: dace.int32[4 * P, 16], B: dace.int32[8, 8 * P]):
    first, second = dace.comm.Cart_create([2, P // 2]), dace.comm.Cart_create([P, 1])
    source = dace.comm.Subarray((8 * P, 8 * P), A, process_grid=first)
    target = dace.comm.Subarray((8 * P, 8 * P), B, process_grid=second)
    dace.comm.Redistribute(A, source, B, target)


@dace.program
def transposed_grid(A: dace.int32[4 * P, 16], B: dace.int32[4 * P, 16]):
    first, second = dace.comm.Cart_create([2, P // 2]), dace.comm.Cart_create([P // 2, 2])
    source = dace.comm.Subarray((8 * P, 8 * P), A, process_grid=first)
    target = dace.comm.Subarray((8 * P, 8 * P), B, process_grid=second, correspondence=(1, 0))
    dace.comm.Redistribute(A, source, B, target)


@dace.program
def scattered_vector(A: dace.int32[8 * P], B: dace.int32[16]):
    first, second = dace.comm.Cart_create([2, P // 2]), dace.comm.Cart_create([P // 2, 2])
    scatter = dace.comm.Cart_sub(first, [False, True], exact_grid=0)
    replicate = dace.comm.Cart_sub(first, [True, False])
    first_column = dace.comm.Cart_sub(second, [True, False], exact_grid=0)
    part = np.empty_like(A, shape=(16,))
    B[:] = 0
    source = dace.comm.BlockScatter(A, part, scatter, replicate)
    target = dace.comm.Subarray((8 * P,), B, process_grid=first_column)
    dace.comm.Redistribute(part, source, B, target)


@dace.program
def ragged(A: dace.int32[S], B: dace.int32[T]):
    first, second = dace.comm.Cart_create([F]), dace.comm.Cart_create([G])
    source = dace.comm.Subarray((N,), A, process_grid=first)
    target = dace.comm.Subarray((N,), B, process_grid=second)
    dace.comm.Redistribute(A, source, B, target)


PROGRAMS = {
    program.f.__name__: program
    for program in (columns_to_rows_of_blocks, blocks_to_rows, transposed_grid, scattered_vector, ragged)
}
