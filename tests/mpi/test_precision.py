"""Types on the wire and of sums, and sums whose bits depend on the partial results only."""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from launching import launch
from mpi4py import MPI
from seeds import some

from dace_redist import (
    BoxDistribution,
    Distribution,
    RedistributionError,
    einsum,
    einsum_plan,
    plan,
    redistribute,
    schedule,
)
from dace_redist.redistribution.distributed_array import DistributedArray
from dace_redist.report.trace import Trace
from dace_redist.strategies import STRATEGIES

NODE_RANKS = "DACE_REDIST_NODE_RANKS"
HALVES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def nearest(values: np.ndarray, name: str) -> np.ndarray:
    """Return the nearest numbers of 16 bits, of two the one whose last bit is 0, by a search among all of them."""
    with np.errstate(invalid="ignore"):
        known = np.arange(1 << 15, dtype=np.uint16).view(HALVES[name]).astype("f8")
    known = known[np.isfinite(known)]
    known = np.append(known, 2 * known[-1] - known[-2])  # the first one that is infinite
    magnitude = np.minimum(np.abs(values), known[-1])
    above = np.clip(np.searchsorted(known, magnitude), 1, len(known) - 1)
    low, high = magnitude - known[above - 1], known[above] - magnitude
    rounded = known[np.where((high < low) | ((high == low) & (above % 2 == 0)), above, above - 1)]
    rounded[rounded == known[-1]] = np.inf
    return np.copysign(rounded, values)


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_numbers_of_16_bits_are_the_nearest(name: str, dtype: str) -> None:
    """All of them, the numbers half-way between two, and those next to these."""
    with np.errstate(invalid="ignore"):
        exact = np.arange(1 << 16, dtype=np.uint16).view(HALVES[name]).astype(dtype)
    finite = np.sort(exact[np.isfinite(exact)])
    ties = finite[1:] / 2 + finite[:-1] / 2
    beyond = 1.5 * np.array([finite[0], finite[-1]], "f8")
    beside = [np.nextafter(ties, np.dtype(dtype).type(end)) for end in (-np.inf, np.inf)]
    with np.errstate(over="ignore"):
        values = np.concatenate([finite, ties, *beside, [np.inf, -np.inf], beyond]).astype(dtype)
    whole = Distribution(values.shape, (1,))

    def rounded(array: np.ndarray) -> Any:
        return redistribute(array, whole, whole, comm=MPI.COMM_SELF, wire=name, within_nodes=True)

    np.testing.assert_array_equal(rounded(values), nearest(values.astype("f8"), name).astype(dtype))
    assert np.isnan(rounded(np.full_like(values, np.nan))).all()


@pytest.mark.mpi(ranks=[4], full=[6])
@pytest.mark.parametrize(
    ("dtype", "wire"),
    [("f8", "f4"), ("f8", "float16"), ("f4", "bfloat16"), ("c16", "c8"), ("i8", "i2"), ("u4", "u2"), ("f8", "f8")],
)
def test_only_what_moves_between_nodes_is_rounded(comm, monkeypatch, dtype, wire):
    """Elements that stay within a node of two ranks are exact; with ``within_nodes`` all are rounded."""
    monkeypatch.setenv(NODE_RANKS, "2")
    source, target = Distribution((36, 40), (comm.size, 1)), Distribution((36, 40), (1, comm.size))
    whole = 1000 * np.random.default_rng(3).random((36, 40))
    whole = (whole + 1j * whole.T.reshape(36, 40) if dtype == "c16" else whole).astype(dtype)
    here, there = source.local(whole, comm.rank), target.local(whole, comm.rank)
    rounded = there.astype(HALVES.get(wire, wire)).astype(dtype)
    senders = source.local(np.repeat(np.arange(36)[:, None], 40, 1), 0).shape[0]
    near = np.arange(36) // senders // 2 == comm.rank // 2
    wanted = np.where(near[:, None], there, rounded)
    for strategy in STRATEGIES:
        how: dict[str, Any] = {"comm": comm, "strategy": strategy, "wire": wire}
        np.testing.assert_array_equal(redistribute(here, source, target, **how), wanted, strategy)
        with plan(source, target, dtype, **how) as made:
            np.testing.assert_array_equal(made.start(here).wait(), wanted, strategy)
        everywhere = redistribute(here, source, target, within_nodes=True, **how)
        np.testing.assert_array_equal(everywhere, rounded, strategy)


@pytest.mark.mpi(ranks=[3])
def test_integer_that_does_not_fit(comm):
    """An error on its rank, and on those that wait for it; the others, and the next call, are right."""
    source, target = Distribution((6, 6), (3, 1)), Distribution((6, 6), (1, 3))
    for strategy, dtype, wire, value in [("Auto", "i4", "i2", 1 << 15), ("Pack", "u8", "u2", 1 << 16)]:
        whole = np.arange(36, dtype=dtype).reshape(6, 6)
        here = source.local(whole, comm.rank).copy()
        how = {"comm": comm, "strategy": strategy, "wire": wire, "within_nodes": True}
        words = f"wire: the element {value} is not from "
        if comm.rank == 1:
            here[0, 0] = value
        whole_there = target.local(np.concatenate(comm.allgather(here)), comm.rank)
        error = contextlib.nullcontext() if comm.rank != 1 else pytest.raises(RedistributionError, match=words)
        with error, contextlib.suppress(*[RedistributionError] * (comm.rank != 1)):
            np.testing.assert_array_equal(redistribute(here, source, target, **how), whole_there)
        here[...] = source.local(whole, comm.rank)
        B = redistribute(here, source, target, **how)
        np.testing.assert_array_equal(B, target.local(whole, comm.rank))


BYTES = """
import sys
import numpy as np
from mpi4py import MPI
from dace_redist import Distribution, redistribute

comm, how = MPI.COMM_WORLD, {"wire": sys.argv[1] or None, "within_nodes": sys.argv[2] == "within"}
rows, columns = Distribution((64, 96), (4, 1)), Distribution((64, 96), (1, 4))
replicas = Distribution((64, 96), (4,), dims=(None, None))
here = np.ones(rows.local_shape(comm.rank))
for strategy in sys.argv[3:]:
    redistribute(here, rows, columns, **how, strategy=strategy)
    redistribute(here, rows, replicas, **how, strategy=strategy)
    redistribute(np.ones((64, 96)), replicas, columns, **how, op="sum", strategy=strategy)
    redistribute(np.ones((64, 96)), replicas, replicas, **how, op="sum", strategy=strategy)
"""


@pytest.mark.slow
@pytest.mark.parametrize("node_ranks", [1, 2])
def test_bytes_between_nodes_are_halved(tmp_path: Path, node_ranks: int) -> None:
    """Those of float64 by float32, as plans count them; within a node of several ranks MPI moves none."""
    between, strategies = {}, [*STRATEGIES] if node_ranks == 1 else ["Hierarchical"]
    rows, columns = Distribution((64, 96), (4, 1)), Distribution((64, 96), (1, 4))
    replicas = Distribution((64, 96), (4,), dims=(None, None))
    moves = [(rows, columns, None), (rows, replicas, None), (replicas, columns, "sum"), (replicas, replicas, "sum")]
    nodes = np.arange(4) // node_ranks
    for wire, where in (("", "between"), ("f4", "between"), ("f4", "within")):
        folder = tmp_path / (wire + where)
        variables = {NODE_RANKS: str(node_ranks), "DACE_REDIST_TRACE": str(folder)}
        code, printed = launch(
            4, [sys.executable, "-m", "mpi4py", "-c", BYTES, wire, where, *strategies], 200, environment=variables
        )
        assert code == 0, printed
        moved = sum(span.nbytes for span in Trace(folder).spans if span.kind in ("send", "put"))
        how = {"wire": wire or None, "within_nodes": where == "within"}
        planned = [schedule(source, target, op=op, **how) for source, target, op in moves]
        counted = sum(one.bytes_between_nodes(nodes) for one in planned)
        assert moved == len(strategies) * counted
        if node_ranks == 1 and how["within_nodes"]:
            assert counted == sum(one.bytes_moved() for one in planned)
        between[wire, where] = moved
    assert 0 < between["", "between"] == 2 * between["f4", "between"]
    # results of sums, which replicas of the target send each other, are not rounded
    assert between["f4", "between"] < between["f4", "within"] < between["", "between"]


@pytest.mark.mpi(ranks=[4], full=[7])
def test_sums_in_a_wider_type(comm, monkeypatch):
    """The sum of float32 in float64 is rounded once, whatever the strategy and the nodes."""
    shape = (50, 60)
    partial = Distribution(shape, (comm.size,), dims=(None, None))
    here = (1000 * np.random.default_rng(comm.rank).standard_normal(shape)).astype("f4")
    exact = sum(part.astype("f8") for part in comm.allgather(here))
    targets = [Distribution(shape, (comm.size, 1)), partial, Distribution.on_rank(shape, comm.size - 1)]
    for node_ranks, target, strategy in itertools.product((0, 1, 2), targets, ("Hierarchical", "Pack", "Pipelined")):
        monkeypatch.setenv(NODE_RANKS, str(node_ranks))
        how: dict[str, Any] = {"comm": comm, "op": "sum", "strategy": strategy, "accumulate": "f8"}
        wanted = target.local(exact, comm.rank)
        np.testing.assert_array_equal(redistribute(here, partial, target, **how), wanted.astype("f4"))
        out = np.full(wanted.shape, 2, "f4")
        redistribute(here, partial, target, out=out, alpha=-1, beta=0.5, **how)
        np.testing.assert_array_equal(out, -wanted.astype("f4") + np.float32(1))


def random_sum(rng: random.Random, ranks: int) -> tuple[Distribution, Distribution]:
    """Return partial results on all ranks, and a target, in the order of the ranks."""
    rows = rng.choice([count for count in range(1, ranks) if ranks % count == 0])
    shape = tuple(rng.choice([1, 5, 40, 130]) for _ in range(rng.choice([1, 2, 2, 3])))
    none = [None] * (len(shape) - 1)
    partial = Distribution(shape, (rows, ranks // rows), dims=[0, *none])
    grid = rng.choice([(ranks,), (rows, ranks // rows), (1,)])
    dims = rng.sample([*range(len(grid)), *none, None], len(shape))
    return partial, Distribution(shape, grid, dims=dims, block=[rng.choice([None, 3]) for _ in shape])


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[4], full=[6], timeout=300)
def test_bits_of_reproducible_sums(comm, monkeypatch):
    """Equal for all strategies, nodes and orders of ranks, for the same partial results; without it some differ."""
    differ = 0
    for seed in range(some(30)):
        rng = random.Random(seed)
        partial, target = random_sum(rng, comm.size)
        dtype = rng.choice(["f4", "f8", "c8"])
        rounding = rng.choice([{}, {}, {"accumulate": "c16" if dtype == "c8" else "f8"}, {"within_nodes": True}])
        if rounding.get("within_nodes"):
            rounding |= {"wire": "c8" if dtype == "c8" else "bfloat16"}
        how: dict[str, Any] = {"comm": comm, "op": "sum", "alpha": rng.choice([1, 3])}
        bits: dict[bool, set[bytes]] = {True: set(), False: set()}
        for turn, (strategy, node_ranks) in enumerate(itertools.product(STRATEGIES, (0, 1, 2))):
            if strategy == "RMA" and turn % 2:
                continue
            monkeypatch.setenv(NODE_RANKS, str(node_ranks))
            order = random.Random(turn // 2).sample(range(comm.size), comm.size) if turn % 2 else None
            source, goal = (
                Distribution(d.shape, d.grid, dims=d.dims, block=d.block, ranks=order and order[: d.ranks_needed])
                if order is None or d.ranks_needed == comm.size
                else d
                for d in (partial, target)
            )
            position = comm.rank if order is None else order.index(comm.rank)
            numbers = np.random.default_rng(1000 * seed + position)
            here = numbers.standard_normal(partial.local_shape(position)) * 10.0 ** (2 * (position % 3))
            for reproducible in (True, False):
                fixed = rounding if reproducible else {}
                made = redistribute(
                    here.astype(dtype), source, goal, strategy=strategy, reproducible=reproducible, **how, **fixed
                )
                all_parts = comm.allgather((goal.global_index(comm.rank) if made.size else None, made))
                result = np.zeros(target.shape, dtype)
                for index, part in all_parts:
                    if index is not None:
                        held = result[np.ix_(*index)]
                        assert not reproducible or not held.any() or held.tobytes() == part.tobytes()
                        result[np.ix_(*index)] = part
                bits[reproducible].add(result.tobytes())
        assert len(bits[True]) == 1, (seed, partial, target, rounding)
        differ += len(bits[False]) > 1
    assert differ > 0


@pytest.mark.mpi(ranks=[4])
def test_products_whose_bits_do_not_depend_on_nodes(comm, monkeypatch):
    """An einsum with partial results on a given grid; a plan too, and by sums in another type."""
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((8, 400)).astype("f4"), rng.standard_normal((400, 6)).astype("f4")
    columns, rows = Distribution(A.shape, (1, 4)), Distribution(B.shape, (4, 1))
    operands = (
        DistributedArray(columns.local(A, comm.rank).copy(), columns, comm),
        DistributedArray(rows.local(B, comm.rank).copy(), rows, comm),
    )
    bits = set()
    for node_ranks, strategy in itertools.product((0, 1, 2), ("Auto", "Pack")):
        monkeypatch.setenv(NODE_RANKS, str(node_ranks))
        how: dict[str, Any] = {"overrides": {"j": 4}, "strategy": strategy, "target": Distribution((8, 6), (4, 1))}
        C = einsum("ij,jk->ik", *operands, reproducible=True, **how)
        with einsum_plan("ij,jk->ik", *operands, reproducible=True, **how) as made:
            assert made(*operands).local.tobytes() == C.local.tobytes()
        bits.add(C.local.tobytes())
        wide = einsum("ij,jk->ik", *operands, accumulate="f8", **how)
        parts = [A[:, 100 * k : 100 * (k + 1)] @ B[100 * k : 100 * (k + 1)] for k in range(4)]
        exact = sum(part.astype("f8") for part in parts)
        np.testing.assert_allclose(wide.local, exact[2 * comm.rank : 2 * comm.rank + 2], rtol=1e-5, atol=1e-5)
    assert len(bits) == 1


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ({"wire": "complex64"}, TypeError, "cannot convert elements of complex64 to float32"),
        ({"wire": "float64"}, ValueError, "wire must have at most 4 bytes, those of elements without it, got float64"),
        ({"wire": "S3"}, TypeError, "wire must be one of bool, int8, .*, got 'S3'"),
        ({"within_nodes": True}, ValueError, "within_nodes requires wire"),
        ({"within_nodes": 1}, TypeError, "within_nodes must be True or False, got 1"),
        ({"accumulate": "f8"}, ValueError, "require op, such as op='sum'"),
        ({"op": "sum", "accumulate": "float16"}, ValueError, "accumulate must have at least 4 bytes"),
        ({"reproducible": True}, ValueError, "require op, such as op='sum'"),
        ({"op": "sum", "reproducible": True, "wire": "float16"}, ValueError, "requires within_nodes=True with wire"),
    ],
)
def test_refused(how: dict[str, Any], error: type[Exception], words: str) -> None:
    whole = Distribution((4,), (1,))
    with pytest.raises(error, match=words):
        plan(whole, whole, "f4", comm=MPI.COMM_SELF, **how)
    with pytest.raises(error, match=words):
        redistribute(np.zeros(4, "f4"), whole, whole, comm=MPI.COMM_SELF, **how)


def test_margins_of_boxes_are_refused() -> None:
    boxes = BoxDistribution((4,), [((1,), (2,))], [0], halo=(1,))
    for how in ({"reproducible": True}, {"accumulate": "f8"}):
        with pytest.raises(ValueError, match="need a target without halo where it is in boxes"):
            schedule(Distribution((4,), (1,)), boxes, op="sum", **how)


@pytest.mark.mpi(ranks=[4])
@pytest.mark.parametrize("shared_bytes", ["", "0"])
def test_sums_with_margins_that_wrap(comm, monkeypatch, shared_bytes):
    """An element that is on a rank and in its margins is added once, between nodes without shared memory, too."""
    for name, value in ((NODE_RANKS, "2"), ("DACE_REDIST_SHARED_BYTES", shared_bytes)):
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
    used = comm.Dup()  # which looks for shared memory
    partial = Distribution((6, 8), (4,), dims=(None, None))
    target = Distribution((6, 8), (), ranks=(1,), halo=(2, 1), periodic=(True, True))
    for reproducible in (False, True):
        made = redistribute(np.ones((6, 8)), partial, target, op="sum", comm=used, reproducible=reproducible)
        assert np.all(made == 4)
    used.Free()
