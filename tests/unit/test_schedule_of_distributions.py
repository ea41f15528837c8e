"""Messages of the runtime's planner against brute force: every element arrives, and nothing is sent twice."""

from __future__ import annotations

import math

import numpy as np
import pytest
from distributions import CALM, distributions, mapped_pairs, moved, pairs, parts, whole
from hypothesis import given
from hypothesis import strategies as st

from dace_redist import Distribution, schedule


def as_bytes(array, itemsize):
    """An array whose elements are ``itemsize`` bytes that tell them apart: one more axis of bytes."""
    numbers = (array[..., None] * 131 + np.arange(itemsize) * 29 + array[..., None] // 256) % 251
    return numbers.astype(np.uint8)


def as_elements(array):
    """A view of the bytes of an array in C order, with an axis for those of an element."""
    return array.view(np.uint8).reshape(*array.shape, array.itemsize) if array.ndim else array.reshape(1).view(np.uint8)


def apply(moved, sources, targets):
    """Copy the blocks of all messages; the last axis of the arrays has the bytes of an element."""
    sources, targets = ([array.view(f"V{array.shape[-1]}")[..., 0] for array in side] for side in (sources, targets))
    for rank, array in enumerate(sources):
        sends, _, kept = moved.arrays(rank)
        for side in (sends, kept):
            for m, peer in enumerate(side.peers):
                views = side.source_views(array, m), side.target_views(targets[peer], m)
                assert sum(view.size for view in views[0]) == side.elements[m]
                for before, after in zip(*views, strict=True):
                    after[...] = before


def move(source, target, itemsize, sources, ranks):
    targets = [np.full((*target.local_shape(rank), itemsize), 255, np.uint8) for rank in range(ranks)]
    apply(schedule(source, target), sources, targets)
    return targets


@pytest.mark.slow
@CALM
@given(pairs, st.sampled_from([1, 2, 3, 4, 8, 12, 16]))
def test_moving_there_and_back_is_cutting_the_whole_tensor(pair, itemsize):
    source, target = pair
    ranks = max(source.ranks_needed, target.ranks_needed)
    before, after = ([as_bytes(p, itemsize) for p in parts(side, whole(source.shape), ranks)] for side in pair)
    there = move(source, target, itemsize, before, ranks)
    back = move(target, source, itemsize, there, ranks)
    for rank in range(ranks):
        np.testing.assert_array_equal(there[rank], after[rank])
        np.testing.assert_array_equal(back[rank], before[rank])


@pytest.mark.parametrize("run", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 64, 100])
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16, 3])
def test_moving_runs_of_each_length(run, itemsize):
    shape, ranks = (5, 3, 7 * run), 7
    source, target = Distribution(shape, (1, 1, 7)), Distribution(shape, (5, 1, 1))
    before = [as_bytes(part, itemsize) for part in parts(source, whole(shape), ranks)]
    there = move(source, target, itemsize, before, ranks)
    for rank, wanted in enumerate(parts(target, whole(shape), ranks)):
        np.testing.assert_array_equal(there[rank], as_bytes(wanted, itemsize))


@pytest.mark.slow
@CALM
@given(mapped_pairs())
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


def check_mapped(source, target, how):
    ranks = max(source.ranks_needed, target.ranks_needed)
    before = np.full(target.shape, -1, np.int64)
    after = moved(whole(source.shape), before, **how)
    targets = [np.array(part) for part in parts(target, before, ranks)]
    given = [as_elements(np.ascontiguousarray(part)) for part in parts(source, whole(source.shape), ranks)]
    apply(schedule(source, target, **how), given, [as_elements(part) for part in targets])
    for got, wanted in zip(targets, parts(target, after, ranks), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.slow
@CALM
@given(mapped_pairs())
def test_regions_permuted_axes_and_reshapes(case):
    check_mapped(*case)


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
