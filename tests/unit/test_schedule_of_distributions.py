"""Messages of the runtime's planner against brute force: every element arrives, and nothing is sent twice."""

from __future__ import annotations

import math

import numpy as np
import pytest
from distributions import CALM, distributions, mapped_pairs, moved, pairs, parts, whole, with_margins
from hypothesis import given
from hypothesis import strategies as st
from schedules import carried_out

from dace_redist import Distribution, schedule

#: Margins along few axes: a part has up to 3**axes neighbours.
mapped = mapped_pairs().filter(lambda case: all(np.count_nonzero(side.halo) <= 3 for side in case[:2]))


def check_mapped(source, target, how):
    """Check every element of the target; those that nothing is moved to are -1."""
    planned, ranks = schedule(source, target, dtype="int64", **how), max(source.ranks_needed, target.ranks_needed)
    before = np.full(target.shape, -1, np.int64)
    given, targets = parts(source, whole(source.shape), ranks), parts(target, before, ranks)
    after = parts(target, moved(whole(source.shape), before, **how), ranks)
    for got, wanted in zip(carried_out(planned, given, targets), after, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("run", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 64, 100])
def test_moving_runs_of_each_length(run):
    shape = (5, 3, 7 * run)
    check_mapped(Distribution(shape, (1, 1, 7)), Distribution(shape, (5, 1, 1)), {})


@pytest.mark.slow
@CALM
@given(mapped)
def test_sends_are_the_receives_of_the_other_side(case):
    source, target, how = case
    ranks = max(source.ranks_needed, target.ranks_needed)
    moved, sends, receives = schedule(source, target, **how), {}, {}
    for rank in range(ranks):
        out, into, _ = moved.arrays(rank)
        plain = moved.arrays(rank, with_blocks=False)
        for side, without in zip((out, into), plain, strict=False):
            assert side.peers.tolist() == sorted({*side.peers.tolist()} - {rank})
            assert not side.exchanges.any()
            for name in ("peers", "elements", "exchanges"):
                np.testing.assert_array_equal(getattr(side, name), getattr(without, name))
            assert not without.first_block.any() and not without.counts.size
        sends.update({(rank, m.target): m for m in moved.sends(rank)})
        receives.update({(m.source, rank): m for m in moved.receives(rank)})
    assert sends == receives
    assert all(m.count == sum(block.count for block in m.blocks) for m in sends.values())


@pytest.mark.slow
@CALM
@given(pairs)
def test_what_a_rank_has_it_never_receives(pair):
    source, target = pair
    array = whole(source.shape)
    for rank in range(max(source.ranks_needed, target.ranks_needed)):
        has, needs = (side.local(array, rank).ravel() for side in pair)  # boxes may hold an element several times
        _, into, kept = schedule(source, target).arrays(rank, with_blocks=False)
        assert kept.elements.sum() == np.isin(needs, has).sum()
        assert into.elements.sum() == needs.size - kept.elements.sum()


@pytest.mark.slow
@CALM
@given(mapped)
def test_regions_permuted_axes_and_reshapes(case):
    check_mapped(*case)


@CALM
@given(st.integers(2, 6), st.integers(1, 3), st.integers(13, 30), st.integers(1, 5), st.data())
def test_blocks_dealt_out_in_turn_to_margins_and_other_shapes(parts, block, extent, others, data):
    source, flat = Distribution((extent, 4), (parts, 1), block=(block, None)), Distribution((4 * extent,), (others,))
    wide = data.draw(with_margins(st.just(Distribution(source.shape, (others, 1)))))
    check_mapped(source, wide, {})
    check_mapped(source, flat, {"reshape": flat.shape})
    check_mapped(flat, source, {"reshape": source.shape})


@pytest.mark.slow
@CALM
@given(st.permutations(range(3)), st.data())
def test_permuted_axes_of_long_runs_go_tile_by_tile(axes, data):
    shape = data.draw(st.tuples(*[st.sampled_from([2, 63, 64, 129, 200])] * 3).filter(lambda s: math.prod(s) < 2e5))
    region = None
    if data.draw(st.booleans()):
        region = ((1, 1, 1), (0, 2, 1), tuple(n - 1 for n in shape))
    permuted = [shape[axis] for axis in axes] if region is None else [shape[axis] + 3 for axis in axes]
    source, target = data.draw(distributions(shape)), data.draw(distributions(tuple(permuted)))
    check_mapped(source, target, {"axes": axes, "region": region})
