"""Arrays that know their distribution, whole tensors on one rank, and the way back of a plan."""

from __future__ import annotations

import numpy as np
import pytest
from distributions import blocked, distributions, maps, moved, regions, same_on_all_ranks, tiled
from hypothesis import given
from hypothesis import strategies as st

from dace_redist import DistributedArray, Distribution, gather, plan, redistribute, scatter, shared_empty


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[1, 3, 4], timeout=120)
def test_random_arrays(comm):
    """Scattered from a rank, redistributed, gathered on a rank."""

    @st.composite
    def moves(draw):
        shape = tuple(draw(st.lists(st.integers(0, 6), max_size=3)))
        axes, region, target_shape = draw(regions(shape))
        ends = [draw(distributions(s, comm.size)) for s in (shape, target_shape)]
        return *ends, axes, region, draw(st.integers(0, comm.size - 1))

    @same_on_all_ranks(60)
    @given(moves(), st.sampled_from(["f8", "i2", "c8"]), st.booleans())
    def check(move, dtype, shared):
        source, target, axes, region, root = move
        whole = np.arange(np.prod(source.shape, dtype=int)).reshape(source.shape).astype(dtype)
        given_ = None
        if comm.rank == root:
            given_ = shared_empty(whole.shape, dtype) if shared else np.empty(whole.shape, dtype)
            given_[...] = whole
        part = scatter(given_, source, comm, root)
        wrong = not np.array_equal(part, source.local(whole, comm.rank)) or part.dtype != whole.dtype
        x, target_dtype = DistributedArray(part, source, comm), "c16" if dtype == "c8" else "f8"
        out = np.full(target.local_shape(comm.rank), -1, target_dtype)
        y = redistribute(x, target, out=out, axes=axes, region=region, target_dtype=target_dtype)
        expected = moved(whole, np.full(target.shape, -1, target_dtype), axes, region)
        wrong |= y.local is not out or not np.array_equal(out, target.local(expected, comm.rank))
        wrong |= (y.shape, y.dtype, y.ndim) != (target.shape, np.dtype(target_dtype), len(target.shape))
        for z in (x.gather(root), gather(part, source, comm, root)):
            wrong |= (z is not None) != (comm.rank == root) or (z is not None and not np.array_equal(z, whole))
        assert not any(comm.allgather(wrong))

    check()


@pytest.mark.mpi(ranks=[3])
def test_lists_and_partial_results(comm):
    rows, columns = (Distribution.split((6, 4), axis, 3) for axis in (0, 1))
    parts = Distribution.replicated((6, 4), 3)
    whole = np.arange(24.0).reshape(6, 4)
    x = DistributedArray(rows.local(whole, comm.rank), rows, comm)
    y = DistributedArray(whole * (comm.rank + 1), parts, comm, op="sum")
    results = redistribute([x, y], [columns, rows])
    assert np.array_equal(results[0].local, columns.local(whole, comm.rank))
    assert np.array_equal(results[1].local, rows.local(6 * whole, comm.rank))
    assert results[1].op is None
    merged = Distribution.split((24,), 0, 3)
    assert np.array_equal(x.redistribute(merged, reshape=(-1,)).local, merged.local(whole.ravel(), comm.rank))
    assert np.array_equal(y.redistribute(rows, op="max").local, rows.local(3 * whole, comm.rank))
    made = DistributedArray.zeros(columns, comm=comm)
    assert x.redistribute(columns, out=made) is made and redistribute([x], [columns], out=[made])[0] is made
    sums = y.gather(1)
    assert np.array_equal(sums, 6 * whole) if comm.rank == 1 else sums is None
    assert repr(y) == "DistributedArray(shape=(6, 4), dtype=float64, ranks=3, op='sum')"


@pytest.mark.mpi(ranks=[2], timeout=60)
def test_result_larger_than_the_memory_of_a_rank(comm):
    source, target = Distribution((1 << 60,), (2,)), Distribution.on_rank((1 << 60,), 0)
    part = np.broadcast_to(np.uint8(1), source.local_shape(comm.rank))
    for _ in range(2):  # also where the plan is there
        with pytest.raises(MemoryError, match="" if comm.rank == 0 else "on rank 0: Unable to allocate 1.00 EiB"):
            redistribute(part, source, target, comm=comm)
    assert gather(np.ones(1), Distribution((2,), (2,)), comm) is None or comm.rank == 0


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[2, 3], timeout=120)
def test_inverse(comm):
    @st.composite
    def moves(draw):
        shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
        how, target_shape = draw(maps(shape))
        sides = [draw(st.one_of(blocked(s, comm.size), tiled(s, comm.size))) for s in (shape, target_shape)]
        return *sides, how

    @same_on_all_ranks(30)
    @given(moves(), st.sampled_from(["Auto", "Pack"]), st.booleans())
    def check(move, strategy, lists):
        source, target, how = move
        array = source.local(np.arange(float(np.prod(source.shape))).reshape(source.shape), comm.rank)
        out = np.zeros(target.local_shape(comm.rank), "f4")
        sides = ([source], [target]) if lists else (source, target)
        if lists:
            how = {name: [value] for name, value in how.items()}
        how = {"comm": comm, "target_dtype": "f4", "strategy": strategy, **how}
        with plan(*sides, "f8", **how) as there, there.inverse() as back:
            there([array] if lists else array, [out] if lists else out)
            again = array.copy()
            back([out] if lists else out, [again] if lists else again)
            assert back.strategy == there.strategy and back.target_dtype == there.dtype
        assert all(comm.allgather(np.array_equal(again, array)))

    check()
    rows = Distribution((4, 6), (comm.size,))
    with plan(rows, rows, "f8", comm=comm, alpha=2) as scaled, pytest.raises(ValueError, match="inverse: .* 2 \\* x"):
        scaled.inverse()
