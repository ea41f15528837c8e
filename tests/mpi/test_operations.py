"""Conversions, scaling, updates and reductions on the way, by every strategy, against NumPy on the whole tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import LAYOUTS, OPTIONS, blocked, local_array, tiled
from distributions import moved, regions, same_on_all_ranks
from hypothesis import given
from hypothesis import strategies as st

import dace_redist
from dace_redist import Distribution, plan, redistribute, schedule
from dace_redist.element_operation import COMPUTED_TYPES, OPS

REDUCE = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
#: How a redistribution may be carried out: by a call, by a plan, or started, and moved on by what.
CALLS = ("redistribute", "plan", "test", "calls", "thread")
#: Of MPI messages, in bytes: mostly not limited, or so little that they are split, even within an element.
LONGEST = st.sampled_from([1 << 30, 1 << 30, 40, 3])


def values(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Small whole numbers, with which all types compute exactly."""
    rng = np.random.default_rng(seed)
    made = rng.integers(0, 4, shape)
    if np.dtype(dtype).kind == "c":
        return np.asarray(made + 1j * rng.integers(0, 4, shape), dtype)
    return np.asarray(made).astype(dtype)


def replicas_of(source: Any, dtype: str, ranks: int, op: str | None) -> list[np.ndarray]:
    """The whole tensor as each rank sees it: with an op each has numbers of its own."""
    return [values(source.shape, dtype, seed=1 + (rank if op else 0)) for rank in range(ranks)]


def reduced(source: Any, seen: list[np.ndarray], how: dict[str, Any], target: np.dtype) -> np.ndarray:
    """The whole source, scaled and converted, its replicas reduced."""
    alpha, op = target.type(how["alpha"]), how["op"]
    scaled = [alpha * (np.conj(one) if how["conj"] else one).astype(target) for one in seen]
    if op is None:
        return scaled[0]
    total: np.ndarray = np.zeros(source.shape, target)
    done = np.zeros(source.shape, bool)
    for rank, one in enumerate(scaled):
        held = np.zeros(source.shape, bool)
        held[np.ix_(*source.global_index(rank))] = True
        joined = REDUCE[op](total, one).astype(target)
        total = np.where(held, np.where(done, joined, one), total)
        done |= held
    return total


@st.composite
def cases(draw: st.DrawFn, ranks: int) -> dict[str, Any]:
    ndim = draw(st.integers(1, 4))
    shape = tuple(draw(st.integers(1, {1: 40, 2: 20, 3: 8}.get(ndim, 5))) for _ in range(ndim))
    axes, region, target_shape = draw(regions(shape))
    before = draw(st.sampled_from(COMPUTED_TYPES))
    after = draw(st.sampled_from([name for name in COMPUTED_TYPES if np.can_cast(before, name, "same_kind")]))
    op = draw(st.sampled_from([None, None, *OPS]))
    if after[0] == "c" and op in ("min", "max"):
        op = "sum"
    plain = after == "bool"
    source = draw(blocked(shape, ranks) if op or draw(st.booleans()) else tiled(shape, ranks))
    return {
        "source": source,
        "target": draw(st.one_of(blocked(target_shape, ranks), tiled(target_shape, ranks))),
        "types": (before, after),
        "layouts": [draw(st.sampled_from(LAYOUTS)) for _ in range(2)],
        "how": {
            "axes": axes,
            "region": region,
            "alpha": 1 if plain else draw(st.sampled_from([1, 1, 2, 3])),
            "beta": 0 if plain or op not in (None, "sum") else draw(st.sampled_from([0, 0, 1, 2])),
            "conj": draw(st.booleans()) and after[0] == "c",
            "op": op,
        },
        "options": {
            name: {key: draw(drawn) for key, drawn in {**some, "max_message_bytes": LONGEST}.items()}
            for name, some in OPTIONS.items()
        },
    }


def arrays(comm: Any, case: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """This rank's parts of a case: of the source, of the target before, and of the target as it must become."""
    source, target, how = case["source"], case["target"], case["how"]
    before, after = case["types"]
    seen = replicas_of(source, before, comm.size, how["op"])
    there = values(target.shape, after, seed=99)
    update = reduced(source, seen, how, np.dtype(after))
    wanted = moved(update, np.zeros_like(there), how["axes"], how["region"])
    mask = moved(np.ones(source.shape, bool), np.zeros(target.shape, bool), how["axes"], how["region"])
    if how["beta"]:
        wanted = wanted + np.dtype(after).type(how["beta"]) * there
    wanted = np.where(mask, wanted, there).astype(after)
    parts = source.local(seen[comm.rank], comm.rank), target.local(there, comm.rank)
    array, out = (local_array(part, layout) for part, layout in zip(parts, case["layouts"], strict=True))
    return array, out, target.local(wanted, comm.rank)


def carry_out(call: str, array: Any, out: Any, source: Any, target: Any, types: Any, **how: Any) -> None:
    """
    Moves a tensor, or a list of them.

    :param call: How, see :data:`CALLS`.
    :param types: Element types of source and target; of lists, lists.
    """
    if call == "redistribute":
        redistribute(array, source, target, out=out, dtype=types[1], **how)
        return
    with plan(source, target, types[0], target_dtype=types[1], **how) as made:
        if call == "plan":
            made(array, out=out)
            return
        request = made.start(array, out=out, progress="thread" if call == "thread" else "calls")
        while call == "test" and not request.test():
            pass
        request.wait()


def wrong_parts(comm: Any, what: str, parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> list[str]:
    """What is wrong on any rank: source, target and what that should be, for each tensor."""
    wrong = [
        f"{what}, tensor {number}, rank {comm.rank}: got {out.tolist()}, expected {expected.tolist()}"
        for number, (_, out, expected) in enumerate(parts)
        if not np.array_equal(out, expected)
    ]
    return [text for some in comm.allgather(wrong) for text in some]


@pytest.mark.fuzz
@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[1, 2, 4, 7], timeout=300)
def test_random_operations(comm):
    @same_on_all_ranks(60, comm.size)
    @given(cases(comm.size), st.sampled_from(CALLS))
    def check_strategies(case: dict[str, Any], call: str) -> None:
        for strategy in OPTIONS:
            part = arrays(comm, case)
            pair = case["source"], case["target"], case["types"]
            carry_out(call, *part[:2], *pair, comm=comm, strategy=strategy, **case["how"], **case["options"][strategy])
            assert not (wrong := wrong_parts(comm, f"{strategy} by {call}", [part])), wrong[0]

    check_strategies()


@pytest.mark.fuzz
@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[2, 5], timeout=200)
def test_random_operations_on_several_tensors(comm):
    @same_on_all_ranks(40, comm.size)
    @given(st.lists(cases(comm.size), min_size=1, max_size=4), st.sampled_from(CALLS), LONGEST)
    def check_strategies(several: list[dict[str, Any]], call: str, longest: int) -> None:
        how = {name: [case["how"][name] for case in several] for name in several[0]["how"]}
        pair = [[case[side] for case in several] for side in ("source", "target")]
        types = [list(side) for side in zip(*(case["types"] for case in several), strict=True)]
        for strategy in ("Auto", "Pack"):
            parts = [arrays(comm, case) for case in several]
            given_, out, _ = (list(side) for side in zip(*parts, strict=True))
            carry_out(call, given_, out, *pair, types, comm=comm, strategy=strategy, max_message_bytes=longest, **how)
            assert not (wrong := wrong_parts(comm, f"{strategy} by {call}", parts)), wrong[0]

    check_strategies()


@pytest.mark.mpi(ranks=[4])
def test_two_runs_of_a_sum_give_the_same_bits_on_all_replicas(comm):
    """Floating-point numbers of very different size, whose sum depends on the order."""
    partial = Distribution((64, 8), (1, 4), dims=(0, None))
    target = Distribution((64, 8), (2, 2), dims=(0, None))
    A = np.random.default_rng(comm.rank).standard_normal((64, 8)) * 10.0 ** (4 * comm.rank)
    for strategy in ("Pack", "Pipelined", "Hierarchical", "Aggregated"):
        with plan(partial, target, comm=comm, op="sum", strategy=strategy) as made:
            first, second = made(A).copy(), made(A).copy()
        assert first.tobytes() == second.tobytes()
        everyone = comm.allgather(first.tobytes())
        assert everyone[0] == everyone[1] and everyone[2] == everyone[3]
        np.testing.assert_allclose(first, target.local(comm.allreduce(A), comm.rank), rtol=1e-12)


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
        for allocate in (np.empty, dace_redist.empty):
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
def test_large_converted_tensors(comm):
    """Messages of many chunks and slots, between all kinds of memory."""
    shape = (300, 700)
    whole = np.random.default_rng(1).standard_normal(shape)
    source, target = Distribution(shape, (2, 1)), Distribution(shape[::-1], (2, 1))
    here = source.local(whole, comm.rank)
    for strategy in OPTIONS:
        for allocate in (np.empty, dace_redist.empty):
            A = allocate(here.shape, here.dtype)
            A[...] = here
            out = allocate(target.local_shape(comm.rank), np.dtype("f4"))
            out[...] = 1
            redistribute(
                A, source, target, comm=comm, out=out, axes=(1, 0), dtype="f4", alpha=-2, beta=3, strategy=strategy
            )
            wanted = np.float32(-2) * whole.T.astype("f4") + np.float32(3)
            np.testing.assert_allclose(out, target.local(wanted, comm.rank), rtol=1e-5, atol=1e-6)


WRONG = [
    ({"dtype": "i4"}, TypeError, "cannot convert elements of float64 to int32"),
    ({"dtype": "f2"}, TypeError, "elements of type float16 are only moved"),
    ({"alpha": "2"}, TypeError, "alpha must be a number, got '2'"),
    ({"alpha": 1j}, TypeError, "alpha must be a number of the target's type float64"),
    ({"conj": 1}, TypeError, "conj must be True or False, got 1"),
    ({"op": "mean"}, ValueError, "op must be one of sum, prod, min, max, or None, got 'mean'"),
    ({"beta": 2}, ValueError, "beta needs the array whose elements it scales"),
    ({"op": "max", "beta": 1}, ValueError, "beta goes with op='sum' only"),
    ({"op": "max", "dtype": "c16"}, TypeError, "op max needs real numbers"),
]


@pytest.mark.mpi(ranks=[2])
def test_wrong_operations(comm):
    source, target = Distribution((4, 4), (2, 1)), Distribution((4, 4), (1, 2))
    A = np.ones((2, 4))
    for how, kind, message in WRONG:
        with pytest.raises(kind, match=message):
            redistribute(A, source, target, comm=comm, **how)
    with pytest.raises(TypeError, match="one element type, got float64 and float32; dtype=numpy.float32 converts"):
        redistribute(A, source, target, comm=comm, out=np.ones((4, 2), "f4"))
    with plan(source, target, comm=comm, beta=1, target_dtype="f4") as made:
        assert repr(made).count("x + 1 * there, as float32") == 1
        with pytest.raises(ValueError, match="beta needs the array"):
            made(A)
