"""
The transposition of QuaTrEx: stacks of sparse matrices of one pattern, arrays of (energies, non-zeros) in complex128,
from energies distributed to non-zeros distributed and back, to the same steps by hand with NumPy and mpi4py.

The sides are measured by turns in one run (dace_redist/tuning/measure.py); the medians count. "by hand" starts from
arrays that are padded already, as QuaTrEx keeps them.

    mpiexec -n 4 python benchmarks/sparse_stacks.py [--json FILE] [--limit 10] [--energies 103] [--nonzeros 50021]
"""

from __future__ import annotations

import json
from collections.abc import Callable

import click
import numpy as np
from mpi4py import MPI
from redistribution.padded_stacks import Array, PaddedStacks

import dace_redist
from dace_redist import Distribution
from dace_redist.measuring.measure import measure
from dace_redist.mpi.collective import together
from dace_redist.mpi.topology import pinned_to_core
from dace_redist.redistribution.plan import Plan

Step = Callable[[list[Array]], list[Array]]


class Side:
    """
    A way to transpose, and its arrays.

    :param arrays: Energies distributed.
    :param there: Makes new arrays of them, non-zeros distributed.
    :param back: The opposite.
    """

    def __init__(self, arrays: list[Array], there: Step, back: Step) -> None:
        self.arrays, self.there, self.back = arrays, there, back

    def __call__(self) -> None:
        """Transpose and transpose back; as in a program, each input is released after its transposition."""
        self.arrays = self.there(self.arrays)
        self.arrays = self.back(self.arrays)


class Stacks:
    """
    Stacks of one pattern, and the ways to transpose them; plans are made where they are asked for.

    :param comm: Communicator of the ranks that share the stacks.
    :param energies: Matrices in a stack.
    :param nonzeros: Non-zeros of a matrix.
    :param count: Stacks that are transposed at once.
    """

    def __init__(self, comm: MPI.Intracomm, energies: int, nonzeros: int, count: int) -> None:
        self.comm, self.count, shape = comm, count, (energies, nonzeros)
        self.stack = Distribution(shape, (comm.size, 1))
        self.columns = Distribution(shape, (1, comm.size), block="ceil")  # padded blocks are
        here, self.there = (side.local_shape(comm.rank) for side in (self.stack, self.columns))
        first = comm.rank * 1000.0 + np.arange(np.prod(here)).reshape(here)
        self.arrays = [(number + 1) * (first - 1j * first) for number in range(count)]
        self.nbytes = 16 * count * int(np.prod(here) + np.prod(self.there))  # of sources and targets

    def ways(self) -> dict[str, Callable[[], Side]]:
        """Ways to transpose, by name."""
        made = {"plans, new arrays": self.new_arrays, "plans, ordinary arrays": self.ordinary_arrays}
        return {**made, "the same, node_shared_memory()": self.node_shared_by_numpy, "by hand": self.by_hand}

    def by_hand(self) -> Side:
        """Return the transposition by hand of padded arrays."""
        hand = PaddedStacks(self.comm, *self.stack.shape)
        there, back = hand.to_nonzeros, hand.to_energies
        return Side([hand.pad(one) for one in self.arrays], lambda a: [*map(there, a)], lambda a: [*map(back, a)])

    def new_arrays(self) -> Side:
        """Return transpositions by plans that allocate their results in node-shared memory."""
        there, back = self._plan(self.stack, self.columns), self._plan(self.columns, self.stack)
        return Side(self.arrays, there, back)

    def ordinary_arrays(self) -> Side:
        """Return transpositions by plans between ordinary arrays."""
        there, back = self._plan(self.stack, self.columns), self._plan(self.columns, self.stack)
        kept = [[np.empty(side.local_shape(self.comm.rank), "c16") for _ in self.arrays] for side in self._sides()]
        return Side(self.arrays, lambda given: there(given, kept[0]), lambda given: back(given, kept[1]))

    def node_shared_by_numpy(self) -> Side:
        """Return transpositions by plans between arrays that NumPy allocates in node-shared memory."""
        with dace_redist.node_shared_memory():
            return self.ordinary_arrays()

    def _sides(self) -> tuple[Distribution, Distribution]:
        return self.columns, self.stack

    def _plan(self, source: Distribution, target: Distribution) -> Plan:
        return dace_redist.plan([source] * self.count, [target] * self.count, "c16", comm=self.comm)

    def check(self, sides: dict[str, Side]) -> None:
        """Check that all ways give equal results."""
        wanted, rows, width = sides["by hand"], *self.there
        for name, side in sides.items():
            pairs = list(zip(side.there(side.arrays), wanted.there(wanted.arrays), strict=True))
            with together(self.comm):
                for one, other in pairs:
                    assert np.array_equal(one[:rows, :width], other[:rows, :width]), f"{name}: other non-zeros"
            side()
            with together(self.comm):
                for one, given in zip(side.arrays, self.arrays, strict=True):
                    assert np.array_equal(one[: given.shape[0], : given.shape[1]], given), f"{name}: not what was there"


@click.command(help=__doc__)
@click.option("--energies", default=103, show_default=True, help="matrices in a stack")
@click.option("--nonzeros", default=50021, show_default=True, help="non-zeros of a matrix")
@click.option("--count", default=3, show_default=True, help="stacks of one pattern, transposed at once")
@click.option("--limit", default=10.0, show_default=True, help="seconds to measure")
@click.option("--json", "path", type=click.Path(dir_okay=False), help="append a JSON line")
def main(energies: int, nonzeros: int, count: int, limit: float, path: str | None) -> None:
    comm = MPI.COMM_WORLD
    stacks = Stacks(comm, energies, nonzeros, count)
    with pinned_to_core(comm):
        sides = {name: make() for name, make in stacks.ways().items()}
        stacks.check(sides)
        figures = measure(sides, comm, limit_seconds=limit)
    if comm.rank == 0:
        seconds = {name: figure.median for name, figure in figures.items()}
        print(f"{count} stacks of {energies} matrices of {nonzeros} non-zeros, {comm.size} ranks, there and back")
        for name, value in seconds.items():
            ratio = seconds["by hand"] / value
            print(f"  {name:31} {1e3 * value:9.2f} ms, {ratio:5.2f} times as fast")
        if path:
            line = {"energies": energies, "nonzeros": nonzeros, "count": count, "ranks": comm.size}
            with open(path, "a") as lines:
                lines.write(json.dumps({**line, "seconds": seconds}) + "\n")


if __name__ == "__main__":
    main()
