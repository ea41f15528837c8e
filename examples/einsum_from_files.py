"""Doubles residual of coupled clusters, from files. Run: mpiexec -n 4 python examples/einsum_from_files.py"""

import os
import tempfile

import numpy as np
from mpi4py import MPI

from dace_redist import Distribution, einsum, load

comm = MPI.COMM_WORLD
O, V = 6, 10  # occupied and virtual orbitals  # noqa: E741
shapes = {"t": (O, O, V, V), "ijab": (O, O, V, V), "abcd": (V, V, V, V), "klij": (O, O, O, O), "kbcj": (O, V, V, O)}

with tempfile.TemporaryDirectory() as folder:
    if comm.rank == 0:  # the files of another program
        rng = np.random.default_rng(0)
        for name, shape in shapes.items():
            np.save(os.path.join(folder, f"{name}.npy"), rng.random(shape) / 10)
    folder_of_all = comm.bcast(folder)
    t, ijab, abcd, klij, kbcj = (  # any distributions; here all are split along the first axis
        load(os.path.join(folder_of_all, f"{name}.npy"), Distribution.split(shape, 0, comm.size))
        for name, shape in shapes.items()
    )
    comm.Barrier()  # rank 0 deletes the files

there = t.distribution
residual = ijab.local + sum(
    (
        einsum("abcd,ijcd->ijab", abcd, t, target=there).local,
        einsum("klij,klab->ijab", klij, t, target=there).local,
        einsum("kbcj,ikac->ijab", kbcj, t, target=there).local,
        einsum("klcd,ikac,jlbd->ijab", ijab, t, t, target=there).local,
        einsum("klcd,ijcd,klab->ijab", ijab, t, t, target=there).local,
    )
)
energy = einsum("ijab,ijab->", ijab, t)  # on every rank
if comm.rank == 0:
    print(f"energy {energy.local:.6f}, residual of the first rank {np.abs(residual).max():.6f}")
