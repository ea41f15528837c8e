"""Adjoints of random schedules, carried out with NumPy for all ranks: inner products on both sides are equal."""

from __future__ import annotations

import numpy as np
import pytest
from distributions import CALM, ends, maps, shapes
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import carried_out
from seeds import some

from dace_redist import BoxDistribution, Distribution, schedule


def random_parts(distribution, ranks, dtype, seed, differs):
    """Return parts of random numbers, which differ between replicas or not."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(ranks):
        if differs or not found:
            whole = rng.standard_normal((2, *distribution.shape))
        numbers = np.asarray(whole[0] + (1j * whole[1] if dtype[0] == "c" else 0), dtype)
        found.append(distribution.local(numbers, len(found)))
    return found


@st.composite
def linear_schedules(draw):
    shape = draw(shapes)
    how, target_shape = draw(maps(shape))
    source, target = draw(ends(shape, target_shape, how, margins=False))
    dtype = draw(st.sampled_from(["f8", "c16"]))
    alpha = draw(st.sampled_from([1, -2, *([1 - 2j] if dtype == "c16" else [])]))
    op = draw(st.sampled_from([None, "sum"])) if isinstance(source, Distribution) else None
    conj = dtype == "c16" and draw(st.booleans())
    return schedule(source, target, dtype, **how, alpha=alpha, conj=conj, op=op)


def held_once(boxes):
    held = np.zeros(boxes.shape, int)
    for offset, extent in boxes.boxes:
        held[tuple(map(slice, offset, offset + extent))] += 1
    return bool((held == 1).all())


def check(moved):
    dtype, back = moved.dtype.str[1:], moved.adjoint()
    x = random_parts(moved.source, moved.ranks, dtype, 1, moved.reduces)
    y = random_parts(moved.target, moved.ranks, dtype, 2, True)
    left = sum(np.vdot(a, b).real for a, b in zip(y, carried_out(moved, x), strict=True))
    right = sum(np.vdot(a, b).real for a, b in zip(x, carried_out(back, y), strict=True))
    np.testing.assert_allclose(left, right, 1e-9, 1e-9 * (1 + sum(a.size for a in (*x, *y))))


@pytest.mark.slow
@settings(CALM, max_examples=some(600))
@given(linear_schedules())
def test_inner_products_are_equal(moved):
    if all(not isinstance(side, BoxDistribution) or held_once(side) for side in (moved.source, moved.target)):
        check(moved)
    else:
        with pytest.raises(ValueError, match="every element once"):
            check(moved)


def test_boxes():
    boxes = BoxDistribution((6, 4), [((0, 0), (6, 1)), ((0, 1), (6, 3))], [0, 2])
    moved = schedule(Distribution((6, 4), (3, 1)), boxes)
    assert moved.adjoint().source is boxes and moved.adjoint().transform == schedule(boxes, moved.source).transform
    overlapping = BoxDistribution((6, 4), [((0, 0), (6, 2)), ((0, 1), (6, 3))], [0, 2])
    for sides in ((moved.source, overlapping), (overlapping, moved.source)):
        with pytest.raises(ValueError, match="every element once here, got 30 elements of 24"):
            schedule(*sides).adjoint()
    whole = schedule(overlapping, moved.source).adjoint(source_partial=False)
    assert whole.transform.alpha == 1 and whole.bytes_total() == 8 * 30


def test_large_parts_whose_replicas_share_the_sum():
    partial, target = Distribution((400, 300), (2, 2), dims=(0, None)), Distribution((400, 300), (2, 2), dims=(None, 1))
    moved = schedule(partial, target, op="sum")
    assert moved.exchanges == moved.adjoint().exchanges == 3
    check(moved)
