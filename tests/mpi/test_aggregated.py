"""Messages joined between nodes: segments that are used again, nodes of any size, and what goes wrong on one rank."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pytest
from launching import launch

from dace_redist import Distribution, RedistributionError, plan, redistribute
from dace_redist.report.trace import Trace

NODE_RANKS = "DACE_REDIST_NODE_RANKS"
SHAPE = (60, 84)


def pair(ranks):
    return Distribution(SHAPE, (ranks, 1)), Distribution(SHAPE, (1, ranks))


@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[5], full=[2, 7], timeout=200)
@pytest.mark.parametrize("node_ranks", [1, 2, 3])
def test_exchanges_one_after_another(comm, monkeypatch, node_ranks):
    """A rank that is slow to read or to write finds what belongs to its exchange."""
    monkeypatch.setenv(NODE_RANKS, str(node_ranks))
    source, target = pair(comm.size)
    whole = np.arange(np.prod(SHAPE), dtype=float).reshape(SHAPE)
    A, wanted = source.local(whole, comm.rank), target.local(whole, comm.rank)
    for options in ({}, {"max_message_bytes": 1000}, {"chunk_bytes": 1000}):
        with plan(source, target, "float64", comm=comm, strategy="Aggregated", **options) as made:
            for turn in range(30):
                if turn % comm.size == comm.rank:
                    np.sort(np.random.default_rng(turn).random(10_000))
                np.testing.assert_array_equal(made(A + turn), wanted + turn)


#: One call each, with messages of 48 and of 2,400 bytes.
SHORT_AND_LONG = """
import numpy as np
from mpi4py import MPI
from dace_redist import Distribution, plan

comm = MPI.COMM_WORLD
for columns in (20, 1000):
    source, target = Distribution((30, columns), (10, 1)), Distribution((30, columns), (1, 10))
    whole = np.random.default_rng(1).random((30, columns))
    for strategy in ("Aggregated", "Hierarchical"):
        with plan(source, target, "float64", comm=comm, strategy=strategy) as made:
            np.testing.assert_array_equal(made(source.local(whole, comm.rank)), target.local(whole, comm.rank))
"""


def test_short_messages_are_sent_as_one(tmp_path):
    """Of five nodes of two ranks: one message to each other node, else eight of each rank."""
    command = [sys.executable, "-m", "mpi4py", "-c", SHORT_AND_LONG]
    code, printed = launch(10, command, 200, environment={NODE_RANKS: "2", "DACE_REDIST_TRACE": str(tmp_path)})
    assert code == 0, printed
    sent = Counter(span.nbytes for span in Trace(tmp_path).spans if span.kind == "send")
    padded = 2 * (2 * 48 + 16)  # the parts of each sender begin a cache line
    assert sent == {padded: 2 * 20, 4 * 2400: 20, 2400: 80}


@pytest.mark.mpi(ranks=[5], timeout=200)
def test_nodes_without_messages(comm, monkeypatch):
    """Of the pairs of three nodes some have nothing to move, and of the ranks of a node some have no part in it."""
    monkeypatch.setenv(NODE_RANKS, "2")
    whole = np.arange(40.0)
    for owners in ([4, 1, 3, 0], [1, 0, 3, 2], [2, 3, 0, 1], [0, 3, 4, 1]):
        source, target = Distribution((40,), (4,)), Distribution((40,), (4,), ranks=owners)
        with plan(source, target, "float64", comm=comm, strategy="Aggregated") as made:
            for turn in range(4):
                np.testing.assert_array_equal(
                    made(source.local(whole + turn, comm.rank)), target.local(whole + turn, comm.rank)
                )


@pytest.mark.mpi(ranks=[3])
def test_variable_that_is_wrong(comm, monkeypatch):
    """On one rank only, too: every rank raises, and a right call works afterwards."""
    source, target = pair(comm.size)
    A = source.local(np.ones(SHAPE), comm.rank)
    plan(source, target, "float64", comm=comm).free()  # from then on, facts of the communicator are known
    for on_last, on_others, text in (
        ("two", "two", 'DACE_REDIST_NODE_RANKS: expected a number of ranks >= 0 .0: all ranks of a node., got "two"'),
        ("2", "0", "DACE_REDIST_NODE_RANKS is 0 on rank 0 and 2 on rank 2"),
        ("-2", "1", "DACE_REDIST_NODE_RANKS: expected a number of ranks"),
    ):
        monkeypatch.setenv(NODE_RANKS, on_last if comm.rank == 2 else on_others)
        for strategy in ("Aggregated", "Auto"):
            with pytest.raises((RedistributionError, ValueError), match=text):
                plan(source, target, "float64", comm=comm, strategy=strategy)
    monkeypatch.delenv(NODE_RANKS)
    assert redistribute(A, source, target, comm=comm, strategy="Aggregated").sum() == A.size
