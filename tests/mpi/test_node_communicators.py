"""Nodes of the SDFG API on several ranks: communicators, process grids and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builds import built
from results import put, raise_anywhere

from dace_redist import Distribution, RedistributionError

pytestmark = [pytest.mark.compile, pytest.mark.dace]


def communicators_sdfg() -> Any:
    """N elements from P to Q blocks over a communicator that is an argument."""
    import dace
    from sdfgs import add_move

    from dace_redist.library_nodes import Redistribute

    N, P, Q, S, T = (dace.symbol(name) for name in "NPQST")
    sdfg = dace.SDFG("node_communicators")
    sdfg.add_array("A", [S], dace.float64)
    sdfg.add_array("B", [T], dace.float64)
    sdfg.add_scalar("handle", dace.int64)
    for name in "NPQ":
        sdfg.add_symbol(name, dace.int64)
    state = sdfg.add_state()
    node = Redistribute("resize", Distribution((N,), (P,)), Distribution((N,), (Q,), block="balanced"), "Pack")
    add_move(state, node, "A", "B").add_in_connector("_comm")
    state.add_edge(state.add_read("handle"), None, node, "_comm", dace.Memlet("handle[0]"))
    return sdfg


def run(program: Any, comm: Any, N: int, P: int, Q: int, S: int | None = None, T: int | None = None) -> np.ndarray:
    """Element i has value i + 100 * size of the communicator; what this rank got, -1 where nothing."""
    from mpi4py import MPI

    source, target = Distribution((N,), (P,)), Distribution((N,), (Q,), block="balanced")
    S, T = max(1, source.local_shape(0)[0]) if S is None else S, target.local_shape(0)[0] if T is None else T
    A, B = np.full(S, -2.0), np.full(T, -1.0)
    owned = source.local(np.arange(N) + 100.0 * comm.size, comm.rank)[:S]
    A[: owned.size] = owned
    program(A=A, B=B, handle=MPI._handleof(comm), N=N, P=P, Q=Q, S=S, T=T)
    return B


def expected(comm: Any, N: int, Q: int) -> np.ndarray:
    target = Distribution((N,), (Q,), block="balanced")
    return put(np.full(target.local_shape(0), -1.0), target.local(np.arange(N) + 100.0 * comm.size, comm.rank))


@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[4], timeout=120)
def test_communicators(comm):
    program = built(comm, "node_communicators", communicators_sdfg)
    wrong = []
    for color in (comm.rank % 2, comm.rank // 2, int(comm.rank < 3), 0):
        part = comm.Split(color, comm.rank)
        for N, P, Q in [(7, part.size, 1), (9, 1, part.size), (9, 1, part.size)]:
            got = run(program, part, N, P, Q)
            if not np.array_equal(got, expected(part, N, Q)):
                wrong.append(f"rank {comm.rank}, {part.size} ranks, {N, P, Q}: {got.tolist()}")
    raise_anywhere(comm, wrong)


GRID = Distribution((7, 8), (2, 2)), Distribution((7, 8), (1, 4))


def grid_sdfg() -> Any:
    import dace

    import dace_redist

    source, target = GRID

    @dace.program
    def on_a_grid(A: dace.float64[4, 4], B: dace.float64[7, 2]):
        grid = dace.comm.Cart_create([2, 2])
        dace_redist.redistribute(A, source, target, out=B, comm=grid, strategy="Pack")

    return on_a_grid.to_sdfg()


@pytest.mark.mpi(ranks=[6], full=[4], timeout=120)
def test_process_grid(comm):
    """Ranks outside the grid take no part, and their arrays stay as they are."""
    whole, A, B = np.arange(56.0).reshape(7, 8), np.zeros((4, 4)), np.full((7, 2), -1.0)
    wanted = B.copy()
    if comm.rank < 4:
        part, wanted = (distribution.local(whole, comm.rank) for distribution in GRID)
        A[: part.shape[0], : part.shape[1]] = part
    built(comm, "node_grid", grid_sdfg)(A=A, B=B)
    raise_anywhere(comm, [] if np.array_equal(B, wanted) else [f"rank {comm.rank}: {B.tolist()}"])


def failure(program: Any, comm: Any, *arguments: Any, **sizes: Any) -> str:
    try:
        run(program, comm, *arguments, **sizes)
    except RedistributionError as error:
        return str(error)
    return "nothing was raised"


@pytest.mark.mpi(ranks=[3], timeout=120)
def test_bad_input(comm):
    """Every rank raises, says what is wrong and where, and the program goes on with right values."""
    program = built(comm, "node_communicators", communicators_sdfg)
    wrong = []
    short = "the local {} array of rank {} has shape ({},), but its part of the distribution has shape ({},)"
    for arguments, sizes, content in (
        ((8, 2, 3), {"S": 3 if comm.rank == 1 else 4}, short.format("source", 1, 3, 4)),
        ((8, 3, 3), {"T": 2 if comm.rank == 0 else 5}, short.format("target", 0, 2, 3)),
        ((8 + comm.rank // 2, 3, 1), {"T": 20}, "the ranks differ in source shape[0]: 8 on rank 0 and 9 on rank 2"),
        ((8, 4, 1), {}, "the source distribution names ranks up to 3, but the communicator has 3 ranks"),
    ):
        text = failure(program, comm, *arguments, **sizes)
        if not (text.startswith('Redistribute "resize": ') and content in text):
            wrong.append(f"rank {comm.rank}: {text!r}, expected {content!r}")
    got = run(program, comm, 8, 2, 3)
    if not np.array_equal(got, expected(comm, 8, 3)):
        wrong.append(f"rank {comm.rank}, afterwards: {got.tolist()}")
    raise_anywhere(comm, wrong)
