"""Arrays that know their distribution, whole tensors on one rank, and the way back of a plan."""

from __future__ import annotations

import numpy as np
import pytest
from distributions import blocked, distributions, maps, moved, regions, same_on_all_ranks, tiled
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

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
    sums = y.gather(1)
    assert np.array_equal(sums, 6 * whole) if comm.rank == 1 else sums is None
    assert repr(y) == "DistributedArray(shape=(6, 4), dtype=float64, ranks=3, op='sum')"


@pytest.mark.mpi(ranks=[2])
def test_wrong_arguments(comm):
    rows, columns = (Distribution.split((4, 6), axis, 2) for axis in (0, 1))
    x = DistributedArray(np.zeros((2, 6)), rows, comm)
    alone = DistributedArray(np.zeros((4, 6)), Distribution.on_rank((4, 6), 0), MPI.COMM_SELF)
    first = comm.rank == 0
    whole = np.zeros((4, 6)) if first else None
    for call, kind, text in (
        (lambda: DistributedArray(np.zeros((3, 6)), rows, comm), ValueError, r"local must have the shape \(2, 6\)"),
        (lambda: DistributedArray(np.zeros((2, 6)), rows, MPI.COMM_SELF), ValueError, "up to 1, but the comm.* has 1"),
        (lambda: DistributedArray(np.zeros((2, 6)), (2,), comm), TypeError, "distribution must be a Distribution, Til"),
        (lambda: DistributedArray([[1]], rows, comm), TypeError, "local must be an array of NumPy"),
        (lambda: redistribute(x), TypeError, "target must be .*, got None"),
        (lambda: redistribute(x, "columns"), TypeError, "target must be a Distribution"),
        (lambda: redistribute(np.zeros((2, 6)), columns, comm=comm), TypeError, "source is left out: .*got numpy.nd"),
        (lambda: redistribute(x if first else x.local, columns, comm=comm), TypeError, "source is left out"),
        (lambda: redistribute(x, columns if first else rows), ValueError, "different redistributions"),
        (lambda: redistribute(alone, columns, comm=comm), ValueError, "these are 1 rank, comm has 2"),
        (lambda: redistribute([x, x], [rows]), ValueError, "lists of equal length"),
        (lambda: x.gather(2), ValueError, "root must be from 0 to 1, got 2"),
        (lambda: scatter(None, rows, comm), TypeError, "whole must be an array of NumPy"),
        (lambda: scatter(np.zeros((6, 4)), rows, comm), ValueError, r"whole must have shape \(4, 6\), got \(6, 4\)"),
        (lambda: scatter(whole, rows, comm, root=2), ValueError, "root must be from 0 to 1, got 2"),
        (lambda: scatter(whole, rows, comm, root=comm.rank), ValueError, "the ranks differ in root"),
        (lambda: scatter(whole, "rows", comm), TypeError, "target must be a Distribution"),
        (lambda: gather(np.zeros((3, 6)), rows, comm), ValueError, r"array must have the shape \(2, 6\)"),
        (lambda: gather(np.zeros((2, 6)), rows, comm, root="0"), TypeError, "root must be an integer, got '0'"),
        (lambda: gather(np.zeros((2, 6)), rows, comm, root=True), TypeError, "root must be an integer, got True"),
        (lambda: x.to("numpy"), ValueError, "library must be one of .*, got 'numpy'"),
        (lambda: redistribute(x.local, rows, rows, comm=comm, out=x), TypeError, "out must .*; take its local array"),
        (lambda: x[0], TypeError, "no indices: call dace_redist.einsum"),
        (lambda: x.__setitem__(0, 1.0), TypeError, "no indices: call dace_redist.einsum"),
        (lambda: bool(x), TypeError, "no truth value: call dace_redist.einsum"),
        (lambda: x == x, TypeError, "numpy.equal takes no DistributedArray: call dace_redist.einsum"),
        (lambda: whole @ x, TypeError, "numpy.matmul takes no DistributedArray: call dace_redist.einsum"),
    ):
        with pytest.raises(kind, match=text):
            call()
    made = DistributedArray.zeros(columns, comm=comm)
    for out, result in ((made, x.redistribute(columns, out=made)), (made, redistribute([x], [columns], out=[made])[0])):
        assert result is out
    with pytest.raises(ValueError, match="out must be distributed as target"):
        x.redistribute(columns, out=made if first else x)
    # Calls that a rank knows from before take another path.
    expected = redistribute(x, columns).local
    with pytest.raises(TypeError, match="source is left out"):
        redistribute(x if first else 1, columns, comm=comm)
    assert np.array_equal(redistribute(x, columns).local, expected)
    assert np.array_equal(gather(scatter(whole, rows, comm), rows, comm), whole) or comm.rank


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
