"""Programs with steps that can be fused into a redistribution; annotations are not postponed, see
redistribute_test_programs.
"""

import by_hand  # noqa: F401 (dace.comm.Reduce with an operator)
import dace
import numpy as np
from mpi4py import MPI
from sdfgs import add_move, with_arrays

import dace_redist
from dace_redist import Distribution
from dace_redist.library_nodes import Redistribute

#: Over two ranks.
HALVES, SIDES = Distribution((8, 6), (2, 1)), Distribution((8, 6), (1, 2))
TURNED = Distribution((8, 6), (2, 1), ranks=(1, 0))


@dace.program
def converted(A: dace.float64[4, 6]):
    return 3 * dace_redist.redistribute(2 * A, HALVES, SIDES).astype(np.float32)


@dace.program
def conjugated(A: dace.float64[4, 6]):
    B = dace_redist.redistribute(A.astype(np.complex128), HALVES, SIDES)
    return np.conj(B) / -2


@dace.program
def scaled_in_parts(A: dace.float64[4, 6]):
    return dace_redist.redistribute(3 * A, HALVES, SIDES).astype(np.float32)


@dace.program
def scaled_in_place(A: dace.float64[4, 6]):
    dace_redist.redistribute(2 * A, HALVES, TURNED, out=A)


#: Over four ranks: partial sums of halves, two of each, the sums of both on four ranks, and what is wanted.
PARTIAL = Distribution((8, 8), (2, 2), dims=(0, None))
SUMS, WANTED = Distribution((8, 8), (2, 2)), Distribution((8, 8), (2, 2), dims=(None, 0))


def summed_then_moved() -> dace.SDFG:
    """Partial sums that are added, then redistributed."""
    sdfg = with_arrays("summed_then_moved", "B", A=(4, 8), B=(4, 4), C=(8, 4))
    state = sdfg.add_state()
    add_move(state, Redistribute("add", PARTIAL, SUMS, op="sum"), "A", "B")
    add_move(state, Redistribute("move", SUMS, WANTED), "B", "C")
    return sdfg


@dace.program
def reduced_moved_broadcast(A: dace.float64[4, 8]):
    grid1 = dace.comm.Cart_create([2, 1, 2])
    gather = dace.comm.Cart_sub(grid1, [True, True, False], exact_grid=0)
    reduce = dace.comm.Cart_sub(grid1, [False, False, True])
    source = dace.comm.Subarray((8, 8), (4, 8), dace.float64, gather)
    grid2 = dace.comm.Cart_create([1, 2, 2])
    scatter = dace.comm.Cart_sub(grid2, [True, True, False], exact_grid=0)
    bcast = dace.comm.Cart_sub(grid2, [False, False, True])
    target = dace.comm.Subarray((8, 8), (8, 4), dace.float64, scatter)
    B = A + 1
    dace.comm.Reduce(B, MPI.SUM, grid=reduce)
    C = np.zeros((8, 4), np.float64)
    dace.comm.Redistribute(B, source, C, target)
    dace.comm.Bcast(C, grid=bcast)
    return 2 * C


#: Over four ranks: rows, and quarters whose ranks count down.
ROWS, BACKWARDS = Distribution((8, 8), (4, 1)), Distribution((8, 8), (2, 2), ranks=(3, 2, 1, 0))


@dace.program
def computed_elsewhere(A: dace.float64[2, 8]):
    B = dace_redist.redistribute(A, ROWS, BACKWARDS)
    C = np.exp(B) + B
    return dace_redist.redistribute(C, BACKWARDS, ROWS)


@dace.program
def two_at_once(A: dace.float64[4, 6], R: dace.float64[2, 8]):
    return dace_redist.redistribute(A, HALVES, SIDES), dace_redist.redistribute(
        R, ROWS, BACKWARDS, target_dtype=np.float32
    )


@dace.program
def while_it_moves(E: dace.float64[4, 6], F: dace.float64[4, 6]):
    moved = dace_redist.redistribute(E, HALVES, SIDES)
    F[:] = np.exp(E)
    return moved - 1
