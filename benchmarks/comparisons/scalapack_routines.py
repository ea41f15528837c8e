"""ScaLAPACK's ``p?gemr2d`` and ``p?tran``, by ScaLAPACK and by the library that is preloaded in its place."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI
from redistribution import scalapack

from comparisons.comparison import Comparison, UnsuitableError
from dace_redist import Distribution
from dace_redist.mpi.collective import together
from dace_redist.native.cmake_build import ensure_library
from dace_redist.native.toolchain import SCALAPACK

Layout = tuple[tuple[int, int], int]  # process grid; rows and columns of a block
Call = Callable[[Any, Any, int], None]  # of a library, to an array, of so many rows


def _layouts(ranks: int) -> list[tuple[Layout, Layout]]:
    if ranks == 4:
        return [(((2, 2), 64), ((4, 1), 64)), (((2, 2), 64), ((2, 2), 128)), (((1, 4), 64), ((2, 2), 64))]
    tall, wide = (ranks, 1), (1, ranks)
    return [((tall, 64), (wide, 64)), ((tall, 64), (tall, 128)), ((wide, 64), (tall, 64))]


def _pointer(value: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(value.ctypes.data)


def _gemr2d(grids: scalapack.Grids, sides: list[Distribution], source: Any) -> Call:
    before, after = (grids.descriptor(side, order="F") for side in sides)
    n = sides[0].shape[0]

    def call(library: Any, target: Any, rows: int) -> None:
        library.Cpdgemr2d(rows, n, _pointer(source), 1, 1, before, _pointer(target), 1, 1, after, grids.everyone)

    return call


def _tran(grids: scalapack.Grids, sides: list[Distribution], source: Any) -> Call:
    descriptor, n = grids.descriptor(sides[0], order="F"), sides[0].shape[0]
    alpha, beta, one, columns = np.array(1.0), np.array(0.0), np.array(1, "i4"), np.array(n, "i4")

    def call(library: Any, target: Any, rows: int) -> None:
        m = np.array(rows, "i4")
        before, after = ((_pointer(a), _pointer(one), _pointer(one), descriptor) for a in (source, target))
        library.pdtran_(_pointer(m), _pointer(columns), _pointer(alpha), *before, _pointer(beta), *after)

    return call


def _methods(call: Call, n: int, ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> dict[str, Callable[[], None]]:
    smaller = itertools.count(1)
    return {
        "dace-redist": lambda: call(*ours, n),
        "dace-redist, first calls": lambda: call(*ours, n - next(smaller) % (n // 2)),
        "ScaLAPACK": lambda: call(*theirs, n),
    }


def against_library(comm: MPI.Intracomm, shape: tuple[int, ...]) -> Iterator[Comparison]:
    """Prepare square matrices; "first calls" are of shapes that did not occur before."""
    if reason := scalapack.library_missing():
        raise UnsuitableError(reason)
    if len(shape) != 1:
        raise UnsuitableError(f"expected the length of square matrices, such as 4096, got {'x'.join(map(str, shape))}")
    (n,), grids = shape, scalapack.Grids(comm)
    with together(comm):
        ours = ctypes.CDLL(str(ensure_library(SCALAPACK)))
    layouts = _layouts(comm.size)
    for make, pair in [*((_gemr2d, pair) for pair in layouts), (_tran, (layouts[0][0], layouts[0][0]))]:
        sides = [Distribution((n, n), grid, block=(block, block)) for grid, block in pair]
        source = np.asfortranarray(np.random.default_rng(comm.rank).random(sides[0].local_shape(comm.rank)))
        mine, expected = (np.zeros(sides[1].local_shape(comm.rank), order="F") for _ in range(2))
        methods = _methods(make(grids, sides, source), n, (ours, mine), (scalapack.library(), expected))
        methods["dace-redist"]()
        methods["ScaLAPACK"]()
        with together(comm):
            assert np.array_equal(mine, expected), "the two libraries do not agree"
        what = " to ".join(f"{grid[0]} x {grid[1]} / {block}" for grid, block in pair)
        yield Comparison(f"{make.__name__[1:]} {what}", methods)
    grids.free()
