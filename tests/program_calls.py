"""A program that calls ``dace_redist.redistribute``; annotations are not postponed, see redistribute_test_programs."""

import dace
import numpy as np

import dace_redist
from dace_redist import Distribution

N, M = dace.symbol("N"), dace.symbol("M")
#: Over three ranks; the last one has all of ``WHOLE``.
ROWS, COLUMNS = Distribution((N, 10), (3,)), Distribution((10, N), (1, 3))
WHOLE = Distribution((9, 9), (1,), ranks=[2])


@dace.program
def redistribute_calls(A: dace.float64[M, 10], B: dace.float64[9, 9]):
    dace_redist.redistribute(A, ROWS, WHOLE, out=B, region=((1, 2), (0, 3), (N - 2, 6)), beta=1)
    return dace_redist.redistribute(A, ROWS, COLUMNS, axes=(1, 0), target_dtype=np.float32)


FOLDED = Distribution((N, 2, 5), (1, 1, 3))


@dace.program
def reshape_calls(A: dace.float64[M, 10]):
    B = dace_redist.redistribute(A, ROWS, FOLDED, reshape=(N, 2, 5), alpha=2)
    return dace_redist.redistribute(B, FOLDED, COLUMNS, axes=(1, 2, 0), reshape=(10, -1))


#: Over two ranks: rows, columns, columns as local arrays hold them transposed, and columns of the transpose.
HALVES, SIDES = Distribution((8, 6), (2, 1)), Distribution((8, 6), (1, 2))
SAME_HALVES = Distribution((8, 6), (2,))
TURNED, WANTED = Distribution((6, 8), (1, 2), dims=(1, 0)), Distribution((6, 8), (1, 2))


@dace.program
def columns_of_the_transpose(A: dace.float64[4, 6]):
    B = dace_redist.redistribute(A, HALVES, SIDES, alpha=2)
    return dace_redist.redistribute(np.transpose(B), TURNED, WANTED, alpha=3)


@dace.program
def transposed_before(A: dace.float64[4, 6]):
    return dace_redist.redistribute(np.transpose(A), WANTED, TURNED)


@dace.program
def there_already(A: dace.float64[4, 6]):
    return dace_redist.redistribute(A, HALVES, SAME_HALVES)
