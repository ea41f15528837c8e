"""Adjoints of random redistributions: inner products on both sides are equal, by every strategy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cases import OPTIONS
from distributions import ends, maps, same_on_all_ranks, shapes
from hypothesis import given, reject
from hypothesis import strategies as st
from results import refused

from dace_redist import Distribution, TiledDistribution, plan, schedule

#: Types of source and target that convert both ways.
TYPES = [(a, b) for kind in (("f4", "f8"), ("c8", "c16")) for a in kind for b in kind]


@st.composite
def linear_cases(draw, ranks):
    """Draw the arguments of a plan that has an adjoint."""
    shape = draw(shapes)
    where, target_shape = draw(maps(shape))
    source, target = draw(ends(shape, target_shape, where, ranks, margins=False))
    types = draw(st.sampled_from(TYPES))
    complex_ = np.dtype(types[0]).kind == "c"
    how = {
        **where,
        "target_dtype": types[1],
        "alpha": draw(st.sampled_from([1, -2, 0.5, *([1 - 2j, 3j] if complex_ else [])])),
        "conj": complex_ and draw(st.booleans()),
        "op": draw(st.sampled_from([None, "sum"])) if isinstance(source, Distribution) else None,
    }
    try:
        schedule(source, target, types[0], **how).adjoint()
    except ValueError as error:
        assert "every element once" in str(error)
        reject()
    return source, target, types, how, draw(st.sampled_from(sorted(OPTIONS)))


def numbers(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    made = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else 0)
    return np.asarray(made, dtype)


def part(distribution, dtype, seed, rank, differs):
    """Return a rank's part of random numbers, which differ between replicas or not."""
    return distribution.local(numbers(distribution.shape, dtype, (seed, rank if differs else -1 + 2**32)), rank)


def is_first(distribution, rank):
    """Return True on one rank of all that hold replicas of a part."""
    if isinstance(distribution, Distribution):
        positions = np.arange(np.prod(distribution.grid, dtype=int)).reshape(distribution.grid)
        free = [g not in distribution.dims and pin is None for g, pin in enumerate(distribution.pins)]
        firsts = positions[tuple(slice(0, 1) if one else slice(None) for one in free)].ravel()
        ranks = firsts if distribution.ranks is None else [distribution.ranks[position] for position in firsts]
        return rank in ranks
    return True


def inner(comm, a, b, counted=True):
    here = np.vdot(a.astype("c16"), b.astype("c16")).real if counted else 0.0
    return comm.allreduce(here), comm.allreduce(np.linalg.norm(a) * np.linalg.norm(b))


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[1, 2, 4], full=[6], timeout=240)
@pytest.mark.parametrize("partial", [(True, True), (True, False), (False, True), (False, False)], ids=str)
def test_inner_products_of_adjoints_are_equal(comm, partial):
    of_source, of_target = partial

    @same_on_all_ranks(30, comm.size)
    @given(linear_cases(comm.size))
    def check(case):
        source, target, (before, after), how, strategy = case
        x = part(source, before, 1, comm.rank, differs=how["op"] is not None)
        y = part(target, after, 2, comm.rank, differs=of_target)
        with plan(source, target, before, comm=comm, strategy=strategy, **how) as forward:
            with forward.adjoint(source_partial=of_source, target_partial=of_target) as adjoint:
                assert (adjoint.strategy, adjoint.dtype, adjoint.target_dtype) == (strategy, after, before)
                moved = forward(x, out=np.zeros_like(y))
                gradient = adjoint(y)
        each_once = how["op"] is None and not of_source
        left, scale = inner(comm, moved, y, of_target or is_first(target, comm.rank))
        right, _ = inner(comm, x, gradient, not each_once or is_first(source, comm.rank))
        assert abs(left - right) <= 1e-4 * scale + 1e-12
        if how["op"] is not None or each_once:  # one gradient on all replicas
            whole = np.zeros(source.shape, before)
            if gradient.size and isinstance(source, Distribution) and is_first(source, comm.rank):
                whole[np.ix_(*source.global_index(comm.rank))] = gradient
            if isinstance(source, Distribution):
                expected = source.local(comm.allreduce(whole), comm.rank)
                np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-5)

    check()


@pytest.mark.mpi(ranks=[4])
def test_several_tensors_and_the_adjoint_of_an_adjoint(comm):
    rows, columns, everywhere = (Distribution((6, 8), grid, dims=dims) for grid, dims in GRIDS)
    sides = [rows, everywhere], [everywhere, columns]
    x = [part(side, "f8", seed, comm.rank, False) for seed, side in enumerate(sides[0])]
    y = [part(side, "f8", 9 + seed, comm.rank, True) for seed, side in enumerate(sides[1])]
    with plan(*sides, "f8", comm=comm, alpha=3) as forward, forward.adjoint() as adjoint:
        with adjoint.adjoint() as again:
            moved, gradient = forward(x), adjoint(y)
            for one, other in zip(moved, again(x), strict=True):
                np.testing.assert_allclose(one, other)
    both = (moved, y), (x, gradient)
    left, right = (sum(inner(comm, *pair)[0] for pair in zip(*one, strict=True)) for one in both)
    np.testing.assert_allclose(left, right)
    total = comm.allreduce(y[0])
    np.testing.assert_allclose(gradient[0], 3 * rows.local(total, comm.rank))


GRIDS = (((4, 1), None), ((1, 4), None), ((4,), (None, None)))


@pytest.mark.mpi(ranks=[4])
def test_elements_outside_the_region(comm):
    source, target = Distribution((6, 8), (4, 1)), Distribution((3, 4), (1, 2))
    region = ((2, 3), (0, 0), (3, 4))
    y = target.local(numbers((3, 4), "f8", 5), comm.rank)
    expected = np.zeros((6, 8))
    expected[2:5, 3:7] = numbers((3, 4), "f8", 5)
    with plan(source, target, "f8", comm=comm, region=region) as forward, forward.adjoint() as adjoint:
        np.testing.assert_array_equal(adjoint(y), source.local(expected, comm.rank))
        out = np.full(source.local_shape(comm.rank), 7.0)
        kept = source.local(np.where(expected == 0, 7.0, expected), comm.rank)
        np.testing.assert_array_equal(adjoint(y, out=out), kept)
        with forward.inverse() as inverse, pytest.raises(ValueError, match="region leaves a part"):
            inverse(y)


def halos(ranks):
    """Return distributions with margins: over each axis, with parts of any length, and replicas."""
    how = [
        {"halo": (1, 2), "periodic": (True, False)},
        {"halo": (2, 1), "periodic": True},
        {"halo": (0, 2), "periodic": (False, True)},
        {"halo": 1},
    ]
    grids = [((ranks, 1), None), ((1, ranks), None), ((ranks,), (None, None)), ((2, 2), (1, 0))][: 3 + (ranks == 4)]
    made = [Distribution((8, 9), grid, dims=dims, **one) for grid, dims in grids for one in how]
    lengths = (*(2,) * (ranks - 1), 8 - 2 * (ranks - 1))
    turned = {"block": [lengths, None], "ranks": range(ranks)[::-1]}
    return [*made, *(Distribution((8, 9), (ranks,), **turned, **one) for one in how)]


@pytest.mark.mpi(ranks=[1, 4], full=[2, 3], timeout=240)
def test_gradients_in_a_halo_are_added_to_their_owners(comm):
    rows, everywhere = Distribution((8, 9), (comm.size,)), Distribution.replicated((8, 9), comm.size)
    strategies = itertools.cycle(sorted(OPTIONS))
    for halo in halos(comm.size):
        for source, target in ((rows, halo), (everywhere, halo), (halo, halo), (halo, everywhere)):
            x, kind = part(source, "c16", 1, comm.rank, differs=False), {"alpha": 1 - 2j, "conj": np.True_}
            y = numbers(target.local_shape(comm.rank), "c16", (2, comm.rank))
            with plan(source, target, "c16", comm=comm, strategy=next(strategies), **kind) as forward:
                with forward.adjoint() as adjoint:
                    moved, before, gradient = forward(x, out=np.zeros_like(y)), y.copy(), adjoint(y)
                    left, scale = inner(comm, moved, y)
                    right, _ = inner(comm, x, gradient)
                    assert abs(left - right) <= 1e-9 * scale, f"{source} to {target}, {forward.strategy}"
                    assert np.array_equal(y, before) and gradient.shape == x.shape
                    if any(source.halo):  # which are not read
                        gradient[source.interior(comm.rank)] = 0
                        assert not gradient.any()
                    for call in (adjoint.inverse, adjoint.adjoint, lambda a=adjoint, b=y: a.start(b)):
                        with pytest.raises(ValueError, match="can only be called and freed"):
                            call()


@pytest.mark.mpi(ranks=[2])
def test_halos_that_have_no_adjoint(comm):
    rows, halo = Distribution((8,), (2,)), Distribution((8,), (2,), halo=1)
    tiles = TiledDistribution((8,), (4,), [0, 1], halo=1)
    for source, target in ((rows, tiles), (tiles, rows), ([rows, rows], [halo, rows]), ([halo], [rows])):
        with plan(source, target, "f8", comm=comm) as forward:
            refused(comm, ValueError, "must be of one tensor in main memory.*plan each tensor", forward.adjoint)


@pytest.mark.mpi(ranks=[2])
@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        ({"beta": 1}, ValueError, "must be linear in its source, got x \\+ 1 \\* there"),
        ({"op": "max"}, ValueError, "must be linear in its source, got max of x"),
        ({"target_dtype": "c16"}, TypeError, "cannot convert elements of complex128 to float64"),
    ],
)
def test_what_has_no_adjoint(comm, how, error, text):
    with plan(Distribution((4,), (2,)), Distribution((4,), (2,)), "f8", comm=comm, **how) as forward:
        with pytest.raises(error, match=text):
            forward.adjoint()
    comm.Barrier()


@pytest.mark.mpi(ranks=[1])
def test_schedule_of_the_way_back():
    there = schedule(Distribution((8, 6), (2, 1)), Distribution((6, 8), (1, 4)), "f4", axes=(1, 0), target_dtype="f8")
    back = there.inverse()
    assert (back.source, back.target, back.dtype, back.transform.axes) == (there.target, there.source, "f8", (1, 0))
    np.testing.assert_array_equal(back.volume_matrix(), there.volume_matrix().T)
    partial = schedule(Distribution((8,), (2, 2), dims=(0,)), Distribution((8,), (3,), dims=(None,)), op="sum")
    adjoint = partial.adjoint()
    assert (adjoint.transform.op, adjoint.transform.alpha) == ("sum", 1)
    assert adjoint.adjoint().transform == partial.transform
