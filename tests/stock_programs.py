"""DaCe programs with stock redistributions, as users write them."""

from __future__ import annotations

import copy
import functools
import warnings

import dace
import numpy as np

N, P, Q = (dace.symbol(name) for name in "NPQ")


@dace.program
def plain(A: dace.float64[4, 4]):
    rows, columns = dace.comm.Cart_create([2, 2]), dace.comm.Cart_create([4, 1])
    B = np.empty_like(A, shape=(2, 8))
    source = dace.comm.Subarray((8, 8), A, process_grid=rows)
    target = dace.comm.Subarray((8, 8), B, process_grid=columns)
    dace.comm.Redistribute(A, source, B, target)
    return B


@dace.program
def symbolic(A: dace.float64[N, 4 * Q]):
    first, second = dace.comm.Cart_create([P, Q]), dace.comm.Cart_create([Q, P])
    B = np.empty_like(A, shape=(N * P // Q, 4 * Q * Q // P))
    source = dace.comm.Subarray((N * P, 4 * Q * Q), A, process_grid=first)
    target = dace.comm.Subarray((N * P, 4 * Q * Q), B, process_grid=second, correspondence=(0, 1))
    dace.comm.Redistribute(A, source, B, target)
    return B


@dace.program
def correspondence(A: dace.int32[4, 2]):
    grid = dace.comm.Cart_create([2, 4])
    B = np.empty_like(A, shape=(2, 4))
    source = dace.comm.Subarray((8, 8), A, process_grid=grid)
    target = dace.comm.Subarray((8, 8), B, process_grid=grid, correspondence=(1, 0))
    dace.comm.Redistribute(A, source, B, target)
    return B


def on_sub_grids(name: str, in_rows: int | None, in_columns: int | None):
    """Return a program between sub-grids of rows and columns: those with a given rank, or for None all replicas."""

    @dace.program
    def program(A: dace.float64[4], B: dace.float64[2]):
        grid = dace.comm.Cart_create([2, 4])
        rows = dace.comm.Cart_sub(grid, [True, False], exact_grid=in_rows)
        columns = dace.comm.Cart_sub(grid, [False, True], exact_grid=in_columns)
        source = dace.comm.Subarray((8,), A, process_grid=rows)
        target = dace.comm.Subarray((8,), B, process_grid=columns)
        dace.comm.Redistribute(A, source, B, target)

    program.f.__name__ = name
    return program


first_of_sub_grids, other_sub_grids = on_sub_grids("first_of_sub_grids", 0, 0), on_sub_grids("other_sub_grids", 3, 6)
replicas = on_sub_grids("replicas", None, None)


@dace.program
def symbolic_sub_grid(A: dace.float64[4], B: dace.float64[2]):
    grid = dace.comm.Cart_create([P, 4])
    columns = dace.comm.Cart_sub(grid, [False, True], exact_grid=4 * P - 1)
    whole = dace.comm.Cart_create([2])
    source = dace.comm.Subarray((8,), A, process_grid=whole)
    target = dace.comm.Subarray((8,), B, process_grid=columns)
    dace.comm.Redistribute(A, source, B, target)


@dace.program
def there_and_back(A: dace.float64[4, 4]):
    square, rows = dace.comm.Cart_create([2, 2]), dace.comm.Cart_create([4, 1])
    B = np.empty_like(A, shape=(2, 8))
    C = np.empty_like(A)
    in_square = dace.comm.Subarray((8, 8), A, process_grid=square)
    in_rows = dace.comm.Subarray((8, 8), B, process_grid=rows)
    there = dace.comm.Redistribute(A, in_square, B, in_rows)  # noqa: F841 (names the descriptor)
    back = dace.comm.Redistribute(B, in_rows, C, in_square)  # noqa: F841
    return C


@dace.program
def scattered(A: dace.float64[8, 8]):
    square, rows = dace.comm.Cart_create([2, 2]), dace.comm.Cart_create([4, 1])
    part = np.empty_like(A, shape=(4, 4))
    B = np.empty_like(A, shape=(2, 8))
    source = dace.comm.BlockScatter(A, part, square)
    target = dace.comm.Subarray((8, 8), B, process_grid=rows)
    dace.comm.Redistribute(part, source, B, target)
    return B


@dace.program
def gathered(A: dace.float64[4, 4], C: dace.float64[8, 8]):
    square, rows = dace.comm.Cart_create([2, 2]), dace.comm.Cart_create([4, 1])
    B = np.empty_like(A, shape=(2, 8))
    source = dace.comm.Subarray((8, 8), A, process_grid=square)
    target = dace.comm.Subarray((8, 8), B, process_grid=rows)
    dace.comm.Redistribute(A, source, B, target)
    dace.comm.BlockGather(B, C, rows)


@dace.program
def in_a_loop(A: dace.float64[4, 4], B: dace.float64[2, 8]):
    square, rows = dace.comm.Cart_create([2, 2]), dace.comm.Cart_create([4, 1])
    source = dace.comm.Subarray((8, 8), A, process_grid=square)
    target = dace.comm.Subarray((8, 8), B, process_grid=rows)
    for i in range(N):
        A[:] = A + i
        dace.comm.Redistribute(A, source, B, target)


@dace.program
def calls(A: dace.float64[4, 4]):
    B = plain(A)
    return B + 1


@dace.program
def calls_twice(A: dace.float64[4, 4]):
    B = plain(A)
    C = plain(A + 1)
    return B + C


@dace.program
def by_rows(A: dace.float64[N, 4]):
    rows, columns = dace.comm.Cart_create([P, 1]), dace.comm.Cart_create([1, P])
    B = np.empty_like(A, shape=(N * P, 4 // P))
    source = dace.comm.Subarray((N * P, 4), A, process_grid=rows)
    target = dace.comm.Subarray((N * P, 4), B, process_grid=columns)
    dace.comm.Redistribute(A, source, B, target)
    return B


@dace.program
def calls_with_sizes(A: dace.float64[6, 4]):
    return by_rows(A, P=2)


@dace.program
def to_columns(A: dace.float64[4, 4]):
    rows, columns = dace.comm.Cart_create([2, 2]), dace.comm.Cart_create([1, 4])
    B = np.empty_like(A, shape=(8, 2))
    source = dace.comm.Subarray((8, 8), A, process_grid=rows)
    target = dace.comm.Subarray((8, 8), B, process_grid=columns)
    dace.comm.Redistribute(A, source, B, target)
    return B


@dace.program
def calls_different(A: dace.float64[4, 4]):
    B = plain(A)
    C = to_columns(A + 1)
    return B, C


#: Every program, with the number of its redistributions.
PROGRAMS = {
    program.name.removeprefix("stock_programs_"): (program, count)
    for program, count in [
        *((p, 1) for p in (plain, symbolic, correspondence, first_of_sub_grids, other_sub_grids, symbolic_sub_grid)),
        *((p, 1) for p in (replicas, scattered, gathered, in_a_loop, calls, calls_with_sizes)),
        *((p, 2) for p in (there_and_back, calls_twice, calls_different)),
    ]
}


@functools.cache
def _parsed(name: str, simplify: bool) -> dace.SDFG:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PROGRAMS[name][0].to_sdfg(simplify=simplify)


def parse(name: str, simplify: bool = True) -> dace.SDFG:
    """Return a copy of the SDFG of a program; it is parsed once, since parsing is slow."""
    return copy.deepcopy(_parsed(name, simplify))
