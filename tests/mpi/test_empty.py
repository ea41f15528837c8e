"""Tensors without elements, and of 0 dimensions, through the API for NumPy arrays and nodes of DaCe programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
    wrong = [text for name, pair in pairs(comm.size).items() for text in wrong_parts(comm, name, *pair)]
    everywhere = [text for texts in comm.allgather(wrong) for text in texts]
    assert not everywhere, "\n".join(everywhere)


class OtherLibrary:
    """Array in main memory of a library other than NumPy."""

    def __init__(self, array: np.ndarray) -> None:
        self.__dlpack__ = array.__dlpack__


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
                dace_redist.redistribute(array, source, columns, comm=comm, out=library(out), dtype=dtype)
            dace_redist.redistribute(
                arrays, sources, [columns] * 2, comm=comm, out=[library(out) for out in outs], dtype=dtype, alpha=1
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
        *arguments, how = call({"out": empty, "dtype": "f8"})
        with pytest.raises(kind, match=text):
            dace_redist.redistribute(*arguments, comm=comm, **how)


def nodes_sdfg() -> Any:
    """N rows to columns and summed; single elements, in arrays and in a scalar, to and from rank 2 and summed."""
    import dace
    from sdfgs import add_move

    from dace_redist import Redistribute
    from dace_redist.library_nodes import SumReplicas

    N = dace.symbol("N", dace.int64)
    sdfg = dace.SDFG("empty_nodes")
    state = sdfg.add_state(is_start_block=True)
    sdfg.add_array("rows", [dace.symbolic.int_ceil(N, 3), 5], dace.float64)
    sdfg.add_array("columns", [N, 2], dace.float64)
    rows, columns = Distribution((N, 5), (3,)), Distribution((N, 5), (1, 3))
    add_move(state, Redistribute("matrix", rows, columns, "Pack"), "rows", "columns")
    partial, sums = Distribution((N, 2), (3,), dims=(None, None)), Distribution((N, 2), (1,))
    for name in ("partials", "totals"):
        sdfg.add_array(name, [N, 2], dace.float64)
    add_move(state, SumReplicas("totals", partial, sums), "partials", "totals")
    replicas, one = Distribution((), (3,)), Distribution((), (), ranks=(2,))
    sdfg.add_scalar("scalar", dace.float64)
    for name in ("element", "from_element", "from_scalar", "total"):
        sdfg.add_array(name, [1], dace.float64)
    add_move(state, Redistribute("element", replicas, one, "Pack"), "element", "from_element")
    add_move(state, Redistribute("scalar", one, replicas, "Pipelined"), "scalar", "from_scalar")
    add_move(state, SumReplicas("total", replicas, one), "scalar", "total")
    return sdfg


@pytest.mark.compile
@pytest.mark.dace
@pytest.mark.mpi(ranks=[3], timeout=150)
def test_nodes(comm):
    from builds import built

    program = built(comm, "empty_nodes", nodes_sdfg)
    wrong = []
    for N in (0, 4, 0):
        whole = np.arange(N * 5.0).reshape(N, 5)
        here = Distribution((N, 5), (3,)).local(whole, comm.rank)
        there = Distribution((N, 5), (1, 3)).local(whole, comm.rank)
        rows, columns = np.zeros((-(-N // 3), 5)), np.full((N, 2), -1.0)
        rows[: len(here)] = here
        expected = columns.copy()
        expected[:, : there.shape[1]] = there
        from_element, from_scalar, total = np.full(1, -1.0), np.full(1, -1.0), np.full(1, -1.0)
        totals = np.full((N, 2), -1.0)
        program(
            rows=rows,
            columns=columns,
            element=np.full(1, 7.5),
            scalar=10.0 + comm.rank,
            from_element=from_element,
            from_scalar=from_scalar,
            total=total,
            partials=np.ones((N, 2)),
            totals=totals,
            N=N,
        )
        got = (columns.tolist(), totals.tolist(), from_element[0], from_scalar[0], total[0])
        last, sums = comm.rank == 2, np.full((N, 2), 3.0 if comm.rank == 0 else -1.0)
        want = (expected.tolist(), sums.tolist(), 7.5 if last else -1.0, 12.0, 33.0 if last else -1.0)
        wrong += [] if got == want else [f"N = {N}, rank {comm.rank}: got {got}, expected {want}"]
    everywhere = [text for texts in comm.allgather(wrong) for text in texts]
    assert not everywhere, "\n".join(everywhere)
