"""Two matrix products, ij,jk,kl->il, distributed the Deinsum way: one grid per product, a Redistribute between."""

import by_hand
import dace
import numpy as np
from by_hand import Grid, Kernel, symbols
from mpi4py import MPI

S, I1, J1, K1, I2, K2, L2 = symbols("S I1 J1 K1 I2 K2 L2")
PI1, PJ1, PK1, PI2, PK2, PL2 = symbols("PI1 PJ1 PK1 PI2 PK2 PL2")
PARTS = {1: (1, 1, 1), 2: (1, 1, 2), 4: (1, 2, 2), 8: (2, 2, 2)}


@dace.program
def mm2(A: dace.float64[I1, J1], B: dace.float64[J1, K1], C: dace.float64[K2, L2]):
    grid1 = dace.comm.Cart_create([PI1, PJ1, PK1])  # ijk
    gather1 = dace.comm.Cart_sub(grid1, [True, False, True], exact_grid=0)
    reduce1 = dace.comm.Cart_sub(grid1, [False, True, False])
    source = dace.comm.Subarray((S, S), (I1, K1), dace.float64, process_grid=gather1)

    grid2 = dace.comm.Cart_create([PI2, PK2, PL2])  # ikl
    scatter2 = dace.comm.Cart_sub(grid2, [True, True, False], exact_grid=0)
    bcast2 = dace.comm.Cart_sub(grid2, [False, False, True])
    reduce2 = dace.comm.Cart_sub(grid2, [False, True, False])
    target = dace.comm.Subarray((S, S), (I2, K2), dace.float64, process_grid=scatter2)

    ik1 = by_hand.matmul(A, B)
    dace.comm.Reduce(ik1, MPI.SUM, grid=reduce1)
    ik2 = np.zeros((I2, K2), np.float64)
    dace.comm.Redistribute(ik1, source, ik2, target)
    dace.comm.Bcast(ik2, grid=bcast2)
    il = by_hand.matmul(ik2, C)
    dace.comm.Allreduce(MPI.IN_PLACE, il, MPI.SUM, grid=reduce2)
    return il


KERNEL = Kernel(
    program=mm2,
    einsum="ij,jk,kl->il",
    grids=(Grid("ijk", PARTS), Grid("ikl", PARTS)),
    operands={"A": ("ij", 0), "B": ("jk", 0), "C": ("kl", 1)},
    result=("il", 1),
)

if __name__ == "__main__":
    by_hand.main(KERNEL, __doc__)
