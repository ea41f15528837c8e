"""Solves a system that arrives in rows by ScaLAPACK's Cholesky. Run: mpiexec -n 4 python examples/cholesky.py"""

import ctypes

import numpy as np
from mpi4py import MPI

import dace_redist

comm, n = MPI.COMM_WORLD, 1000
rows, sides = dace_redist.Distribution((n, n), (4, 1)), dace_redist.Distribution((n, 3), (4, 1))
row = rows.global_index(comm.rank)[0][:, None]
A, B = np.exp(-abs(row - np.arange(n)) / 8), np.sin(row + np.arange(3))  # rows of matrix and right-hand sides

scalapack = ctypes.CDLL("libscalapack-openmpi.so")  # of Debian's libscalapack-openmpi-dev, for its own Open MPI
context = ctypes.c_int(scalapack.Csys2blacs_handle(ctypes.c_void_p(MPI._handleof(comm))))
scalapack.Cblacs_gridinit(ctypes.byref(context), b"Row", 2, 2)


def to_solver(array, source):
    """Return the array on a grid of 2 x 2 in blocks of 64 x 64, its distribution, and its arguments of ScaLAPACK."""
    target = dace_redist.Distribution(source.shape, (2, 2), block=(64, 64))
    out = np.empty(target.local_shape(comm.rank), order="F")
    dace_redist.redistribute(array, source, target, out=out)
    one, sizes = ctypes.c_int(1), (ctypes.c_int * 9)(1, context.value, *source.shape, 64, 64, 0, 0, max(1, len(out)))
    return target, out, [ctypes.c_void_p(out.ctypes.data), ctypes.byref(one), ctypes.byref(one), sizes]


_, factor, matrix = to_solver(A, rows)  # "matrix" has only the address of "factor"
blocks, solution, right = to_solver(B, sides)
extent, count, info = ctypes.byref(ctypes.c_int(n)), ctypes.byref(ctypes.c_int(3)), ctypes.c_int()
scalapack.pdpotrf_(b"L", extent, *matrix, ctypes.byref(info))
scalapack.pdpotrs_(b"L", extent, count, *matrix, *right, ctypes.byref(info))
X = np.concatenate(comm.allgather(dace_redist.redistribute(solution, blocks, sides)))  # rows again; all, to check
assert info.value == 0 and abs(A @ X - B).max() < 1e-10
if comm.rank == 0:
    print(f"solved {n} equations")
