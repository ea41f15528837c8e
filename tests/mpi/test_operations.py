"""Conversions, scaling, updates and reductions on the way, by every strategy, against NumPy on the whole tensor."""

from __future__ import annotations

import numpy as np
import pytest
from cases import OPTIONS

import dace_redist
from dace_redist import Distribution, plan, redistribute, schedule


@pytest.mark.mpi(ranks=[4])
@pytest.mark.parametrize("shape", [(64, 8), (256, 100)])
def test_two_runs_of_a_sum_give_the_same_bits_on_all_replicas(comm, shape):
    """Floating-point numbers of very different size, whose sum depends on the order: the same one by all strategies."""
    partial = Distribution(shape, (1, 4), dims=(0, None))
    target = Distribution(shape, (2, 2), dims=(0, None))
    numbers = np.random.default_rng(comm.rank).standard_normal(shape) * 10.0 ** (4 * comm.rank)
    by_strategy = set()
    for strategy, allocate in [
        *((name, np.empty) for name in ("Pack", "Pipelined", "Shared", "Hierarchical", "Aggregated")),
        *((name, dace_redist.shared_empty) for name in ("Shared", "Hierarchical")),
    ]:
        A = allocate(shape)
        A[...] = numbers
        with plan(partial, target, "float64", comm=comm, op="sum", strategy=strategy) as made:
            first, second = made(A).copy(), made(A).copy()
        assert first.tobytes() == second.tobytes()
        by_strategy.add(first.tobytes())
        everyone = comm.allgather(first.tobytes())
        assert everyone[0] == everyone[1] and everyone[2] == everyone[3]
        np.testing.assert_allclose(first, target.local(comm.allreduce(A), comm.rank), rtol=1e-12)
    assert len(by_strategy) == 1


@pytest.mark.mpi(ranks=[4], full=[18])
def test_partial_sums_in_any_memory(comm):
    """Of the partial sums of one element some are pulled, some come through rings; strides differ from call to call."""
    shape = (96, 130)
    partial = Distribution(shape, (1, comm.size), dims=(0, None))
    target = Distribution(shape, (2, comm.size // 2), dims=(0, None))
    rng = np.random.default_rng(5)
    with plan(partial, target, "float64", comm=comm, op="sum", strategy="Shared") as made:
        for round in range(12):
            allocate = dace_redist.shared_empty if (comm.rank + round) % 3 else np.empty
            wide = allocate((96, 260))
            A = [wide[:, ::2], wide[:, :130], wide[:, 130:]][(comm.rank + round) % 3 if round > 3 else 1]
            every = rng.integers(0, 100, (comm.size, *shape))
            wide[...], A[...] = -1, every[comm.rank]
            out = (dace_redist.shared_empty if round % 2 else np.empty)((48, 140))[:, :130]
            made(A, out=out)
            assert np.array_equal(out, target.local(every.sum(axis=0), comm.rank)), round


@pytest.mark.mpi(ranks=[6])
@pytest.mark.parametrize(
    "how",
    [{}, {"axes": (1, 0)}, {"region": ((3, 0), (0, 7), (200, 100))}, {"alpha": -2, "beta": 3}, {"target_dtype": "f4"}],
    ids=["whole", "axes", "region", "beta", "converted"],
)
def test_replicas_of_a_target_reduce_a_share_each(comm, how):
    """Large parts: each element is moved once for each partial result, and once more to each other replica."""
    shape = (210, 300)
    partial = Distribution(shape, (2, 3), dims=(0, None))
    target = Distribution(shape[::-1] if "axes" in how else shape, (3, 2), dims=(None, 1), block=(None, 16))
    rng = np.random.default_rng(comm.rank)
    mine = rng.standard_normal(partial.local_shape(comm.rank))
    before = np.random.default_rng(99).standard_normal(target.shape).astype(how.get("target_dtype", "f8"))
    whole = np.zeros(shape)
    whole[partial.global_index(comm.rank)[0]] = mine
    wanted = comm.allreduce(whole).transpose(how.get("axes", (0, 1))).astype(before.dtype)
    wanted = how.get("alpha", 1) * wanted + how.get("beta", 0) * before
    if "region" in how:
        part, before_part = wanted[3:203, :100], before.copy()
        before_part[:200, 7:107] = part
        wanted = before_part
    found = schedule(partial, target, op="sum", **how)
    assert found.exchanges == 4
    assert found.bytes_total() == found.itemsize * (3 + 3 - 1) * (200 * 100 if "region" in how else 210 * 300)
    for strategy in OPTIONS:
        for allocate in (np.empty, dace_redist.shared_empty):
            A, out = allocate(mine.shape), allocate(target.local_shape(comm.rank), before.dtype)
            A[...], out[...] = mine, target.local(before, comm.rank)
            with plan(partial, target, "f8", comm=comm, op="sum", strategy=strategy, **how) as made:
                made(A, out=out)
                once = out.copy()
                out[...] = target.local(before, comm.rank)
                made.start(A, out=out).wait()
            np.testing.assert_allclose(out, target.local(wanted, comm.rank), rtol=1e-4, atol=1e-5)
            assert once.tobytes() == out.tobytes()
            everyone = comm.allgather(out.tobytes())
            assert everyone == [everyone[rank % 2] for rank in range(6)], strategy


@pytest.mark.mpi(ranks=[2])
@pytest.mark.parametrize(("alpha", "beta"), [(-2, 3), (0.1, 0)])
def test_large_converted_tensors(comm, alpha, beta):
    """Messages of many chunks and slots, between all kinds of memory; products are of converted elements."""
    shape = (300, 700)
    whole = np.random.default_rng(1).standard_normal(shape)
    source, target = Distribution(shape, (2, 1)), Distribution(shape[::-1], (2, 1))
    here = source.local(whole, comm.rank)
    wanted = np.float32(alpha) * target.local(whole.T, comm.rank).astype("f4") + np.float32(beta)
    how = {"axes": (1, 0), "target_dtype": "f4", "alpha": alpha, "beta": beta}
    tolerance = 1e-5 if beta else 0  # a sum of two products may be rounded once or twice
    for strategy in OPTIONS:
        for allocate in (np.empty, dace_redist.shared_empty):
            A = allocate(here.shape, here.dtype)
            A[...] = here
            out = allocate(target.local_shape(comm.rank), np.dtype("f4"))
            out[...] = 1
            redistribute(A, source, target, comm=comm, out=out, strategy=strategy, **how)
            np.testing.assert_allclose(out, wanted, rtol=tolerance, atol=tolerance, err_msg=strategy)
