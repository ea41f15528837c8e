"""Arrays that know their distribution, alone and as arguments of ``redistribute``."""

from __future__ import annotations

import numpy as np
import pytest
from distributions import distributions, moved, regions, same_on_all_ranks
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from dace_redist import DistributedArray, Distribution, redistribute


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[1, 3, 4])
def test_random_arrays(comm):
    @st.composite
    def moves(draw):
        shape = tuple(draw(st.lists(st.integers(1, 6), max_size=3)))
        axes, region, target_shape = draw(regions(shape))
        return *(draw(distributions(s, comm.size)) for s in (shape, target_shape)), axes, region

    @same_on_all_ranks(40)
    @given(moves(), st.sampled_from(["f8", "i2"]), st.sampled_from(["f8", "c16"]), st.integers(0, comm.size - 1))
    def check(move, dtype, target_dtype, root):
        source, target, axes, region = move
        whole = np.arange(np.prod(source.shape, dtype=int)).reshape(source.shape).astype(dtype)
        x = DistributedArray(source.local(whole, comm.rank), source, comm)
        out = np.full(target.local_shape(comm.rank), -1, target_dtype)
        how = {"axes": axes, "region": region, "target_dtype": target_dtype}
        y = redistribute(x, target, out=out, **how)
        expected = moved(whole, np.full(target.shape, -1, target_dtype), axes, region)
        wrong = y.local is not out or not np.array_equal(out, target.local(expected, comm.rank))
        wrong |= (y.shape, y.dtype, y.ndim) != (target.shape, np.dtype(target_dtype), len(target.shape))
        z = x.gather(root)
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
        (lambda: redistribute(alone, columns, comm=comm), ValueError, "these are 1 ranks, comm has 2"),
        (lambda: redistribute([x, x], [rows]), ValueError, "lists of equal length"),
        (lambda: x.gather(2), ValueError, "root must be from 0 to 1, got 2"),
        (lambda: x.to("numpy"), ValueError, "library must be one of .*, got 'numpy'"),
    ):
        with pytest.raises(kind, match=text):
            call()
    # Calls that a rank knows from before take another path.
    expected = redistribute(x, columns).local
    with pytest.raises(TypeError, match="source is left out"):
        redistribute(x if first else 1, columns, comm=comm)
    assert np.array_equal(redistribute(x, columns).local, expected)
