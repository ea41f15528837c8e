"""Convolves along the energies of sparse matrices. Run: mpiexec -n 4 python examples/sparse_stacks.py"""

import numpy as np
from mpi4py import MPI
from scipy.sparse import csr_matrix, random

import dace_redist

comm, energies, n = MPI.COMM_WORLD, 61, 200
pattern = random(n, n, 0.05, "csr", random_state=1)  # of all matrices, on every rank
shape = energies, pattern.nnz

# A stack of matrices is an array of their non-zeros. A rank has all non-zeros of some energies, for what needs whole
# matrices (solvers, products), or all energies of some non-zeros, for convolutions. Neither number needs to divide.
matrices = dace_redist.Distribution(shape, (comm.size, 1))
columns = dace_redist.Distribution(shape, (1, comm.size))
to_columns = dace_redist.plan([matrices] * 2, [columns] * 2, "complex128", comm=comm)
to_matrices = dace_redist.plan([columns] * 2, [matrices] * 2, "complex128", comm=comm)

energy = matrices.global_index(comm.rank)[0][:, None]
lesser, greater = np.exp(1j * energy) * pattern.data, np.cos(energy) * pattern.data + 0j

lesser, greater = to_columns([lesser, greater])  # both in one exchange
product = np.fft.ifft(np.fft.fft(lesser, axis=0) * np.fft.fft(greater, axis=0), axis=0)
product, greater = to_matrices([product, greater])

for values in product:  # whole matrices again
    assert csr_matrix((values, pattern.indices, pattern.indptr)).shape == (n, n)

every = np.arange(energies)
wanted = np.fft.ifft(np.fft.fft(np.exp(1j * every)) * np.fft.fft(np.cos(every)))
assert np.allclose(product, wanted[energy] * pattern.data**2)
assert np.array_equal(greater, np.cos(energy) * pattern.data)
if comm.rank == 0:
    print(f"{energies} matrices of {pattern.nnz} non-zeros, there and back")
