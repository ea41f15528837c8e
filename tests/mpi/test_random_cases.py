"""Every strategy moves and computes random tensors as brute force says, on any number of ranks and under every MPI."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from cases import CALLS, LONGEST, OPTIONS, arrays, carry_out, cases, wrong_parts
from distributions import rows_to_columns, same_on_all_ranks
from hypothesis import given
from hypothesis import strategies as st

import dace_redist


@pytest.mark.fuzz
@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[2, 3, 7], full=[1, 5, 12], timeout=400)
def test_random_cases(comm, monkeypatch):
    # A duplicate has the ranks' order of the world, the split one has it reversed.
    communicators = [comm, comm.Dup(), comm.Split(0, -comm.rank)]
    turn = itertools.count()

    # All ranks draw the same cases and know every failure, so that Hypothesis goes the same way on each.
    @same_on_all_ranks(100, comm.size)
    @given(cases(comm.size), st.sampled_from(CALLS), st.integers(0, 3))
    def check_strategies(case: dict[str, Any], call: str, node_ranks: int) -> None:
        for strategy in OPTIONS:
            monkeypatch.setenv("DACE_REDIST_NODE_RANKS", str(node_ranks))
            used = communicators[next(turn) % len(communicators)]
            array, out, wanted = arrays(used, case)
            before = out.base.copy() if isinstance(out.base, np.ndarray) else None
            start = out.copy()
            pair = case["source"], case["target"], case["types"]
            how = {**case["how"], **case["options"][strategy]}
            carry_out(call, array, out, *pair, comm=used, strategy=strategy, **how)
            wrong = wrong_parts(used, f"{strategy} by {call}", [(array, out, wanted)])
            assert not wrong, wrong[0]
            out[...] = start
            assert before is None or np.array_equal(out.base, before), f"{strategy}: wrote beside its part"

    check_strategies()
    for made in communicators[1:]:
        made.Free()


@pytest.mark.fuzz
@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[2, 7], full=[1, 5], timeout=200)
def test_random_lists_of_tensors(comm):
    several = st.lists(cases(comm.size), min_size=1, max_size=4)

    @same_on_all_ranks(50, comm.size)
    @given(several, st.sampled_from(CALLS), LONGEST, st.sampled_from(["Auto", *OPTIONS]))
    def check_strategies(several: list[dict[str, Any]], call: str, longest: int, strategy: str) -> None:
        how = {name: [case["how"][name] for case in several] for name in several[0]["how"]}
        pair = [[case[side] for case in several] for side in ("source", "target")]
        types = [list(side) for side in zip(*(case["types"] for case in several), strict=True)]
        parts = [arrays(comm, case) for case in several]
        given_, out, _ = (list(side) for side in zip(*parts, strict=True))
        carry_out(call, given_, out, *pair, types, comm=comm, strategy=strategy, max_message_bytes=longest, **how)
        assert not (wrong := wrong_parts(comm, f"{strategy} by {call}", parts)), wrong[0]

    check_strategies()


@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[3])
def test_repeated_calls_on_any_communicator(comm):
    """Repeated calls take the cached plan, found by the communicator's handle: MPICH's have the highest bit set."""
    for used in (comm, comm.Dup(), comm.Split(0, -comm.rank)):
        source, target, here, there = rows_to_columns(used, (6, 5))
        for _ in range(4):
            assert np.array_equal(dace_redist.redistribute(here, source, target, comm=used), there)
