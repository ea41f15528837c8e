"""Program that scatters and gathers a matrix by scalapack4py; prints seconds in the routines after the first pair."""

import ctypes
import ctypes.util
import os
import sys
import time

import numpy as np
from mpi4py import MPI
from scalapack4py import ScaLAPACK4py

n, pairs, comm = int(sys.argv[1]), 5, MPI.COMM_WORLD
found = os.environ.get("DACE_REDIST_SCALAPACK_LIBRARY") or ctypes.util.find_library("scalapack-openmpi")
library = ScaLAPACK4py(ctypes.CDLL(found, mode=ctypes.RTLD_GLOBAL))
rows, columns = MPI.Compute_dims(comm.size, 2)
context = library.make_blacs_context(library.get_default_system_context(), rows, columns)
descriptor = library.make_blacs_desc(context, n, n, 64, 64)
whole = np.asfortranarray(np.random.default_rng(1).random((n, n))) if comm.rank == 0 else None
back = np.zeros((n, n), order="F") if comm.rank == 0 else None
part = descriptor.alloc_zeros(np.float64)
seconds = []
for _ in range(pairs):
    comm.Barrier()
    start = time.perf_counter()
    library.scatter(whole, descriptor, part)
    library.gather(descriptor, part, back)
    seconds.append(comm.allreduce(time.perf_counter() - start, MPI.MAX))
assert comm.rank != 0 or np.array_equal(whole, back)
total = comm.allreduce(float(part.sum()))
if comm.rank == 0:
    print(f"sum {total!r}")
    print(f"{sum(seconds):.4f} s, median {np.median(seconds):.4f} s of a pair")
