"""Halo exchanges by every strategy, in place and out of place; margins of targets; halos that cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builds import built
from cases import OPTIONS
from results import raise_anywhere

from dace_redist import BoxDistribution, Distribution, TiledDistribution, plan, redistribute, shared_empty

SHAPE = (8, 9)


def padded(whole: np.ndarray, halo: tuple[int, ...], periodic: tuple[bool, ...], edge: float = 0) -> np.ndarray:
    """Return the whole tensor with margins; along axes that are not periodic they hold ``edge``."""
    for axis, (width, wraps) in enumerate(zip(halo, periodic, strict=True)):
        around = [(width if i == axis else 0,) * 2 for i in range(whole.ndim)]
        whole = np.pad(whole, around, "wrap") if wraps else np.pad(whole, around, constant_values=edge)
    return whole


def block_with_margins(distribution: Any, whole: np.ndarray, rank: int, edge: float = 0) -> np.ndarray:
    """Return a rank's part and its margins, cut out of the padded tensor: one block, or several in one dimension."""
    around = padded(whole, distribution.halo, distribution.periodic, edge)
    found = []
    for box in distribution.core.tile_ranges(rank):
        cut = zip(box[::2], box[1::2], distribution.halo, strict=True)
        found.append(around[tuple(slice(low, high + 2 * width) for low, high, width in cut)])
    return found[0] if len(found) == 1 else np.concatenate([np.empty(0), *map(np.ravel, found)])


def halos(ranks: int) -> list[Any]:
    """Return distributions of every kind, with parts of any length, replicas and another order of ranks."""
    rows = (2, 3, *(1,) * (ranks - 3), 8 - 5 - (ranks - 3)) if ranks > 2 else (3, 8 - 3)[:ranks]
    made: list[Any] = [
        Distribution(SHAPE, (ranks, 1), halo=1),
        Distribution(SHAPE, (1, ranks), halo=(1, 2), periodic=True),
        Distribution(SHAPE, (ranks,), dims=(None, 0), halo=(2, 1), periodic=(True, False), ranks=range(ranks)[::-1]),
        Distribution(SHAPE, (ranks,), dims=(None, None), halo=(0, 3), periodic=(False, True)),
    ]
    if ranks > 1:
        made.append(Distribution(SHAPE, (ranks,), block=[rows, None], halo=(1, 0), periodic=True))
    if ranks > 2:
        made.append(TiledDistribution(SHAPE, (4, 3), [[0, 1, 2], [2, 0, 1]], halo=(1, 2), periodic=(True, False)))
        corners = [((0, 0), (8, 4)), ((0, 4), (3, 5)), ((3, 4), (5, 5))]
        made.append(BoxDistribution(SHAPE, corners, range(3), halo=(2, 1), periodic=True))
    return made


@pytest.mark.mpi(ranks=[1, 4], full=[2, 3], timeout=300)
def test_exchange_by_every_strategy(comm):
    whole = np.arange(72.0).reshape(SHAPE) + 1
    wrong = []
    for distribution in halos(comm.size):
        owned = distribution.local(np.ones(SHAPE), comm.rank)  # zeros in the margins
        expected = block_with_margins(distribution, whole, comm.rank, edge=-1).reshape(owned.shape)
        for strategy in OPTIONS:
            for allocate in (np.empty, shared_empty):
                array = allocate(expected.shape)
                with plan(distribution, distribution, "f8", comm=comm, strategy=strategy) as exchange:
                    for how in ("in place", "again", "started", "new"):
                        array[...] = np.where(owned, expected, -1)
                        out = np.full(array.shape, -1.0) if how == "new" else array
                        if how == "started":
                            exchange.start(array, out=out).wait()
                        else:
                            assert exchange(array, out=out) is out
                        if not np.array_equal(out, expected):
                            wrong.append(f"{strategy} {how} {distribution} on rank {comm.rank}: {out.tolist()}")
    raise_anywhere(comm, wrong)


@pytest.mark.mpi(ranks=[4], timeout=120)
def test_calls_of_redistribute(comm):
    whole = np.arange(72.0).reshape(SHAPE) + 1
    rows = Distribution(SHAPE, (comm.size, 1))
    halo = Distribution(SHAPE, (1, comm.size), halo=(1, 2), periodic=(True, False))
    filled = redistribute(rows.local(whole, comm.rank), rows, halo, comm=comm)
    assert np.array_equal(filled, block_with_margins(halo, whole, comm.rank))  # zeros past the ends
    for _ in range(3):
        filled[0] = filled[-1] = -1  # past the ends of axis 1 these stay
        assert redistribute(filled, halo, halo, comm=comm, out=filled) is filled
        expected = block_with_margins(halo, whole, comm.rank)
        assert np.array_equal(np.maximum(filled, 0), expected)
        assert np.all((filled[0] == -1) == (expected[0] == 0))
    back = redistribute(filled, halo, rows, comm=comm)  # margins are not read
    assert np.array_equal(back, rows.local(whole, comm.rank))
    turned = Distribution(SHAPE[::-1], (comm.size,), halo=(2, 1), periodic=True)
    got = redistribute(filled, halo, turned, comm=comm, axes=(1, 0), target_dtype="complex128", alpha=2)
    assert np.array_equal(got, block_with_margins(turned, 2 * whole.T, comm.rank))


@pytest.mark.mpi(ranks=[2])
def test_one_array_is_only_for_exchanges(comm):
    halo, other = (Distribution(SHAPE, (comm.size,), halo=1, periodic=wraps) for wraps in (False, True))
    array = np.zeros(halo.local_shape(comm.rank))
    for target, change in ((other, {}), (halo, {"alpha": 2}), (halo, {"region": ((0, 0), (0, 0), SHAPE)})):
        with plan(halo, target, "f8", comm=comm, **change) as made:
            for _ in range(2):
                with pytest.raises(ValueError, match="array and out overlap; .* except to its own distribution"):
                    made(array, out=array)
    wide = np.zeros((array.shape[0] + 1, *array.shape[1:]))
    with plan(halo, halo, "f8", comm=comm) as exchange, pytest.raises(ValueError, match="array and out overlap"):
        exchange(wide[1:], out=wide[:-1])
    with pytest.raises(ValueError, match=r"source halo\[1\]: 1 on rank 0 and 0 on rank 1"):
        mine = Distribution(SHAPE, (comm.size,), halo=(1, 1 - comm.rank))
        plan(mine, halo, "f8", comm=comm)


def exchange_program(distribution: Any, *arrays: Any) -> Any:
    """Return a program that exchanges halos in place, and one that redistributes to margins."""
    import dace

    import dace_redist

    rows = Distribution(SHAPE, (2,))

    @dace.program
    def exchange(A, B):  # DaCe does not find annotations that are postponed
        dace_redist.redistribute(A, distribution, distribution, out=A, strategy="Pipelined")
        B[:] = dace_redist.redistribute(A, distribution, rows)

    return exchange.to_sdfg(*arrays)


@pytest.mark.compile
@pytest.mark.dace
@pytest.mark.mpi(ranks=[2], timeout=300)
def test_dace_program(comm):
    whole = np.arange(72.0).reshape(SHAPE) + 1
    distribution = Distribution(SHAPE, (2,), halo=1, periodic=(True, False))
    expected = block_with_margins(distribution, whole, comm.rank)
    array, owned = np.zeros((6, 11)), np.zeros((4, 9))
    array[1:-1, 1:-1] = whole[distribution.slices(comm.rank)]
    program = built(comm, "halo_exchange", lambda: exchange_program(distribution, array, owned))
    program(A=array, B=owned)
    assert np.array_equal(array, expected)
    assert np.array_equal(owned, expected[1:-1, 1:-1])
