"""
Three kernels distributed by hand as Deinsum does it, with the redistributions and reductions of stock DaCe.

``S`` and ``R`` are the lengths of tensor modes and factors; the other symbols are named after mode and grid: ``PI1``,
``PJ1``, ``PK1`` is the shape of the first grid, ``I1``, ``J1``, ``K1`` the local extents, ``ceil(extent / parts)``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import dace
import numpy as np
from dace.frontend.common import op_repository
from dace.frontend.python.replacements import mpi as dace_mpi
from deinsum import GRIDS as PARTS
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


@op_repository.replaces("dace.comm.Reduce")
def _reduce(pv, sdfg, state, buffer, op, root=0, grid=None):
    """
    Take an ``MPI.Op`` in ``dace.comm.Reduce``, as ``dace.comm.Allreduce`` does.

    DaCe 2.0.0b1 accepts no operator there: neither ``MPI.SUM`` nor a string literal (it stays a ``StringLiteral``).
    """
    return dace_mpi._Reduce(pv, sdfg, state, buffer, dace_mpi._mpi4py_to_MPI(MPI, op), root, grid)


@dataclass(frozen=True)
class Kernel:
    """
    Distributed einsum: the DaCe program and the process grids of its operands.

    :param program: The ``@dace.program``.
    :param einsum: Subscripts, e.g. ``"ij,jk->ik"``.
    :param grids: Modes of each process grid, one letter per grid axis, e.g. ``"ijk"``.
    :param operands: Argument name -> (modes, index of its grid).
    :param result: Modes of the local result, in its order, and the index of its grid.
    :param rank_modes: Modes of length ``--rank``; all others have length ``--size``.
    """

    program: Callable
    einsum: str
    grids: tuple[str, ...]
    operands: dict[str, tuple[str, int]]
    result: tuple[str, int]
    rank_modes: str = ""

    def extents(self, size: int, rank: int) -> dict[str, int]:
        """Return the global length of every mode."""
        modes = {mode for grid in self.grids for mode in grid} | {c for c in self.einsum if c.isalpha()}
        return {mode: rank if mode in self.rank_modes else size for mode in sorted(modes)}

    def blocks(self, grid: int, extents: dict[str, int]) -> dict[str, range]:
        """Return this rank's global indices of every mode of a grid, as long as the block: they may pass the end."""
        modes, parts = self.grids[grid], PARTS[self.grids[grid]][WORLD.size]
        lengths = [math.ceil(extents[mode] / p) for mode, p in zip(modes, parts, strict=True)]
        coords = np.unravel_index(WORLD.rank, parts)
        return {mode: range(int(c) * n, (int(c) + 1) * n) for mode, c, n in zip(modes, coords, lengths, strict=True)}

    def symbols(self, extents: dict[str, int]) -> dict[str, int]:
        """Return the value of every symbol that the program may use."""
        values = {"R" if mode in self.rank_modes else "S": extent for mode, extent in extents.items()}
        for number, grid in enumerate(self.grids, start=1):
            for mode, parts in zip(grid, PARTS[grid][WORLD.size], strict=True):
                values[f"P{mode.upper()}{number}"] = parts
                values[f"{mode.upper()}{number}"] = math.ceil(extents[mode] / parts)
        return values


def symbols(names: str) -> list[dace.symbol]:
    """Return 64-bit DaCe symbols from their names, separated by blanks."""
    return [dace.symbol(name, dace.int64) for name in names.split()]


_M, _N, _K = symbols("_M _N _K")


@dace.program
def matmul(left: dace.float64[_M, _K], right: dace.float64[_K, _N]):
    """``left @ right`` in an order that walks rows; DaCe's own expansion without a BLAS is 100 times slower."""
    product = np.zeros((_M, _N), np.float64)
    for i in dace.map[0:_M]:
        for k in range(_K):
            for j in dace.map[0:_N]:
                product[i, j] += left[i, k] * right[k, j]
    return product


S, R = symbols("S R")
I1, J1, K1, I2, K2, L2, M2, I3, K3, M3 = symbols("I1 J1 K1 I2 K2 L2 M2 I3 K3 M3")
PI1, PJ1, PK1, PI2, PK2, PL2, PM2, PI3, PK3, PM3 = symbols("PI1 PJ1 PK1 PI2 PK2 PL2 PM2 PI3 PK3 PM3")


@dace.program
def mm2(A: dace.float64[I1, J1], B: dace.float64[J1, K1], C: dace.float64[K2, L2]):
    """Two matrix products, one grid for each, and a redistribution between them."""
    grid1 = dace.comm.Cart_create([PI1, PJ1, PK1])  # ijk
    gather1 = dace.comm.Cart_sub(grid1, [True, False, True], exact_grid=0)
    reduce1 = dace.comm.Cart_sub(grid1, [False, True, False])
    source = dace.comm.Subarray((S, S), (I1, K1), dace.float64, process_grid=gather1)

    grid2 = dace.comm.Cart_create([PI2, PK2, PL2])  # ikl
    scatter2 = dace.comm.Cart_sub(grid2, [True, True, False], exact_grid=0)
    bcast2 = dace.comm.Cart_sub(grid2, [False, False, True])
    reduce2 = dace.comm.Cart_sub(grid2, [False, True, False])
    target = dace.comm.Subarray((S, S), (I2, K2), dace.float64, process_grid=scatter2)

    ik1 = matmul(A, B)
    dace.comm.Reduce(ik1, MPI.SUM, grid=reduce1)
    ik2 = np.zeros((I2, K2), np.float64)
    dace.comm.Redistribute(ik1, source, ik2, target)
    dace.comm.Bcast(ik2, grid=bcast2)
    il = matmul(ik2, C)
    dace.comm.Allreduce(MPI.IN_PLACE, il, MPI.SUM, grid=reduce2)
    return il


MM2 = Kernel(
    program=mm2,
    einsum="ij,jk,kl->il",
    grids=("ijk", "ikl"),
    operands={"A": ("ij", 0), "B": ("jk", 0), "C": ("kl", 1)},
    result=("il", 1),
)


@dace.program
def mm3(A: dace.float64[I1, J1], B: dace.float64[J1, K1], C: dace.float64[K2, L2], D: dace.float64[L2, M2]):
    """Three matrix products; the results of two grids go to a third."""
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

    ik1 = matmul(A, B)
    dace.comm.Reduce(ik1, MPI.SUM, grid=reduce1)
    ik3 = np.zeros((I3, K3), np.float64)
    dace.comm.Redistribute(ik1, source1, ik3, target1)
    dace.comm.Bcast(ik3, grid=bcast1)

    km2 = matmul(C, D)
    dace.comm.Reduce(km2, MPI.SUM, grid=reduce2)
    km3 = np.zeros((K3, M3), np.float64)
    dace.comm.Redistribute(km2, source2, km3, target2)
    dace.comm.Bcast(km3, grid=bcast2)

    im = matmul(ik3, km3)
    dace.comm.Allreduce(MPI.IN_PLACE, im, MPI.SUM, grid=reduce3)
    return im


MM3 = Kernel(
    program=mm3,
    einsum="ij,jk,kl,lm->im",
    grids=("ijk", "klm", "ikm"),
    operands={"A": ("ij", 0), "B": ("jk", 0), "C": ("kl", 1), "D": ("lm", 1)},
    result=("im", 2),
)

L1, M1, E1, J2, D2, E2, J3, C3, D3, E3 = symbols("L1 M1 E1 J2 D2 E2 J3 C3 D3 E3")
I4, J4, B4, C4, D4, E4 = symbols("I4 J4 B4 C4 D4 E4")
PL1, PM1, PE1, PJ2, PD2, PE2, PJ3, PC3, PD3, PE3 = symbols("PL1 PM1 PE1 PJ2 PD2 PE2 PJ3 PC3 PD3 PE3")
PI4, PJ4, PB4, PC4, PD4, PE4 = symbols("PI4 PJ4 PB4 PC4 PD4 PE4")
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
    """
    TTMc of order 5 in the first mode. Each of four grids contracts one mode, with a redistribution between them.

    Partial results keep Deinsum's order: ijkle, eijkd, deijc, and cdeib in the end.
    """
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


TTMC = Kernel(
    program=ttmc,
    einsum="ijklm,jb,kc,ld,me->ibcde",
    grids=("ijklme", "ijklde", "ijkcde", "ijbcde"),
    operands={"X": ("ijklm", 0), "JB": ("jb", 3), "KC": ("kc", 2), "LD": ("ld", 1), "ME": ("me", 0)},
    result=("cdeib", 3),
    rank_modes="bcde",
)

KERNELS = {"mm2": MM2, "mm3": MM3, "ttmc": TTMC}
