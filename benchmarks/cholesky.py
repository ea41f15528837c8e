"""
ScaLAPACK's Cholesky solver on a matrix distributed by rows: in place, and with redistributions to and from the grid and
block size of the solver (Cao et al., Redistribution in PaRSEC, section 8.7.1).

The sides are measured alternately in one run (dace_redist/tuning/measure.py); the medians count. ScaLAPACK uses the
BLAS of the machine; Debian's reference BLAS is slow, libopenblas0-serial is not.

    mpiexec -n 4 python benchmarks/cholesky.py [--json FILE] [--limit 10] [SIZE]...
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from redistribution import scalapack

import dace_redist
from dace_redist import Distribution
from dace_redist.measuring.measure import measure
from dace_redist.mpi.collective import together
from dace_redist.mpi.topology import pinned_to_core

BLOCK = 64
SIDES = 16  # right-hand sides

Array = npt.NDArray[Any]
System = tuple[tuple[Distribution, Array], tuple[Distribution, Array]]


class Cholesky:
    """
    ``pdpotrf`` and ``pdpotrs`` of matrices on process grids. Construction and ``free`` are collective.

    :param comm: Communicator.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.grids = scalapack.Grids(comm)

    def solve(self, system: System) -> None:
        """Overwrite matrix and right-hand sides by factor and solution. Collective."""
        info, one, arguments = ctypes.c_int(), ctypes.c_int(1), []
        for distribution, array in system:
            described = self.grids.descriptor(distribution, order="F")
            arguments.append([ctypes.c_void_p(array.ctypes.data), ctypes.byref(one), ctypes.byref(one), described])
        n, sides = (ctypes.byref(ctypes.c_int(extent)) for extent in system[1][0].shape)
        self.grids.routine("pdpotrf_")(b"L", n, *arguments[0], ctypes.byref(info))
        assert info.value == 0, f"the matrix is not positive definite: pdpotrf says {info.value}"
        self.grids.routine("pdpotrs_")(b"L", n, sides, *arguments[0], *arguments[1], ctypes.byref(info))


def arrives(comm: MPI.Intracomm, n: int) -> System:
    """Return a symmetric, positive definite matrix and right-hand sides by rows, in ScaLAPACK's storage order."""
    each = -(-n // comm.size)
    rows = Distribution((n, n), (comm.size, 1), block=(each, each))  # blocks are to be square; columns are not split
    sides = Distribution((n, SIDES), (comm.size, 1), block=(each, SIDES))
    row = rows.global_index(comm.rank)[0][:, None]
    return (rows, np.asfortranarray(np.exp(-abs(row - np.arange(n)) / 8))), (
        sides,
        np.asfortranarray(np.sin(row + np.arange(SIDES))),
    )


def empty(distribution: Distribution, comm: MPI.Intracomm, shared: bool = False) -> Array:
    """Return a new array in column-major order, as ScaLAPACK requires."""
    shape = distribution.local_shape(comm.rank)[::-1]
    return (dace_redist.shared_empty(shape) if shared else np.empty(shape)).T


def sides_of(comm: MPI.Intracomm, n: int, solver: Cholesky) -> tuple[dict[str, Callable[[], None]], list[Any]]:
    """Return the sides of the comparison, and the objects to free afterwards; check both solutions."""
    there = arrives(comm, n)
    grid = MPI.Compute_dims(comm.size, 2)
    blocks = [Distribution(side.shape, grid, block=(BLOCK, BLOCK)) for side, _ in there]
    here = [empty(side, comm, shared=True) for side in blocks]
    kept = [np.array(array, order="F") for _, array in there]
    made = [dace_redist.plan(side, block, "f8", comm=comm) for (side, _), block in zip(there, blocks, strict=True)]
    back = dace_redist.plan(blocks[1], there[1][0], "f8", comm=comm)
    solution = empty(there[1][0], comm)
    peer = scalapack.Gemr2d(comm, "f8", there[0][0], blocks[0], order="F")

    def to_blocks_and_back(solve: bool) -> None:
        for plan, (_, array), out in zip(made, there, here, strict=True):
            plan(array, out=out)
        if solve:
            solver.solve(((blocks[0], here[0]), (blocks[1], here[1])))
        back(here[1], out=solution)

    def in_rows() -> None:
        for array, (_, given) in zip(kept, there, strict=True):
            array[...] = given  # the factor takes the place of the matrix; both ways keep what arrived
        solver.solve(((there[0][0], kept[0]), (there[1][0], kept[1])))

    to_blocks_and_back(solve=True)
    in_rows()
    with together(comm):
        assert np.allclose(solution, kept[1]), "the solutions in rows and in blocks do not agree"
    return {
        "redistributed": partial(to_blocks_and_back, solve=True),
        "in rows": in_rows,
        "to blocks and back": partial(to_blocks_and_back, solve=False),
        "p?gemr2d to blocks": partial(peer.run, there[0][1], here[0]),
    }, [*made, back, peer]


@click.command(help=__doc__)
@click.argument("sizes", nargs=-1, type=int)
@click.option("--limit", default=10.0, show_default=True, help="seconds for each size")
@click.option("--json", "path", type=click.Path(dir_okay=False), help="append a JSON line for each size")
def main(sizes: tuple[int, ...], limit: float, path: str | None) -> None:
    comm = MPI.COMM_WORLD
    reason = scalapack.library_missing()
    if reason is not None:
        raise click.ClickException(reason)
    solver = Cholesky(comm)
    with pinned_to_core(comm):
        for n in sizes or (500, 1000, 2000, 4000):
            sides, made = sides_of(comm, n, solver)
            figures = measure(sides, comm, limit_seconds=limit, warmup=1)
            for one in made:
                one.free()
            if comm.rank == 0:
                report(n, comm.size, {name: figure.median for name, figure in figures.items()}, path)
    solver.grids.free()


def report(n: int, ranks: int, seconds: dict[str, float], path: str | None) -> None:
    share = seconds["to blocks and back"] / seconds["redistributed"]
    print(f"{n} equations, {ranks} ranks")
    for name, value in seconds.items():
        print(f"  {name:20} {1e3 * value:9.2f} ms")
    print(f"  solved {seconds['in rows'] / seconds['redistributed']:.2f} times as fast, redistributing is {share:.1%}")
    if path:
        with open(path, "a") as lines:
            lines.write(json.dumps({"size": n, "ranks": ranks, "seconds": seconds}) + "\n")


if __name__ == "__main__":
    main()
