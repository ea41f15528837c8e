"""Tensors without elements, and of 0 dimensions, through the API for NumPy arrays and nodes of DaCe programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_arrays import OtherLibrary
from results import raise_anywhere

import dace_redist
from dace_redist import Distribution, TiledDistribution


def pairs(ranks: int) -> dict[str, tuple[Any, Any]]:
    """Distributions over so many ranks, before and after."""
    last, rows = ranks - 1, Distribution((0, 5), (ranks,))
    one = Distribution((), (), ranks=(last,))
    no_tiles = TiledDistribution((0, 5), (2, 2), np.empty((0, 3)))
    return {
        "no rows": (rows, Distribution((0, 5), (1, ranks), block="balanced")),
        "no columns": (Distribution((4, 0), (ranks,)), Distribution((4, 0), (), ranks=(last,))),
        "no tiles": (no_tiles, rows),
        "one to all": (one, Distribution((), (ranks,))),
        "all to one": (Distribution((), (ranks,)), one),
        "one to a tile": (Distribution((), (1,)), TiledDistribution((), (), last)),
        "tile to pinned": (TiledDistribution((), (), 0), Distribution((), (1, ranks), pins=(None, last))),
    }


def wrong_parts(comm: Any, name: str, source: Any, target: Any) -> list[str]:
    """Move into a new array and into a given one; return the wrong parts of this rank."""
    whole, wrong = np.full(source.shape, 7.5), []
    here, there = (side.local(whole, comm.rank) for side in (source, target))
    outs = [None, np.zeros_like(there)]
    for out in outs:
        got = dace_redist.redistribute(here, source, target, comm=comm, out=out, strategy="Pack")
        if got.shape != target.local_shape(comm.rank) or not np.array_equal(got, there):
            wrong.append(f"{name}, rank {comm.rank}: got {got!r}, expected {there!r}")
    return wrong


@pytest.mark.compile
@pytest.mark.mpi(ranks=[3], full=[1], timeout=120)
def test_arrays(comm):
    raise_anywhere(comm, [text for name, pair in pairs(comm.size).items() for text in wrong_parts(comm, name, *pair)])


@pytest.mark.compile
@pytest.mark.mpi(ranks=[3], full=[2], timeout=60)
def test_none_in_the_place_of_an_array(comm):
    """A rank that owns nothing learns the element type from out, or where that is another from the other ranks."""
    shape, last = (6, 5), comm.size - 1
    columns = Distribution(shape, (1, comm.size))
    whole = [np.arange(30, dtype="f4").reshape(shape), np.arange(30, dtype="i4").reshape(shape)]
    sources = [Distribution(shape, (1, 1)), Distribution(shape, (1, 1), ranks=(last,))]  # no rank has both
    arrays = [whole[0] if comm.rank == 0 else None, whole[1] if comm.rank == last else None]
    wanted = [columns.local(one, comm.rank) for one in whole]
    for library in (np.asarray, OtherLibrary):
        for dtype in (None, "f8"):
            outs = [np.zeros_like(one, dtype=dtype) for one in wanted]
            for array, source, out in zip(arrays, sources, outs, strict=True):
                dace_redist.redistribute(array, source, columns, comm=comm, out=library(out), target_dtype=dtype)
            dace_redist.redistribute(
                arrays,
                sources,
                [columns] * 2,
                comm=comm,
                out=[library(out) for out in outs],
                target_dtype=dtype,
                alpha=1,
            )
            assert all(np.array_equal(a, b) for a, b in zip(outs, wanted, strict=True))


@pytest.mark.compile
@pytest.mark.mpi(ranks=[3], full=[2], timeout=60)
def test_none_that_leaves_a_question(comm):
    rows, columns = Distribution((6, 4), (comm.size, 1)), Distribution((6, 4), (1, comm.size))
    none, here = Distribution((0, 4), (comm.size, 1)), np.ones(rows.local_shape(comm.rank))
    out, empty = np.zeros(columns.local_shape(comm.rank)), np.zeros(none.local_shape(comm.rank))
    given = here if comm.rank == 0 else None
    for call, kind, text in (
        (
            lambda how: (None, none, none, how),
            TypeError,
            "array is None on every rank, and out has the type that elements",
        ),
        (
            lambda how: ([here, None], [rows, none], [columns, none], how | {"out": [out, empty]}),
            TypeError,
            r"array\[1\] is None on every rank, and out has the type that elements",
        ),
        (
            lambda how: (given, rows, columns, how | {"out": out}),
            ValueError,
            r"array must have the shape \(\d, 4\) that rank \d owns of the tensor, got None",
        ),
        (
            lambda how: (given, rows, columns, how | {"out": None}),
            TypeError,
            "array is None: pass an empty array of the element type, or out",
        ),
    ):
        *arguments, how = call({"out": empty, "target_dtype": "f8"})
        with pytest.raises(kind, match=text):
            dace_redist.redistribute(*arguments, comm=comm, **how)
