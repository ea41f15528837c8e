"""What is done on the way: permuted axes, other shapes and types, reductions, by every strategy, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from cases import OPTIONS

import dace_redist
from dace_redist import BoxDistribution, Distribution, plan, redistribute, schedule, shared_empty
from dace_redist.strategies import STRATEGIES

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
        for strategy in STRATEGIES:
            B = redistribute(part, source, target, comm=comm, strategy=strategy, axes=(1, 0))
            assert B.dtype == whole.dtype
            assert B.tobytes() == target.local(whole.T, comm.rank).tobytes(), (dtype, strategy)


@pytest.mark.mpi(ranks=[2])
def test_margins_of_new_arrays_are_zeros_of_their_type(comm):
    source, target = Distribution((6,), (2,)), Distribution((6,), (2,), halo=1)
    for dtype in DTYPES:
        made = redistribute(values(dtype, (3,)), source, target, comm=comm)
        margin = made[:1] if comm.rank == 0 else made[-1:]
        assert margin.tobytes() == np.zeros(1, made.dtype).tobytes(), dtype


#: Boxes, some of which overlap or lie on other ranks than parts of the sums.
BOXES = [
    ([((0,), (3000,))], [0]),
    ([((0,), (2100,)), ((2100,), (900,))], [0, 1]),
    ([((0,), (2100,)), ((1500,), (1500,))], [0, 0]),
    ([((0,), (3000,)), ((0,), (3000,)), ((700,), (1,))], [0, 2, 2]),
]


@pytest.mark.mpi(ranks=[6], full=[4])
@pytest.mark.parametrize("node_ranks", ["0", "2"])
def test_sums_in_boxes_are_those_in_blocks(comm, node_ranks, monkeypatch):
    """Of parts of the tensor on some ranks each, also between nodes; to the last bit if they are reproducible."""
    monkeypatch.setenv("DACE_REDIST_NODE_RANKS", node_ranks)
    source, whole = Distribution((3000,), (2, comm.size // 2), dims=(0,)), Distribution((3000,), (1,), dims=(None,))
    part = np.random.default_rng(comm.rank).standard_normal(source.local_shape(comm.rank))
    wanted = comm.bcast(redistribute(part, source, whole, comm=comm, op="sum", reproducible=True))
    for boxes, owners in BOXES:
        target = BoxDistribution((3000,), boxes, owners=owners)
        for strategy in STRATEGIES:
            made = redistribute(part, source, target, comm=comm, op="sum", reproducible=True, strategy=strategy)
            np.testing.assert_array_equal(made, target.local(wanted, comm.rank), strategy)
            made = redistribute(part, source, target, comm=comm, op="sum", strategy=strategy)
            np.testing.assert_allclose(made, target.local(wanted, comm.rank), err_msg=strategy)


#: Shape, element type and what is done on the way. Extents of a reshape divide each other, or do not.
LARGE = [
    ((560, 3, 600), "i4", {"axes": (2, 1, 0)}),
    ((560, 3, 600), "f8", {"axes": (1, 2, 0)}),
    ((560, 3, 600), "i2", {"axes": (0, 2, 1)}),
    ((512, 384), "f8", {"reshape": (256, 768)}),
    ((48, 64, 64), "f8", {"reshape": (3072, 64)}),
    ((301, 300), "f8", {"reshape": (300, 301)}),
    ((60, 50, 64), "f8", {"axes": (2, 0, 1), "reshape": (64, 3000)}),
    ((60, 50, 64), "f8", {"axes": (1, 0, 2), "reshape": (75, 40, 8, 8)}),
    ((300, 700), "f8", {"axes": (1, 0), "target_dtype": "f4", "alpha": -2, "beta": 3}),
    ((300, 700), "f8", {"axes": (1, 0), "target_dtype": "f4", "alpha": 0.1}),
]


@pytest.mark.mpi(ranks=[4], full=[1])
@pytest.mark.parametrize(("shape", "dtype", "how"), LARGE)
def test_large_tensors(comm, shape, dtype, how):
    """Messages of many tiles, chunks and slots, between all kinds of memory; products are of converted elements."""
    whole, axes = (1000 * np.random.default_rng(1).standard_normal(shape)).astype(dtype), how.get("axes")
    after, beta = np.dtype(how.get("target_dtype", dtype)), how.get("beta", 0)
    turned = whole.transpose(axes or range(whole.ndim))
    wanted = after.type(how.get("alpha", 1)) * turned.reshape(how.get("reshape", turned.shape)).astype(after) + beta
    source = Distribution(shape, (2, comm.size // 2)[: comm.size // 2])
    target = Distribution(wanted.shape, (1,) * (wanted.ndim - 1) + (comm.size,))
    here, there = source.local(whole, comm.rank), target.local(wanted, comm.rank)
    tolerance = 1e-5 if beta else 0  # a sum of two products may be rounded once or twice
    for strategy in STRATEGIES:
        with plan(source, target, dtype, comm=comm, strategy=strategy, **how) as made:
            assert (made.axes, made.region, made.reshape) == (axes, None, how.get("reshape"))
            for allocate in (np.empty, shared_empty):
                A, B = allocate(here.shape, dtype), allocate(there.shape, after)
                A[...], B[...] = here, 1
                made(A, out=B)
                np.testing.assert_allclose(B, there, rtol=tolerance, atol=1000 * tolerance, err_msg=strategy)
            if "alpha" not in how:
                with made.inverse() as back:
                    np.testing.assert_array_equal(back(B), here, strategy)


@pytest.mark.mpi(ranks=[2])
def test_bytes_of_booleans_other_than_0_are_true(comm):
    """Views of bytes hold them; NumPy computes with them so."""
    whole = np.array([[2, 1, 2, 0, 255, 0], [1, 2, 4, 8, 0, 0]], "u1").view(bool)
    replicas, source = Distribution.replicated((6,), comm.size), Distribution.split((2, 6), 0, comm.size)
    halves, target = Distribution.split((6,), 0, comm.size), Distribution.split((2, 6), 1, comm.size)
    for strategy in STRATEGIES:
        for op, function in (("sum", np.logical_or), ("prod", np.logical_and)):
            B = redistribute(whole[comm.rank], replicas, halves, comm=comm, strategy=strategy, op=op)
            assert B.tobytes() == halves.local(function(*whole), comm.rank).tobytes(), (strategy, op)
        C = redistribute(whole[[comm.rank]], source, target, comm=comm, strategy=strategy, target_dtype="i4")
        np.testing.assert_array_equal(C, target.local(whole.astype("i4"), comm.rank), strategy)


@pytest.mark.mpi(ranks=[2])
def test_conjugates_and_sums_of_infinities_and_zeros(comm):
    """No factor of 1 is multiplied by: a complex product would give others than NumPy's conjugate or sum."""
    source, target = Distribution.split((6, 2), 0, comm.size), Distribution.split((6, 2), 1, comm.size)
    for dtype in ("c8", "c16"):
        parts = np.array([1, -2, 0, -0.0, np.inf, -np.inf], np.dtype(dtype).type(0).real.dtype)
        whole = np.stack([parts, parts[::-1], parts, np.roll(parts, 2)], 1).view(dtype)
        for strategy in STRATEGIES:
            B = redistribute(source.local(whole, comm.rank), source, target, comm=comm, strategy=strategy, conj=True)
            assert B.tobytes() == target.local(whole.conj(), comm.rank).tobytes(), (dtype, strategy)
            C = target.local(whole, comm.rank)
            redistribute(source.local(whole, comm.rank), source, target, comm=comm, strategy=strategy, out=C, beta=1)
            assert C.tobytes() == target.local(whole + whole, comm.rank).tobytes(), (dtype, strategy)


@pytest.mark.mpi(ranks=[4])
@pytest.mark.parametrize("shape", [(64, 8), (256, 100)])
@pytest.mark.parametrize("reproducible", [False, True])
def test_two_runs_of_a_sum_give_the_same_bits_on_all_replicas(comm, shape, reproducible):
    """Floating-point numbers of very different size, whose sum depends on the order: that of a strategy, or of all."""
    partial = Distribution(shape, (1, 4), dims=(0, None))
    target = Distribution(shape, (2, 2), dims=(0, None))
    numbers = np.random.default_rng(comm.rank).standard_normal(shape) * 10.0 ** (4 * comm.rank)
    bits = {"nodes": set(), "messages": set()}
    for strategy, allocate in [
        *((name, np.empty) for name in ("Pack", "Pipelined", "Hierarchical")),
        ("Hierarchical", dace_redist.shared_empty),
    ]:
        A = allocate(shape)
        A[...] = numbers
        how = {"op": "sum", "strategy": strategy, "reproducible": reproducible}
        with plan(partial, target, "float64", comm=comm, **how) as made:
            first, second = made(A).copy(), made(A).copy()
        assert first.tobytes() == second.tobytes()
        bits["nodes" if strategy == "Hierarchical" else "messages"].add(first.tobytes())
        everyone = comm.allgather(first.tobytes())
        assert everyone[0] == everyone[1] and everyone[2] == everyone[3]
        np.testing.assert_allclose(first, target.local(comm.allreduce(A), comm.rank), rtol=1e-12)
    assert len(bits["nodes"]) == len(bits["messages"]) == 1
    assert bits["nodes"] == bits["messages"] or not reproducible


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
