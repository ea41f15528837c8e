"""Program that converts PETSc's matrices from dense to ScaLAPACK's and back; prints seconds of the conversions."""

import sys
import time

import petsc4py

petsc4py.init([])
import numpy as np  # noqa: E402 (PETSc reads its options first)
from petsc4py import PETSc  # noqa: E402

n, comm = int(sys.argv[1]), PETSc.COMM_WORLD
A = PETSc.Mat().createDense([n, n])
A.setUp()
first, last = A.getOwnershipRange()
values = A.getDenseArray()
values[:] = np.arange(first, last)[:, None] * n + np.arange(n)
A.assemble()
seconds = []
for _ in range(3):
    comm.barrier()
    start = time.perf_counter()
    B = A.convert("scalapack", PETSc.Mat())
    C = B.convert("dense", PETSc.Mat())
    comm.barrier()
    seconds.append(time.perf_counter() - start)
    assert np.array_equal(C.getDenseArray(), values)
    norm = B.norm()
if comm.rank == 0:
    print(f"sum {norm!r}")
    print(f"{sum(seconds):.4f} s, {min(seconds):.4f} s of the fastest of 3 pairs")
