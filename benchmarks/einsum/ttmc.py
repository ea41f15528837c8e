"""
TTMc of order 5 in mode 0, ijklm,jb,kc,ld,me->ibcde, distributed the Deinsum way: four grids, three Redistributes.

Each grid contracts one mode. The partial results keep Deinsum's order: ijkle, eijkd, deijc, and cdeib in the end.
"""

import by_hand
import dace
import numpy as np
from by_hand import Grid, Kernel, symbols
from mpi4py import MPI

S, R, I1, J1, K1, L1, M1, E1 = symbols("S R I1 J1 K1 L1 M1 E1")
I2, J2, K2, L2, D2, E2, I3, J3, K3, C3, D3, E3, I4, J4, B4, C4, D4, E4 = symbols(
    "I2 J2 K2 L2 D2 E2 I3 J3 K3 C3 D3 E3 I4 J4 B4 C4 D4 E4"
)
PI1, PJ1, PK1, PL1, PM1, PE1, PI2, PJ2, PK2, PL2, PD2, PE2 = symbols("PI1 PJ1 PK1 PL1 PM1 PE1 PI2 PJ2 PK2 PL2 PD2 PE2")
PI3, PJ3, PK3, PC3, PD3, PE3, PI4, PJ4, PB4, PC4, PD4, PE4 = symbols("PI3 PJ3 PK3 PC3 PD3 PE3 PI4 PJ4 PB4 PC4 PD4 PE4")
GRIDS = (
    Grid("ijklme", {1: (1,) * 6, 2: (1, 1, 1, 2, 1, 1), 4: (1, 1, 2, 2, 1, 1), 8: (1, 2, 2, 2, 1, 1)}),
    Grid("ijklde", {1: (1,) * 6, 2: (1, 1, 2, 1, 1, 1), 4: (1, 2, 2, 1, 1, 1), 8: (2, 2, 2, 1, 1, 1)}),
    Grid("ijkcde", {1: (1,) * 6, 2: (1, 2, 1, 1, 1, 1), 4: (2, 2, 1, 1, 1, 1), 8: (2, 2, 1, 1, 1, 2)}),
    Grid("ijbcde", {1: (1,) * 6, 2: (2, 1, 1, 1, 1, 1), 4: (2, 1, 1, 1, 1, 2), 8: (2, 1, 1, 1, 2, 2)}),
)
_V, _W, _X, _Y, _Z, _N = symbols("_V _W _X _Y _Z _N")


@dace.program
def contract_last(tensor: dace.float64[_V, _W, _X, _Y, _Z], matrix: dace.float64[_Z, _N]):
    """``vwxyz,zn->vwxyn``."""
    product = np.zeros((_V, _W, _X, _Y, _N), np.float64)
    for v, w, x, y in dace.map[0:_V, 0:_W, 0:_X, 0:_Y]:
        for z in range(_Z):
            for n in dace.map[0:_N]:
                product[v, w, x, y, n] += tensor[v, w, x, y, z] * matrix[z, n]
    return product


@dace.program
def contract_fourth(tensor: dace.float64[_V, _W, _X, _Y, _Z], matrix: dace.float64[_Y, _N]):
    """``vwxyz,yn->zvwxn``."""
    product = np.zeros((_Z, _V, _W, _X, _N), np.float64)
    for v, w, x, z in dace.map[0:_V, 0:_W, 0:_X, 0:_Z]:
        for y in range(_Y):
            for n in dace.map[0:_N]:
                product[z, v, w, x, n] += tensor[v, w, x, y, z] * matrix[y, n]
    return product


@dace.program
def ttmc(
    X: dace.float64[I1, J1, K1, L1, M1],
    JB: dace.float64[J4, B4],
    KC: dace.float64[K3, C3],
    LD: dace.float64[L2, D2],
    ME: dace.float64[M1, E1],
):
    grid1 = dace.comm.Cart_create([PI1, PJ1, PK1, PL1, PM1, PE1])  # ijklme
    gather1 = dace.comm.Cart_sub(grid1, [True, True, True, True, False, True], exact_grid=0)
    reduce1 = dace.comm.Cart_sub(grid1, [False, False, False, False, True, False])
    source1 = dace.comm.Subarray((S, S, S, S, R), (I1, J1, K1, L1, E1), dace.float64, gather1)

    grid2 = dace.comm.Cart_create([PI2, PJ2, PK2, PL2, PD2, PE2])  # ijklde
    scatter2 = dace.comm.Cart_sub(grid2, [True, True, True, True, False, True], exact_grid=0)
    bcast2 = dace.comm.Cart_sub(grid2, [False, False, False, False, True, False])
    target2 = dace.comm.Subarray((S, S, S, S, R), (I2, J2, K2, L2, E2), dace.float64, scatter2)
    gather2 = dace.comm.Cart_sub(grid2, [True, True, True, False, True, True], exact_grid=0)
    reduce2 = dace.comm.Cart_sub(grid2, [False, False, False, True, False, False])
    source2 = dace.comm.Subarray((R, S, S, S, R), (E2, I2, J2, K2, D2), dace.float64, gather2, (4, 0, 1, 2, 3))

    grid3 = dace.comm.Cart_create([PI3, PJ3, PK3, PC3, PD3, PE3])  # ijkcde
    scatter3 = dace.comm.Cart_sub(grid3, [True, True, True, False, True, True], exact_grid=0)
    bcast3 = dace.comm.Cart_sub(grid3, [False, False, False, True, False, False])
    target3 = dace.comm.Subarray((R, S, S, S, R), (E3, I3, J3, K3, D3), dace.float64, scatter3, (4, 0, 1, 2, 3))
    gather3 = dace.comm.Cart_sub(grid3, [True, True, False, True, True, True], exact_grid=0)
    reduce3 = dace.comm.Cart_sub(grid3, [False, False, True, False, False, False])
    source3 = dace.comm.Subarray((R, R, S, S, R), (D3, E3, I3, J3, C3), dace.float64, gather3, (3, 4, 0, 1, 2))

    grid4 = dace.comm.Cart_create([PI4, PJ4, PB4, PC4, PD4, PE4])  # ijbcde
    scatter4 = dace.comm.Cart_sub(grid4, [True, True, False, True, True, True], exact_grid=0)
    bcast4 = dace.comm.Cart_sub(grid4, [False, False, True, False, False, False])
    target4 = dace.comm.Subarray((R, R, S, S, R), (D4, E4, I4, J4, C4), dace.float64, scatter4, (3, 4, 0, 1, 2))
    reduce4 = dace.comm.Cart_sub(grid4, [False, True, False, False, False, False])

    ijkle1 = contract_last(X, ME)
    dace.comm.Reduce(ijkle1, MPI.SUM, grid=reduce1)
    ijkle2 = np.zeros((I2, J2, K2, L2, E2), np.float64)
    dace.comm.Redistribute(ijkle1, source1, ijkle2, target2)
    dace.comm.Bcast(ijkle2, grid=bcast2)

    eijkd2 = contract_fourth(ijkle2, LD)
    dace.comm.Reduce(eijkd2, MPI.SUM, grid=reduce2)
    eijkd3 = np.zeros((E3, I3, J3, K3, D3), np.float64)
    dace.comm.Redistribute(eijkd2, source2, eijkd3, target3)
    dace.comm.Bcast(eijkd3, grid=bcast3)

    deijc3 = contract_fourth(eijkd3, KC)
    dace.comm.Reduce(deijc3, MPI.SUM, grid=reduce3)
    deijc4 = np.zeros((D4, E4, I4, J4, C4), np.float64)
    dace.comm.Redistribute(deijc3, source3, deijc4, target4)
    dace.comm.Bcast(deijc4, grid=bcast4)

    cdeib4 = contract_fourth(deijc4, JB)
    dace.comm.Allreduce(MPI.IN_PLACE, cdeib4, MPI.SUM, grid=reduce4)
    return cdeib4


KERNEL = Kernel(
    program=ttmc,
    einsum="ijklm,jb,kc,ld,me->ibcde",
    grids=GRIDS,
    operands={"X": ("ijklm", 0), "JB": ("jb", 3), "KC": ("kc", 2), "LD": ("ld", 1), "ME": ("me", 0)},
    result=("cdeib", 3),
    rank_modes="bcde",
)

if __name__ == "__main__":
    by_hand.main(KERNEL, __doc__)
