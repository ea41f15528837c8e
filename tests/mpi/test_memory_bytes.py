"""Redistributions whose buffers are bounded: what they take, and what is said where the bound is too small."""

from __future__ import annotations

import numpy as np
import pytest

from dace_redist import Distribution, plan, redistribute
from dace_redist.strategy_memory import extra_memory

SHAPE = (200, 300)


@pytest.mark.mpi(ranks=[3])
def test_tensors_arrive_within_a_bound(comm):
    source, target = Distribution(SHAPE, (comm.size, 1)), Distribution(SHAPE, (1, comm.size))
    whole = np.random.default_rng(3).standard_normal(SHAPE)
    A = source.local(whole, comm.rank)
    for strategy in ("Auto", "Pipelined", "Shared", "Hierarchical", "Aggregated"):
        for memory_bytes in (1 << 20, 100_000, 30_000):
            with plan(source, target, "float64", comm=comm, strategy=strategy, memory_bytes=memory_bytes) as made:
                assert extra_memory(made.schedule, made.strategy, **made.options) <= memory_bytes
                assert "chunk_bytes" in made.options or strategy == "Shared"  # on GPUs its default is larger
                np.testing.assert_array_equal(made(A), target.local(whole, comm.rank))
            B = redistribute(A, source, target, comm=comm, strategy=strategy, memory_bytes=memory_bytes, axes=(0, 1))
            np.testing.assert_array_equal(B, target.local(whole, comm.rank))


@pytest.mark.mpi(ranks=[2])
def test_bounds_that_cannot_be_kept(comm):
    source, target = Distribution(SHAPE, (comm.size, 1)), Distribution(SHAPE, (1, comm.size))
    A = np.ones(source.local_shape(comm.rank))
    for how, kind, message in (
        (
            {"memory_bytes": 5},
            ValueError,
            r"memory_bytes is 5, but strategy Hierarchical needs at least \d+ bytes here",
        ),
        ({"memory_bytes": 1000}, ValueError, r"needs at least \d+ bytes here; Pipelined takes as little as \d+$"),
        ({"memory_bytes": 1 << 20, "strategy": "Pack"}, ValueError, "which memory_bytes cannot bound; use Pipelined"),
        ({"memory_bytes": "1M"}, TypeError, "memory_bytes must be a number of bytes, got '1M'"),
        (
            {"memory_bytes": 999, "strategy": "Pipelined", "chunk_bytes": 800, "depth": 2},
            ValueError,
            "at least 3200 bytes here with depth and chunk_bytes as given$",
        ),
    ):
        with pytest.raises(kind, match=message):
            redistribute(A, source, target, comm=comm, **how)
