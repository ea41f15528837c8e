"""Every strategy moves random tensors as brute force says, on every number of ranks and under every MPI."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cases import OPTIONS, RandomCase, cases, local_array
from distributions import moved, same_on_all_ranks
from hypothesis import given

import dace_redist


def check(comm, strategy: str, case: RandomCase) -> str:
    """Move A -> B -> A; return the errors on this rank."""
    whole, before = case.whole(), case.background()
    after = moved(whole, before, case.axes, case.region)
    restored = moved(after, np.zeros_like(whole), **case.back())
    here, there, wanted = (
        side.local(array, comm.rank)
        for side, array in ((case.source, whole), (case.target, before), (case.target, after))
    )
    array, out = local_array(here, case.layout), local_array(there, case.layout)
    surroundings = out.base.copy() if isinstance(out.base, np.ndarray) else None
    how = {"comm": comm, "strategy": strategy, **case.options[strategy]}
    got = dace_redist.redistribute(array, case.source, case.target, out=out, **how, **case.there())
    wrong = []
    if got is not out or not np.array_equal(out, wanted):
        wrong.append(f"got {out.tolist()}, expected {wanted.tolist()}")
    if surroundings is not None:
        out[...] = there
        if not np.array_equal(out.base, surroundings):
            wrong.append("wrote beside its part")
    back = None if case.region is None else np.zeros_like(here)
    back = dace_redist.redistribute(wanted, case.target, case.source, out=back, **how, **case.back())
    if not np.array_equal(back, case.source.local(restored, comm.rank)):
        wrong.append(f"way back: {back.tolist()}, expected {here.tolist()}")
    return "; ".join(f"{strategy}, rank {comm.rank}: {text}" for text in wrong)


@pytest.mark.fuzz
@pytest.mark.compile
@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[1, 2, 3, 5, 7, 12], timeout=400)
def test_random_cases(comm, monkeypatch):
    # A duplicate has the ranks' order of the world, the split one has it reversed.
    communicators = [comm, comm.Dup(), comm.Split(0, -comm.rank)]
    turn = itertools.count()

    # All ranks draw the same cases and know every failure, so that Hypothesis goes the same way on each.
    @same_on_all_ranks(100, comm.size)
    @given(cases(comm.size))
    def check_strategies(case: RandomCase) -> None:
        for strategy in OPTIONS:
            monkeypatch.setenv("DACE_REDIST_NODE_RANKS", "0" if strategy == "Shared" else str(case.node_ranks))
            used = communicators[next(turn) % len(communicators)]
            wrong = [text for text in comm.allgather(check(used, strategy, case)) if text]
            assert not wrong, wrong[0]

    check_strategies()
    for made in communicators[1:]:
        made.Free()


@pytest.mark.compile
@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[2, 3])
def test_repeated_calls_on_any_communicator(comm):
    """Repeated calls take the cached plan, found by the communicator's handle: MPICH's have the highest bit set."""
    shape = (6, 5)
    source, target = (dace_redist.Distribution(shape, grid) for grid in ((comm.size,), (1, comm.size)))
    whole = np.arange(30.0).reshape(shape)
    for used in (comm, comm.Dup(), comm.Split(0, -comm.rank)):
        here, there = source.local(whole, used.rank), target.local(whole, used.rank)
        for _ in range(4):
            assert np.array_equal(dace_redist.redistribute(here, source, target, comm=used), there)
