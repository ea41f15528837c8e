"""Permuted axes, sub-tensors and element types of NumPy arrays, by plans and by calls of redistribute."""

from __future__ import annotations

import itertools

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


@pytest.mark.mpi(ranks=[4], full=[1])
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


@pytest.mark.mpi(ranks=[3])
def test_every_permutation_of_a_cube(comm):
    """Where all extents are equal, axes that are swapped fit, too."""
    whole = np.arange(4.0**4).reshape((4,) * 4)
    source, target = Distribution(whole.shape, (3,)), Distribution(whole.shape, (1, 3))
    for axes in itertools.permutations(range(4)):
        B = redistribute(source.local(whole, comm.rank), source, target, comm=comm, axes=axes)
        np.testing.assert_array_equal(B, target.local(whole.transpose(axes), comm.rank), str(axes))


@pytest.mark.mpi(ranks=[4])
def test_a_renumbered_target(comm):
    source = Distribution((8, 8), (4, 1), ranks=(2, 3, 1, 0))
    target = relabel(source, Distribution((8, 8), (1, 4)), axes=(1, 0))
    assert schedule(source, target, axes=(1, 0)).bytes_moved() == 0
    whole = np.arange(64).reshape(8, 8)
    B = redistribute(source.local(whole, comm.rank), source, target, comm=comm, axes=(1, 0))
    np.testing.assert_array_equal(B, target.local(whole.T, comm.rank))


@pytest.mark.mpi(ranks=[4], full=[1])
def test_large_reshaped_tensors(comm):
    """Messages of several chunks and slots, of extents that divide each other and of such that do not."""
    for shape, wanted, axes in (
        ((512, 384), (256, 768), None),
        ((48, 64, 64), (3072, 64), None),
        ((301, 300), (300, 301), None),
        ((60, 50, 64), (64, 3000), (2, 0, 1)),
        ((60, 50, 64), (75, 40, 8, 8), (1, 0, 2)),
    ):
        whole = np.arange(np.prod(shape), dtype="f8").reshape(shape)
        reshaped = whole.transpose(axes or range(whole.ndim)).reshape(wanted)
        source, target = (
            Distribution(shape, (2, comm.size // 2)[: comm.size // 2]),
            Distribution(wanted, (1, comm.size)),
        )
        for strategy in OURS:
            with plan(source, target, "f8", comm=comm, strategy=strategy, axes=axes, reshape=wanted) as made:
                assert (made.axes, made.reshape) == (axes, wanted)
                B = made(source.local(whole, comm.rank))
                np.testing.assert_array_equal(B, target.local(reshaped, comm.rank), strategy)
                with made.inverse() as back:
                    np.testing.assert_array_equal(back(B), source.local(whole, comm.rank), strategy)


@pytest.mark.mpi(ranks=[3])
def test_reshapes_that_differ_between_ranks(comm):
    source, target = Distribution((6, 4), (comm.size,)), Distribution((4, 6), (comm.size,))
    array = np.zeros(source.local_shape(comm.rank))
    how = {"axes": (1, 0)} if comm.rank == 1 else {"reshape": (4, 6)}
    message = r"axes, region or reshape is reshape to \(4, 6\) on rank 0 and axes \(1, 0\) on rank 1"
    with pytest.raises(ValueError, match=message):
        redistribute(array, source, target, comm=comm, **how)
    with pytest.raises(ValueError, match="the length of axes, region and reshape is 3 on rank 0 and 2 on rank 1"):
        plan(source, target, "f8", comm=comm, **how)
    with pytest.raises(ValueError, match=r"reshape must be the shape of the target, \(4, 6\), got \(6, 4\)"):
        plan(source, target, "f8", comm=comm, reshape=(6, 4) if comm.rank == 1 else (4, 6))
    with pytest.raises(TypeError, match="reshape must be a sequence of integers, got 4"):
        plan([source] * 2, [target] * 2, "f8", comm=comm, reshape=[4, 6])
    with pytest.raises(ValueError, match="reshape must be a list of 2 values, one per tensor, got 3"):
        plan([source] * 2, [target] * 2, "f8", comm=comm, reshape=[(4, 6)] * 3)
