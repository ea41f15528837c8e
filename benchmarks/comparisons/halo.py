"""Halo exchanges against mpi4py with subarray types: to each of 26 neighbours, and dimension by dimension."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

import dace_redist
from comparisons.comparison import MEMORIES, Comparison, in_each_memory
from dace_redist import Distribution
from dace_redist.mpi.collective import together

Array = npt.NDArray[Any]
Types = tuple[MPI.Datatype, MPI.Datatype, int, int, int]  # sent, received; peer sent to, received from; tag


def subarrays(grid: MPI.Cartcomm, array: Array, width: int, sides: tuple[int, ...], with_margins: bool) -> Types:
    """
    Return the types of a message to the neighbour in one direction, and of that from the opposite one.

    :param sides: Direction along each axis: -1, 0 or 1.
    :param with_margins: True to send margins along axes of direction 0, too.
    """
    sent, received, shape = [], [], []
    for n, side in zip(array.shape, sides, strict=True):
        inner = 0 if with_margins else width
        shape.append(width if side else n - 2 * inner)
        sent.append({-1: width, 0: inner, 1: n - 2 * width}[side])
        received.append({-1: n - width, 0: inner, 1: 0}[side])
    types = [MPI.DOUBLE.Create_subarray(array.shape, shape, start).Commit() for start in (sent, received)]
    ends = [grid.Get_cart_rank(np.add(grid.coords, np.multiply(sign, sides)).tolist()) for sign in (1, -1)]
    return types[0], types[1], ends[0], ends[1], int(np.ravel_multi_index(np.add(sides, 1), (3, 3, 3)))


def exchange(grid: MPI.Cartcomm, array: Array, types: list[Types]) -> None:
    """Receive and send the messages of one or more directions, and wait for them."""
    requests = [grid.Irecv([array, 1, received], source, tag) for _, received, _, source, tag in types]
    requests += [grid.Isend([array, 1, sent], target, tag) for sent, _, target, _, tag in types]
    MPI.Request.Waitall(requests)


def by_subarrays(grid: MPI.Cartcomm, array: Array, width: int) -> dict[str, Callable[[], None]]:
    """Return the exchange with all neighbours at once, and the one dimension by dimension, faces with margins."""
    directions = [sides for sides in itertools.product((-1, 0, 1), repeat=array.ndim) if any(sides)]
    at_once = [subarrays(grid, array, width, sides, False) for sides in directions]
    axes = [
        [subarrays(grid, array, width, tuple(side * (i == axis) for i in range(array.ndim)), True) for side in (-1, 1)]
        for axis in range(array.ndim)
    ]

    def by_dimension() -> None:
        for types in axes:
            exchange(grid, array, types)

    all_at_once = functools.partial(exchange, grid, array, at_once)
    return {"mpi4py, 26 neighbours": all_at_once, "mpi4py, dimension by dimension": by_dimension}


@in_each_memory
def periodic(comm: MPI.Intracomm, shape: tuple[int, ...], memory: str) -> Iterator[Comparison]:
    grid = comm.Create_cart(MPI.Compute_dims(comm.size, len(shape)), [True] * len(shape))
    for width in (1, 2):
        distribution = Distribution(shape, grid.dims, halo=width, periodic=True)
        array = MEMORIES[memory](distribution.local_shape(comm.rank))
        whole = np.arange(np.prod(shape), dtype="f8").reshape(shape)
        expected = distribution.local(whole, comm.rank)
        with dace_redist.plan(distribution, distribution, "f8", comm=comm) as plan:
            methods = {"plan(A, out=A)": lambda: plan(array, out=array), **by_subarrays(grid, array, width)}  # noqa: B023
            for name, method in methods.items():
                array[...] = -1
                array[distribution.interior(comm.rank)] = whole[distribution.slices(comm.rank)]
                method()
                with together(comm):
                    assert np.array_equal(array, expected), f"{name} is wrong"
            yield Comparison(f"{memory}, width {width}", methods)
    grid.Free()
