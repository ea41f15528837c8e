"""Permuted axes, sub-tensors and element types of NumPy arrays, by plans and by calls of redistribute."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from dace_redist import Distribution, plan, redistribute, relabel, schedule
from dace_redist.strategies import host_strategies

OURS = host_strategies()
PAIR = np.dtype([("weight", "f4"), ("index", "i2", (3,)), ("flag", "?")])
DTYPES = (np.longdouble, np.clongdouble, "S3", "U2", "M8[us]", "m8[D]", "V5", PAIR)
DTYPES += (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, ">f8")


def values(dtype, shape):
    """Elements of any type that differ from their neighbours."""
    dtype = np.dtype(dtype)
    raw = np.random.default_rng(7).integers(0, 2, (*shape, dtype.itemsize), np.uint8)  # 0 and 1 are bits of every type
    return np.ascontiguousarray(raw).view(dtype)[..., 0]


@pytest.mark.mpi(ranks=[3])
def test_elements_of_any_fixed_size(comm):
    source, target = Distribution((5, 7), (comm.size, 1)), Distribution((7, 5), (comm.size, 1))
    for dtype in DTYPES:
        whole = values(dtype, (5, 7))
        part = source.local(whole, comm.rank)
        for strategy in OURS:
            B = redistribute(part, source, target, comm=comm, strategy=strategy, axes=(1, 0))
            assert B.dtype == whole.dtype
            assert B.tobytes() == target.local(whole.T, comm.rank).tobytes(), (dtype, strategy)


@pytest.mark.mpi(ranks=[1, 4])
def test_large_transposed_tensors(comm):
    """Messages of many tiles, cut into chunks and slots, between ordinary arrays."""
    shape = (560, 3, 600)
    source = Distribution(shape, (comm.size,))
    for axes, dtype in (((2, 1, 0), "i4"), ((1, 2, 0), "f8"), ((0, 2, 1), "i2")):
        whole = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
        turned = np.ascontiguousarray(whole.transpose(axes))
        target = Distribution(turned.shape, (1, 1, comm.size))
        for strategy in OURS:
            with plan(source, target, dtype, comm=comm, strategy=strategy, axes=axes) as made:
                assert (made.axes, made.region) == (axes, None)
                for _ in range(2):
                    B = made(source.local(whole, comm.rank))
                    np.testing.assert_array_equal(B, target.local(turned, comm.rank))


@pytest.mark.mpi(ranks=[2, 5])
def test_a_part_of_a_tensor(comm):
    source, target = Distribution((40, 30), (comm.size,), block=(3, None)), Distribution((50, 50), (1, comm.size))
    A, before = np.arange(1200.0).reshape(40, 30), np.full((50, 50), -1.0)
    region = ((5, 10), (20, 0), (30, 20))
    after = before.copy()
    after[20:50, 0:20] = A[5:35, 10:30]
    part = source.local(A, comm.rank)
    for strategy in ["Auto", *OURS]:
        out = target.local(before, comm.rank)
        for _ in range(2):  # the second call finds the plan of the first
            redistribute(part, source, target, comm=comm, out=out, strategy=strategy, region=region)
        np.testing.assert_array_equal(out, target.local(after, comm.rank))
    inner = Distribution((30, 20), (comm.size,))
    cut = redistribute(part, source, inner, comm=comm, region=((5, 10), (0, 0), (30, 20)))
    np.testing.assert_array_equal(cut, inner.local(A[5:35, 10:30], comm.rank))
    with plan(source, target, "float64", comm=comm, region=region) as made:
        with pytest.raises(ValueError, match="region leaves a part of the target as it is"):
            made(part)
        assert made.schedule.bytes_total() == 30 * 20 * 8


@pytest.mark.mpi(ranks=[4])
def test_a_renumbered_target(comm):
    source = Distribution((8, 8), (4, 1), ranks=(2, 3, 1, 0))
    target = relabel(source, Distribution((8, 8), (1, 4)), axes=(1, 0))
    assert schedule(source, target, axes=(1, 0)).bytes_moved() == 0
    whole = np.arange(64).reshape(8, 8)
    B = redistribute(source.local(whole, comm.rank), source, target, comm=comm, axes=(1, 0))
    np.testing.assert_array_equal(B, target.local(whole.T, comm.rank))
