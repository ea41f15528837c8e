"""Three matrix products, ij,jk,kl,lm->im, distributed the Deinsum way: the results of two grids go to a third."""

import by_hand
import dace
import numpy as np
from by_hand import Grid, Kernel, symbols
from mpi4py import MPI

S, I1, J1, K1, K2, L2, M2, I3, K3, M3 = symbols("S I1 J1 K1 K2 L2 M2 I3 K3 M3")
PI1, PJ1, PK1, PK2, PL2, PM2, PI3, PK3, PM3 = symbols("PI1 PJ1 PK1 PK2 PL2 PM2 PI3 PK3 PM3")
PARTS = {1: (1, 1, 1), 2: (1, 1, 2), 4: (1, 2, 2), 8: (2, 2, 2)}


@dace.program
def mm3(A: dace.float64[I1, J1], B: dace.float64[J1, K1], C: dace.float64[K2, L2], D: dace.float64[L2, M2]):
    grid1 = dace.comm.Cart_create([PI1, PJ1, PK1])  # ijk
    gather1 = dace.comm.Cart_sub(grid1, [True, False, True], exact_grid=0)
    reduce1 = dace.comm.Cart_sub(grid1, [False, True, False])
    source1 = dace.comm.Subarray((S, S), (I1, K1), dace.float64, process_grid=gather1)

    grid2 = dace.comm.Cart_create([PK2, PL2, PM2])  # klm
    gather2 = dace.comm.Cart_sub(grid2, [True, False, True], exact_grid=0)
    reduce2 = dace.comm.Cart_sub(grid2, [False, True, False])
    source2 = dace.comm.Subarray((S, S), (K2, M2), dace.float64, process_grid=gather2)

    grid3 = dace.comm.Cart_create([PI3, PK3, PM3])  # ikm
    scatter1 = dace.comm.Cart_sub(grid3, [True, True, False], exact_grid=0)
    bcast1 = dace.comm.Cart_sub(grid3, [False, False, True])
    target1 = dace.comm.Subarray((S, S), (I3, K3), dace.float64, process_grid=scatter1)
    scatter2 = dace.comm.Cart_sub(grid3, [False, True, True], exact_grid=0)
    bcast2 = dace.comm.Cart_sub(grid3, [True, False, False])
    target2 = dace.comm.Subarray((S, S), (K3, M3), dace.float64, process_grid=scatter2)
    reduce3 = dace.comm.Cart_sub(grid3, [False, True, False])

    ik1 = by_hand.matmul(A, B)
    dace.comm.Reduce(ik1, MPI.SUM, grid=reduce1)
    ik3 = np.zeros((I3, K3), np.float64)
    dace.comm.Redistribute(ik1, source1, ik3, target1)
    dace.comm.Bcast(ik3, grid=bcast1)

    km2 = by_hand.matmul(C, D)
    dace.comm.Reduce(km2, MPI.SUM, grid=reduce2)
    km3 = np.zeros((K3, M3), np.float64)
    dace.comm.Redistribute(km2, source2, km3, target2)
    dace.comm.Bcast(km3, grid=bcast2)

    im = by_hand.matmul(ik3, km3)
    dace.comm.Allreduce(MPI.IN_PLACE, im, MPI.SUM, grid=reduce3)
    return im


KERNEL = Kernel(
    program=mm3,
    einsum="ij,jk,kl,lm->im",
    grids=(Grid("ijk", PARTS), Grid("klm", PARTS), Grid("ikm", PARTS)),
    operands={"A": ("ij", 0), "B": ("jk", 0), "C": ("kl", 1), "D": ("lm", 1)},
    result=("im", 2),
)

if __name__ == "__main__":
    by_hand.main(KERNEL, __doc__)
