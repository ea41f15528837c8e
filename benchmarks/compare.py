"""
Steps of programs with this package against the same steps without it.

The methods of a comparison are measured alternately in one run (dace_redist/timing/measure.py); medians count.

    mpiexec -n 4 python benchmarks/compare.py [COMPARISON]... [--shape 4096x4096] [--limit 10] [--json FILE]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click
from comparisons import (
    cp_als,
    files,
    fused,
    halo,
    libraries,
    planner,
    products,
    replicas,
    scalapack_routines,
    sparse_stacks,
)
from comparisons.comparison import Comparison, UnsuitableError
from mpi4py import MPI
from records import append, environment, json_option

from dace_redist.cli import run_command
from dace_redist.mpi.topology import pinned_to_core, topology_of
from dace_redist.report.units import table
from dace_redist.timing.measure import measure

Shape = tuple[int, ...]


class Entry(NamedTuple):
    """Comparisons of one kind: description, shapes of their tensors, and the function that prepares them."""

    title: str
    shapes: tuple[Shape, ...]
    prepare: Callable[[MPI.Intracomm, Shape], Iterator[Comparison]]


ENTRIES = {
    "axes": Entry("axes permuted by the redistribution, or by numpy.transpose after it", ((4096, 4096),), fused.axes),
    "reshape": Entry("reshaped by the redistribution, or on one rank", ((4096, 4096), (256, 256, 256)), fused.reshape),
    "convert": Entry("float64 to float32 by the redistribution, or before it", ((4096, 4096),), fused.convert),
    "several": Entry("16 tensors in one exchange, or one after another", ((64, 128),), fused.several),
    "reduce": Entry("op='sum', or Reduce, Redistribute, Bcast", ((4096, 1024),), fused.reduce),
    "stacks": Entry(
        "stacks of sparse matrices (energies x non-zeros) there and back", ((103, 50021),), sparse_stacks.transposed
    ),
    "scalapack": Entry(
        "p?gemr2d and p?tran, by the library for preloading or by ScaLAPACK",
        ((300,), (2000,), (4000,), (8000,)),
        scalapack_routines.against_library,
    ),
    "libraries": Entry("arrays of other libraries, from axis 0 split to axis 1", ((4096, 4096),), libraries.resplit),
    "halo": Entry("halo exchange in 3 dimensions, or with mpi4py's subarrays", ((192, 192, 192),), halo.periodic),
    "products": Entry("products of square matrices, by BLAS, COSMA, pdgemm", ((1024,), (2048,)), products.by_layout),
    "cp-als": Entry("sweeps of CP-ALS, or by hand with mpi4py", ((12, 10, 8), (100, 100, 100)), cp_als.sweeps),
    "files": Entry("a file of 1 GiB, by load() or by each rank's hyperslab", ((1 << 14, 1 << 14),), files.read),
    "hdf5": Entry("12 arrays in a file, or by h5py, a rank after another", ((10752, 1024),), files.hdf5),
    "npy": Entry("an array in a file, or by MPI-IO", ((8192, 8192),), files.npy),
    "names": Entry("1,000 arrays by name, in one call or each alone", ((16, 8),), files.by_name),
    "replicas": Entry("replicas and sums, or MPI's collectives", ((128, 1 << 14),), replicas.by_mpi),
    "ranks": Entry("plan of one of 1,000,000 ranks", (planner.SHAPE,), planner.ranks),
    "boxes": Entry("plan of one of 1,000 ranks, 1,000,000 boxes to 1,000,000", ((10_000,) * 3,), planner.boxes),
}


def _shape(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[Shape, ...]:
    try:
        return tuple(tuple(int(extent) for extent in text.split("x")) for text in given)
    except ValueError:
        raise click.BadParameter(f"expected lengths such as 4096x4096, got {' '.join(given)}") from None


def _report(name: str, shape: Shape, comparison: Comparison, seconds: dict[str, float]) -> None:
    first = next(iter(seconds.values()))
    click.echo(f"{name}, {'x'.join(map(str, shape))}, {MPI.COMM_WORLD.size} ranks, {comparison.what}")
    rows = [(f"  {m}", f"{1e3 * s:.3f} ms", f"{s / first:.2f} times as long") for m, s in seconds.items()]
    click.echo("\n".join(table(rows, left=1)))


@click.command(
    help=__doc__, epilog="\b\n" + "\n".join(f"{name:10}{entry.title}" for name, entry in ENTRIES.items()) + "\n"
)
@click.argument("names", metavar="[COMPARISON]...", nargs=-1, type=click.Choice(list(ENTRIES)))
@click.option("--shape", "shapes", multiple=True, callback=_shape, help="other lengths of the tensors, repeatable")
@click.option("--limit", default=10.0, show_default=True, help="seconds for each comparison")
@json_option()
def main(names: tuple[str, ...], shapes: tuple[Shape, ...], limit: float, path: Path | None) -> None:
    comm = MPI.COMM_WORLD
    where = environment(comm.size, topology_of(comm).node_of)
    for name in names or ENTRIES:
        for shape in shapes or ENTRIES[name].shapes:
            try:
                with pinned_to_core(comm):
                    for comparison in ENTRIES[name].prepare(comm, shape):
                        figures = measure(comparison.methods, comm, settle=comparison.settle, limit_seconds=limit)
                        seconds = {method: figure.median for method, figure in figures.items()}
                        if comm.rank == 0:
                            _report(name, shape, comparison, seconds)
                            record = {"comparison": name, "shape": shape, "what": comparison.what, "seconds": seconds}
                            append(path, record | {"ranks": comm.size, "environment": where})
            except UnsuitableError as error:  # equal on every rank
                if names:
                    raise click.ClickException(f"{name}: {error}") from None
                if comm.rank == 0:
                    click.echo(f"{name}: skipped, {error}", err=True)
                break


if __name__ == "__main__":
    run_command(main, "compare.py")
