"""Replicas and sums between nodes: random cases long enough to be cut into pieces, and shared between nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import CALLS, arrays, carry_out, cases, wrong_parts
from distributions import same_on_all_ranks
from hypothesis import assume, given
from hypothesis import strategies as st

from dace_redist import Distribution, plan

SHAPES = st.sampled_from([(4100,), (80, 60), (190, 180), (40, 9, 30), (12, 10, 20, 15)])


@pytest.mark.mpi(ranks=[4, 7], full=[12], timeout=300)
def test_random_replicas_and_sums(comm, monkeypatch):
    several = st.lists(cases(comm.size, SHAPES), min_size=1, max_size=2)

    @same_on_all_ranks(40, comm.size)
    @given(several, st.sampled_from(CALLS), st.sampled_from([-1, 0, 4096]), st.integers(2, 3))
    def check(several: list[dict[str, Any]], call: str, join_bytes: int, node_ranks: int) -> None:
        assume(all(max(case[side].core.replicas for side in ("source", "target")) > 1 for case in several))
        monkeypatch.setenv("DACE_REDIST_NODE_RANKS", str(node_ranks))
        how = {name: [case["how"][name] for case in several] for name in several[0]["how"]}
        pair = [[case[side] for case in several] for side in ("source", "target")]
        types = [list(side) for side in zip(*(case["types"] for case in several), strict=True)]
        parts = [arrays(comm, case) for case in several]
        given_, out, _ = (list(side) for side in zip(*parts, strict=True))
        carry_out(call, given_, out, *pair, types, comm=comm, strategy="Hierarchical", join_bytes=join_bytes, **how)
        assert not (wrong := wrong_parts(comm, f"{join_bytes} by {call}", parts)), wrong[0]

    check()


@pytest.mark.mpi(ranks=[6])
@pytest.mark.parametrize("target", [[0, None], [None, None]])
def test_sums_are_reproducible(comm, monkeypatch, target):
    """Sums of numbers that are rounded are equal in all runs, and in all replicas."""
    monkeypatch.setenv("DACE_REDIST_NODE_RANKS", "2")
    shape = (60, 50)
    partial, whole = Distribution(shape, (6,), dims=[None, None]), Distribution(shape, (6,), dims=target)
    here = np.random.default_rng(comm.rank).random(shape)
    with plan(partial, whole, float, op="sum", comm=comm, strategy="Hierarchical") as made:
        first = made(here).copy()
        for _ in range(3):
            assert np.array_equal(made(here), first)
    parts = comm.allgather((whole.slices(comm.rank), first, here))
    everything = sum(part for *_, part in parts)
    for where, part, _ in parts:
        assert np.allclose(part, everything[where])
        assert target[0] == 0 or np.array_equal(part, first)
