"""Axes, shapes, conversions, reductions and several tensors fused into a redistribution, against separate steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from mpi4py import MPI

import dace_redist
from comparisons.comparison import MEMORIES, Comparison, UnsuitableError, agreeing, in_each_memory
from dace_redist import Distribution

TENSORS = 16  # that are moved at once


def rows_and_columns(shape: tuple[int, ...], ranks: int) -> tuple[Distribution, Distribution]:
    return Distribution(shape, (ranks, 1)), Distribution(shape, (1, ranks))


@in_each_memory
def axes(comm: MPI.Intracomm, shape: tuple[int, ...], memory: str) -> Iterator[Comparison]:
    rows, columns = rows_and_columns(shape, comm.size)
    turned_rows = Distribution(shape[::-1], (comm.size, 1))
    A, plain, turned = (MEMORIES[memory](side.local_shape(comm.rank)) for side in (rows, columns, turned_rows))
    A[...] = comm.rank
    with (
        dace_redist.plan(rows, turned_rows, "f8", comm=comm, axes=(1, 0)) as permute,
        dace_redist.plan(rows, columns, "f8", comm=comm) as move,
    ):

        def move_and_transpose() -> None:
            move(A, out=plain)
            np.ascontiguousarray(plain.T)

        methods = {
            "axes=(1, 0)": lambda: permute(A, out=turned),
            "without": lambda: move(A, out=plain),
            "without, then transpose": move_and_transpose,
        }
        yield Comparison(memory, methods)


@in_each_memory
def reshape(comm: MPI.Intracomm, shape: tuple[int, ...], memory: str) -> Iterator[Comparison]:
    """Rows to columns of the matrix with half as many rows; of three dimensions, of the first two joined."""
    wide = (shape[0] // 2, 2 * shape[1]) if len(shape) == 2 else (shape[0] * shape[1], *shape[2:])
    if shape[0] % comm.size or wide[0] % comm.size or wide[1] % comm.size:
        raise UnsuitableError(f"extents of {shape} and {wide} must be multiples of {comm.size}")
    source, (rows, columns) = Distribution(shape, (comm.size,)), rows_and_columns(wide, comm.size)
    first = [Distribution.on_rank(extents, 0) for extents in (shape, wide)]
    A, B, whole, reshaped = (MEMORIES[memory](side.local_shape(comm.rank)) for side in (source, columns, *first))
    A[...] = np.arange(A.size).reshape(A.shape) + comm.rank * A.size
    if comm.rank == 0:
        reshaped = whole.reshape(wide)
    with (
        dace_redist.plan(source, columns, "f8", comm=comm, reshape=wide) as fused,
        dace_redist.plan(rows, columns, "f8", comm=comm) as move,
        dace_redist.plan(source, first[0], "f8", comm=comm) as gather,
        dace_redist.plan(first[1], columns, "f8", comm=comm) as scatter,
    ):
        parts = A.reshape(rows.local_shape(comm.rank))

        def through_one_rank() -> None:
            gather(A, out=whole)
            scatter(reshaped, out=B)

        methods = {
            "reshape": lambda: fused(A, out=B),
            "as many bytes, without a reshape": lambda: move(parts, out=B),
            "gather, reshape, scatter by plans": through_one_rank,
            "gather, reshape, scatter by mpi4py": lambda: by_mpi4py(comm, A, whole, B),
        }
        yield Comparison(memory, agreeing(comm, methods, B))


def by_mpi4py(comm: MPI.Intracomm, A: np.ndarray, whole: np.ndarray, out: np.ndarray) -> None:
    """Gather rows on rank 0, and scatter columns of the matrix of another shape."""
    comm.Gather(A, whole if comm.rank == 0 else None)
    packed = None
    if comm.rank == 0:
        packed = np.ascontiguousarray(whole.reshape(len(out), comm.size, -1).swapaxes(0, 1))
    comm.Scatter(packed, out)


@in_each_memory
def convert(comm: MPI.Intracomm, shape: tuple[int, ...], memory: str) -> Iterator[Comparison]:
    rows, columns = rows_and_columns(shape, comm.size)
    A, B = MEMORIES[memory](rows.local_shape(comm.rank)), MEMORIES[memory](columns.local_shape(comm.rank), "f4")
    A[...] = comm.rank
    with (
        dace_redist.plan(rows, columns, "f8", comm=comm, target_dtype="f4") as converting,
        dace_redist.plan(rows, columns, "f4", comm=comm) as move,
    ):
        methods = {"target_dtype": lambda: converting(A, out=B), "astype before": lambda: move(A.astype("f4"), out=B)}
        yield Comparison(memory, agreeing(comm, methods, B))


@in_each_memory
def several(comm: MPI.Intracomm, shape: tuple[int, ...], memory: str) -> Iterator[Comparison]:
    rows, columns = rows_and_columns(shape, comm.size)
    shapes = [side.local_shape(comm.rank) for side in (rows, columns)]
    sources, targets = ([MEMORIES[memory](part) for _ in range(TENSORS)] for part in shapes)
    with (
        dace_redist.plan([rows] * TENSORS, [columns] * TENSORS, "f8", comm=comm) as joint,
        dace_redist.plan(rows, columns, "f8", comm=comm) as move,
    ):

        def one_by_one() -> None:
            for source, target in zip(sources, targets, strict=True):
                move(source, out=target)

        methods = {"in one exchange": lambda: joint(sources, out=targets), "one after another": one_by_one}
        yield Comparison(memory, methods)


@in_each_memory
def reduce(comm: MPI.Intracomm, shape: tuple[int, ...], memory: str) -> Iterator[Comparison]:
    """Rows with two partial sums each, to columns on two replicas each."""
    if comm.size % 2:
        raise UnsuitableError(f"the number of ranks must be even, got {comm.size}")
    grid = (comm.size // 2, 2)
    partial, target = Distribution(shape, grid, dims=(0, None)), Distribution(shape, grid, dims=(None, 0))
    first_rows, first_columns = (Distribution(shape, grid, dims=s.dims, pins=(None, 0)) for s in (partial, target))
    group = comm.Split(comm.rank // 2, comm.rank)
    A, B = (MEMORIES[memory](side.local_shape(comm.rank)) for side in (partial, target))
    A[...], total = comm.rank, np.empty(A.shape)
    ends = (total, B) if group.rank == 0 else (np.empty((0, 0)),) * 2
    with (
        dace_redist.plan(partial, target, "f8", comm=comm, op="sum") as fused,
        dace_redist.plan(first_rows, first_columns, "f8", comm=comm) as move,
    ):

        def separate() -> None:
            group.Reduce(A, total, MPI.SUM, 0)
            move(ends[0], out=ends[1])
            group.Bcast(B, 0)

        methods = {"op='sum'": lambda: fused(A, out=B), "Reduce, Redistribute, Bcast": separate}
        yield Comparison(memory, agreeing(comm, methods, B))
    group.Free()
