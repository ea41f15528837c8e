"""
Axes, conversions and reductions fused into a redistribution, against a separate step before or after it.

The sides of each comparison are measured alternately in one run (dace_redist/tuning/measure.py); the medians count.

    mpiexec -n 4 python benchmarks/on_the_way.py [--json FILE] [--limit 10] [--size 4096] [--replicas 2] [ROW]...
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
import numpy as np
from mpi4py import MPI

import dace_redist
from dace_redist import Distribution
from dace_redist.measuring.measure import measure
from dace_redist.mpi.collective import together
from dace_redist.mpi.topology import pinned_to_core

Sides = dict[str, Callable[[], Any]]

#: What each row compares.
ROWS = {
    "axes": "permuted axes: redistribution of as many bytes, and redistribution followed by numpy.transpose",
    "convert": "float64 to float32 on the way, and converting first",
    "several": "16 tensors with messages of 4 KiB (on 4 ranks) in one exchange, and one after another",
    "reduce": "op='sum', and Reduce to one rank, Redistribute among these, Bcast",
}


def rows_and_columns(size: int, ranks: int) -> tuple[Distribution, Distribution]:
    return Distribution((size, size), (ranks, 1)), Distribution((size, size), (1, ranks))


def axes(comm: MPI.Intracomm, size: int, shared: bool) -> tuple[Sides, list[Any]]:
    rows, columns = rows_and_columns(size, comm.size)
    allocate = dace_redist.shared_empty if shared else np.empty
    A, plain, turned = (allocate(side.local_shape(comm.rank)) for side in (rows, columns, rows))
    A[...] = comm.rank
    moves = dace_redist.plan(rows, columns, "f8", comm=comm), dace_redist.plan(rows, rows, "f8", comm=comm, axes=(1, 0))

    def after() -> None:
        moves[0](A, out=plain)
        np.ascontiguousarray(plain.T)

    return {
        "with axes": lambda: moves[1](A, out=turned),
        "plain": lambda: moves[0](A, out=plain),
        "plain, then transpose": after,
    }, list(moves)


def convert(comm: MPI.Intracomm, size: int, shared: bool) -> tuple[Sides, list[Any]]:
    rows, columns = rows_and_columns(size, comm.size)
    allocate = dace_redist.shared_empty if shared else np.empty
    A, B = allocate(rows.local_shape(comm.rank)), allocate(columns.local_shape(comm.rank), "f4")
    A[...] = comm.rank
    moves = (
        dace_redist.plan(rows, columns, "f8", comm=comm, target_dtype="f4"),
        dace_redist.plan(rows, columns, "f4", comm=comm),
    )
    return {
        "on the way": lambda: moves[0](A, out=B),
        "before": lambda: moves[1](A.astype("f4"), out=B),
    }, list(moves)


def several(comm: MPI.Intracomm, size: int, shared: bool) -> tuple[Sides, list[Any]]:
    rows, columns = Distribution((64, 128), (comm.size, 1)), Distribution((64, 128), (1, comm.size))
    allocate = dace_redist.shared_empty if shared else np.empty
    many, here, there = range(16), rows.local_shape(comm.rank), columns.local_shape(comm.rank)
    sources, targets = [allocate(here) for _ in many], [allocate(there) for _ in many]
    moves = [dace_redist.plan(rows, columns, "f8", comm=comm) for _ in many]
    joint = dace_redist.plan([rows] * 16, [columns] * 16, "f8", comm=comm)

    def one_by_one() -> None:
        for move, source, target in zip(moves, sources, targets, strict=True):
            move(source, out=target)

    return {"in one exchange": lambda: joint(sources, out=targets), "one after another": one_by_one}, [*moves, joint]


def reduce(comm: MPI.Intracomm, size: int, shared: bool, replicas: int = 2) -> tuple[Sides, list[Any]]:
    """Rows with several partial sums each, to columns on as many replicas each."""
    grid = (comm.size // replicas, replicas)
    shape = (size, size // 4)
    partial = Distribution(shape, grid, dims=(0, None))
    target = Distribution(shape, grid, dims=(None, 0))
    corners = Distribution(shape, grid, dims=(0, None), pins=(None, 0))
    there = Distribution(shape, grid, dims=(None, 0), pins=(None, 0))
    group = comm.Split(comm.rank // replicas, comm.rank)
    allocate = dace_redist.shared_empty if shared else np.empty
    A, total = allocate(partial.local_shape(comm.rank)), np.empty(partial.local_shape(comm.rank))
    B, C = (allocate(target.local_shape(comm.rank)) for _ in range(2))
    A[...] = comm.rank
    moves = (
        dace_redist.plan(partial, target, "f8", comm=comm, op="sum"),
        dace_redist.plan(corners, there, "f8", comm=comm),
    )
    nothing = np.empty((0, 0))

    def three() -> None:
        group.Reduce(A, total, MPI.SUM, 0)
        moves[1](total if group.rank == 0 else nothing, out=C if group.rank == 0 else nothing)
        group.Bcast(C, 0)

    three()
    moves[0](A, out=B)
    with together(comm):
        assert np.allclose(B, C), "op='sum' and Reduce, Redistribute, Bcast do not agree"
    return {"op='sum'": lambda: moves[0](A, out=B), "Reduce, Redistribute, Bcast": three}, list(moves)


@click.command(help=__doc__)
@click.argument("rows", nargs=-1, type=click.Choice(list(ROWS)))
@click.option("--size", default=4096, show_default=True, help="rows and columns of the matrix")
@click.option("--replicas", default=2, show_default=True, help="of 'reduce': partial sums, and replicas of the target")
@click.option("--limit", default=10.0, show_default=True, help="seconds for each comparison")
@click.option("--json", "path", type=click.Path(dir_okay=False), help="append a JSON line for each row")
def main(rows: tuple[str, ...], size: int, replicas: int, limit: float, path: str | None) -> None:
    comm = MPI.COMM_WORLD
    if comm.size < 2 or comm.size % 2:
        raise click.ClickException(f"needs an even number of ranks, got {comm.size}")
    if replicas < 1 or comm.size % replicas:
        raise click.ClickException(f"--replicas must divide the number of ranks, {comm.size}, got {replicas}")
    with pinned_to_core(comm):
        for row in rows or ROWS:
            for shared in (False, True):
                options = {"replicas": replicas} if row == "reduce" else {}
                sides, plans = globals()[row](comm, size, shared, **options)
                figures = measure(sides, comm, limit_seconds=limit)
                for made in plans:
                    made.free()
                if comm.rank == 0:
                    report(row, shared, comm.size, {name: figure.median for name, figure in figures.items()}, path)


def report(row: str, shared: bool, ranks: int, seconds: dict[str, float], path: str | None) -> None:
    first, *others = seconds
    kind = "node-shared" if shared else "ordinary"
    print(f"{row}, {ranks} ranks, {kind} arrays ({ROWS[row]})")
    print(f"  {first:30} {1e3 * seconds[first]:8.2f} ms")
    for name in others:
        print(f"  {name:30} {1e3 * seconds[name]:8.2f} ms, {seconds[name] / seconds[first]:.2f} times as long")
    if path:
        with open(path, "a") as lines:
            lines.write(json.dumps({"row": row, "ranks": ranks, "memory": kind, "seconds": seconds}) + "\n")


if __name__ == "__main__":
    main()
