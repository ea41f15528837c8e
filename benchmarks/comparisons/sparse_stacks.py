"""
Stacks of sparse matrices of one pattern, arrays of (energies, non-zeros) in complex128, from energies distributed to
non-zeros distributed and back, by plans and by hand as QuaTrEx does it: https://github.com/vincent-maillou/qttools,
``DSDBSparse.dtranspose`` (arXiv 2508.19138).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

import dace_redist
from comparisons.comparison import Comparison
from dace_redist import Distribution
from dace_redist.mpi.collective import together

STACKS = 3  # transposed at once

Array = npt.NDArray[np.complex128]
Step = Callable[[list[Array]], list[Array]]


class PaddedStack:
    """
    Transposition by hand: every rank's part is padded to as many energies and non-zeros, and goes by ``MPI_Alltoall``.

    The first ``energies % ranks`` ranks have one energy more than the others; all except the last have
    ``ceil(nonzeros / ranks)`` non-zeros.
    """

    def __init__(self, comm: MPI.Intracomm, energies: int, nonzeros: int) -> None:
        self.comm, self.energies, self.width = comm, energies, -(-nonzeros // comm.size)
        counts = [energies // comm.size + (rank < energies % comm.size) for rank in range(comm.size)]
        self.height = max(counts)
        self.is_row = np.concatenate([np.arange(self.height) < count for count in counts])  # others are padding

    def pad(self, array: Array) -> Array:
        """Return this rank's energies of all non-zeros, padded."""
        padded = np.zeros((self.height, self.width * self.comm.size), array.dtype)
        padded[: array.shape[0], : array.shape[1]] = array
        return padded

    def to_nonzeros(self, stack: Array) -> Array:
        """Return all energies of this rank's non-zeros, then padding."""
        columns = stack.reshape(self.height, self.comm.size, self.width)
        joined = np.concatenate(self._exchange(np.ascontiguousarray(columns.swapaxes(0, 1))), axis=0)
        stack = np.zeros_like(joined)
        stack[: self.energies] = joined[self.is_row]
        return stack

    def to_energies(self, stack: Array) -> Array:
        """Transpose back."""
        joined = np.zeros_like(stack)
        joined[self.is_row] = stack[: self.energies]
        return np.concatenate(self._exchange(joined.reshape(self.comm.size, self.height, self.width)), axis=-1)

    def _exchange(self, blocks: Array) -> Array:
        received = np.empty_like(blocks)
        self.comm.Alltoall(blocks, received)
        return received


class RoundTrip:
    """Stacks, energies distributed, and what makes arrays of them with non-zeros distributed, and the opposite."""

    def __init__(self, arrays: list[Array], there: Step, back: Step) -> None:
        self.arrays, self.there, self.back = arrays, there, back

    def __call__(self) -> None:
        """Run; as in a program, each input is released after its transposition."""
        self.arrays = self.there(self.arrays)
        self.arrays = self.back(self.arrays)


def transposed(comm: MPI.Intracomm, shape: tuple[int, ...]) -> Iterator[Comparison]:
    energies = Distribution(shape, (comm.size, 1))
    nonzeros = Distribution(shape, (1, comm.size), block="ceil")  # as blocks that are padded
    first = comm.rank * 1000.0 + np.arange(np.prod(energies.local_shape(comm.rank)))
    first = first.reshape(energies.local_shape(comm.rank))
    arrays = [(number + 1) * (first - 1j * first) for number in range(STACKS)]
    by_hand = PaddedStack(comm, *shape)
    with (
        dace_redist.plan([energies] * STACKS, [nonzeros] * STACKS, "c16", comm=comm) as there,
        dace_redist.plan([nonzeros] * STACKS, [energies] * STACKS, "c16", comm=comm) as back,
    ):
        outs = [[np.empty(side.local_shape(comm.rank), "c16") for _ in arrays] for side in (nonzeros, energies)]
        methods = {
            "plans, new arrays": RoundTrip(arrays, there, back),
            "plans, ordinary arrays": RoundTrip(
                arrays, functools.partial(there, out=outs[0]), functools.partial(back, out=outs[1])
            ),
            "by hand": RoundTrip(
                [by_hand.pad(one) for one in arrays],
                lambda given: [by_hand.to_nonzeros(one) for one in given],
                lambda given: [by_hand.to_energies(one) for one in given],
            ),
        }
        _check(comm, methods, arrays, nonzeros.local_shape(comm.rank))
        yield Comparison(f"{STACKS} stacks", dict(methods))


def _check(comm: MPI.Intracomm, trips: dict[str, RoundTrip], arrays: list[Array], there: tuple[int, ...]) -> None:
    """Check that all ways give equal results."""
    expected = trips["by hand"].there(trips["by hand"].arrays)
    for name, trip in trips.items():
        moved = trip.there(trip.arrays)
        trip()
        with together(comm):
            for one, other in zip(moved, expected, strict=True):
                part = tuple(map(slice, there))
                assert np.array_equal(one[part], other[part]), f"{name}: other non-zeros"
            for one, given in zip(trip.arrays, arrays, strict=True):
                part = tuple(map(slice, given.shape))
                assert np.array_equal(one[part], given), f"{name}: other elements after the way back"
