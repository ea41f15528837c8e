"""
Stacks of sparse matrices of one pattern, an array of (energies, non-zeros), transposed by hand as QuaTrEx does it:
https://github.com/vincent-maillou/qttools, ``DSDBSparse.dtranspose`` (arXiv 2508.19138).

Arrays are padded so that every rank has as many energies and non-zeros; each goes by an ``MPI_Alltoall`` of its own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

Array = npt.NDArray[np.complex128]


class PaddedStacks:
    """
    Padding and transposition of stacks.

    The first ``energies % ranks`` ranks have one energy more than the others; all except the last have
    ``ceil(nonzeros / ranks)`` non-zeros.

    :param comm: Communicator of the ranks that share the stacks.
    :param energies: Matrices in a stack.
    :param nonzeros: Non-zeros of a matrix.
    """

    def __init__(self, comm: MPI.Intracomm, energies: int, nonzeros: int) -> None:
        self.comm, self.energies, self.nonzeros = comm, energies, nonzeros
        counts = [energies // comm.size + (rank < energies % comm.size) for rank in range(comm.size)]
        self.most, self.width, self.mine = max(counts), -(-nonzeros // comm.size), counts[comm.rank]
        self.used = np.concatenate([np.arange(self.most) < count for count in counts])  # which rows are no padding

    def pad(self, array: Array) -> Array:
        """Return this rank's energies of all non-zeros, padded."""
        padded = np.zeros((self.most, self.width * self.comm.size), array.dtype)
        padded[: self.mine, : self.nonzeros] = array
        return padded

    def to_nonzeros(self, stack: Array) -> Array:
        """Return all energies of this rank's non-zeros, then padding."""
        columns = stack.reshape(self.most, self.comm.size, self.width)
        joined = np.concatenate(self._exchange(np.ascontiguousarray(columns.swapaxes(0, 1))), axis=0)
        stack = np.zeros_like(joined)
        stack[: self.energies] = joined[self.used]
        return stack

    def to_energies(self, stack: Array) -> Array:
        """Transpose back."""
        joined = np.zeros_like(stack)
        joined[self.used] = stack[: self.energies]
        return np.concatenate(self._exchange(joined.reshape(self.comm.size, self.most, self.width)), axis=-1)

    def _exchange(self, blocks: Array) -> Array:
        received = np.empty_like(blocks)
        self.comm.Alltoall(blocks, received)
        return received
