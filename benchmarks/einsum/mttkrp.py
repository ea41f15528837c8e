"""MTTKRP of order 3 in mode 0, ijk,ja,ka->ia, on one grid: an Allreduce and no Redistribute, whatever the strategy."""

import by_hand
import dace
import numpy as np
from by_hand import Grid, Kernel, symbols
from mpi4py import MPI

I1, J1, K1, A1, PI1, PJ1, PK1, PA1 = symbols("I1 J1 K1 A1 PI1 PJ1 PK1 PA1")


@dace.program
def mttkrp(X: dace.float64[I1, J1, K1], B: dace.float64[J1, A1], C: dace.float64[K1, A1]):
    grid = dace.comm.Cart_create([PI1, PJ1, PK1, PA1])  # ijka
    reduce = dace.comm.Cart_sub(grid, [False, True, True, False])

    ia = np.zeros((I1, A1), np.float64)
    for i in dace.map[0:I1]:
        for j in range(J1):
            for k in range(K1):
                for a in dace.map[0:A1]:
                    ia[i, a] += X[i, j, k] * B[j, a] * C[k, a]
    dace.comm.Allreduce(MPI.IN_PLACE, ia, MPI.SUM, grid=reduce)
    return ia


KERNEL = Kernel(
    program=mttkrp,
    einsum="ijk,ja,ka->ia",
    grids=(Grid("ijka", {1: (1, 1, 1, 1), 2: (1, 1, 2, 1), 4: (1, 2, 2, 1), 8: (2, 2, 2, 1)}),),
    operands={"X": ("ijk", 0), "B": ("ja", 0), "C": ("ka", 0)},
    result=("ia", 0),
    rank_modes="a",
)

if __name__ == "__main__":
    by_hand.main(KERNEL, __doc__)
