"""Bytes of redistributions between placements: those of the schedule, and bounds that hold."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dace_redist import Distribution
from dace_redist.einsum import placement
from dace_redist.einsum.grids import Layouts
from dace_redist.einsum.model import move_bounds, worst_overlap
from dace_redist.einsum.placement import Overlap, Placement, busiest, messages, overlap_matrix, traffic
from dace_redist.relabelling import assign
from dace_redist.schedule import schedule


@st.composite
def placements(draw, axes, ranks=12):
    grid = draw(st.sampled_from(_grids(3, ranks)))
    free = list(range(len(grid)))
    dims = []
    for _ in range(axes):
        dims.append(draw(st.sampled_from([None, *free])))
        free = [axis for axis in free if axis != dims[-1]]
    multiples = tuple(draw(st.integers(1, 3)) for _ in range(axes))
    order = draw(st.permutations(range(ranks)))
    return Placement(grid, tuple(dims), multiples, tuple(order[: math.prod(grid)]))


def _grids(axes, ranks):
    return [grid for grid in itertools.product(range(1, 6), repeat=axes) if math.prod(grid) <= ranks]


@st.composite
def cases(draw):
    shape = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)))
    return shape, draw(placements(len(shape))), draw(placements(len(shape)))


@pytest.mark.slow
@given(cases())
@settings(max_examples=150, deadline=None)
def test_blocks_are_those_of_the_distribution(case):
    shape, placement, _ = case
    distribution = placement.distribution(shape)
    assert placement.largest_block(shape) == tuple(map(distribution.core.uniform_block, range(len(shape))))
    lows, highs = placement.bounds(shape)
    for rank, low, high in zip(placement.ranks, lows.T, highs.T, strict=True):
        assert tuple(high - low) == distribution.local_shape(rank)
        for axis, indices in enumerate(distribution.global_index(rank)):
            np.testing.assert_array_equal(indices, np.arange(low[axis], high[axis]))
    assert Placement.of(Distribution(shape, (1,))).largest_block(shape) == shape


@pytest.mark.slow
@given(cases())
@settings(max_examples=150, deadline=None)
def test_traffic_is_that_of_the_schedule(case):
    shape, source, target = case
    planned = schedule(source.distribution(shape), target.distribution(shape), dtype="int8")
    expected = planned.totals
    found = traffic(source, target, shape)
    ranks = len(found[0])
    for elements, wanted in zip(found, (expected.sent, expected.received, expected.kept), strict=True):
        np.testing.assert_array_equal(elements, wanted[:ranks])
    senders, receivers, elements = messages(source, target, shape)
    between = planned.volume_matrix()
    np.fill_diagonal(between, 0)
    np.add.at(between, (senders, receivers), -elements)
    assert not between.any()


@given(cases())
@settings(max_examples=50, deadline=None)
def test_replicas_that_send_evenly_send_no_less_than_is_received(case):
    """Estimate for numbers of messages too large to count."""
    shape, source, target = case
    exact = traffic(source, target, shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "MAX_PAIRS", -1)
        found = traffic(source, target, shape)
    np.testing.assert_array_equal(found[1:], exact[1:])
    assert exact[0].sum() <= found[0].sum() <= exact[0].sum() + len(source.ranks)


@pytest.mark.slow
@given(cases())
@settings(max_examples=100, deadline=None)
def test_equivalence_means_equal_blocks_on_every_rank(case):
    shape, source, target = case
    before, after = source.distribution(shape), target.distribution(shape)
    ranks = range(max(before.ranks_needed, after.ranks_needed))
    equal = all(
        before.local_shape(r) == after.local_shape(r)
        and (
            math.prod(before.local_shape(r)) == 0
            or all(np.array_equal(a, b) for a, b in zip(before.global_index(r), after.global_index(r), strict=True))
        )
        for r in ranks
    )
    assert source.is_equivalent_to(target, shape) == equal
    shifted = tuple(None if dim is None else dim + 1 for dim in source.dims)
    assert source.is_equivalent_to(Placement((1, *source.grid), shifted, source.multiples, source.ranks), shape)


def _layouts(placement, shape):
    blocks = [placement.largest_block(shape)]
    return Layouts(np.array([placement.parts]), np.array(blocks), np.array([placement.replicas]))


@pytest.mark.slow
@given(cases())
@settings(max_examples=150, deadline=None)
def test_bounds_hold_for_every_numbering_of_the_ranks(case):
    shape, source, target = case
    bound = move_bounds(_layouts(source, shape), _layouts(target, shape), shape)[0, 0]
    assert bound <= busiest(source, target, shape) + 1e-9
    own = target.with_ranks(range(len(target.ranks)))
    fitted = target.with_ranks(assign(overlap_matrix([Overlap(own, source, shape)], len(target.ranks), 12)).tolist())
    assert bound <= busiest(source, fitted, shape) + 1e-9


@pytest.mark.parametrize(("shape", "moved"), [((8, 8), 12), ((12, 8), 18), ((8, 20), 30)])
def test_bounds_of_rows_that_become_columns_are_exact(shape, moved):
    rows, columns = (Placement((4,), dims, (1, 1), (0, 1, 2, 3)) for dims in ((0, None), (None, 0)))
    assert move_bounds(_layouts(rows, shape), _layouts(columns, shape), shape)[0, 0] == moved
    assert busiest(rows, columns, shape) == moved


def test_worst_overlaps_along_an_axis():
    for extent, before, after in itertools.product(range(1, 13), repeat=3):
        before, after = min(before, extent), min(after, extent)
        held = [(low, min(low + before, extent)) for low in range(0, extent, before)]
        full = [(low, low + after) for low in range(0, extent // after * after, after)]
        overlaps = [max(min(high, end) - max(low, begin) for begin, end in held) for low, high in full]
        assert worst_overlap(extent, before, after) == min(overlaps)


@pytest.mark.parametrize("ranks", [2, 4])
def test_one_rank_sends_all_but_its_own_block(ranks):
    whole = Placement((1,), (0,), (1,), (0,))
    blocks = Placement((ranks,), (0,), (1,), tuple(range(ranks)))
    assert move_bounds(_layouts(whole, (8,)), _layouts(blocks, (8,)), (8,))[0, 0] == 8 - 8 // ranks


def test_placements_that_do_not_fit():
    placement = Placement((2, 3), (None, 0), (1, 4), (5, 4, 3, 2, 1, 0))
    assert Placement((3,), (), (), (0, 1, 2)).distribution(()).local_shape(2) == (1,)
    with pytest.raises(ValueError, match="needs 6 ranks"):
        Placement((2, 3), (0, 1), (1, 1), (0, 1))
    with pytest.raises(ValueError, match="one entry per axis"):
        Placement((2,), (0, None), (1,), (0, 1))
    with pytest.raises(ValueError, match="no shape"):
        placement.distribution((7,))
