"""Distributions by weights, against the best of all contiguous parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dace_redist import BoxDistribution, Distribution, balanced_by


def best(weights, parts):
    """Return the smallest weight of the heaviest of some contiguous parts, by dynamic programming."""
    sums = np.concatenate([[0], np.cumsum(weights)])
    found = sums.astype(float)
    for _ in range(1, parts):
        found = [min(max(found[k], end - sums[k]) for k in range(j + 1)) for j, end in enumerate(sums)]
    return found[-1]


numbers = st.one_of(
    st.lists(st.integers(0, 9), max_size=14).map(lambda values: np.array(values, np.int64)),
    st.lists(st.sampled_from([0, 0, 1, 50]), max_size=14).map(lambda values: np.array(values, np.int32)),
    st.lists(st.floats(0, 1e6), max_size=14).map(lambda values: np.array(values, np.float64)),
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(numbers, st.integers(2, 8))
def test_one_axis_is_optimal(weights, parts):
    made = balanced_by(weights, (parts,))
    assert isinstance(made, Distribution) and made.shape == weights.shape
    held = [weights[made.slices(rank)].sum() for rank in range(parts)]
    np.testing.assert_allclose(sum(held), weights.sum())
    if weights.any():
        assert max(held) <= best(weights, parts) + (weights.dtype.kind == "f") * 8 * np.spacing(weights.sum())
    else:
        assert np.ptp([made.local_shape(rank)[0] for rank in range(parts)]) <= 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(2, 4)), min_size=2, max_size=3), st.integers(0, 2**32 - 1))
def test_boxes_cover_the_tensor_once(axes, seed):
    shape, grid = zip(*axes, strict=True)
    made = balanced_by(np.random.default_rng(seed).integers(0, 5, shape), grid, shape=(*shape, 3))
    assert isinstance(made, BoxDistribution) and made.owners.tolist() == list(range(np.prod(grid)))
    covered = np.zeros((*shape, 3), int)
    for offset, extent in made.boxes:
        covered[tuple(slice(low, low + n) for low, n in zip(offset, extent, strict=True))] += 1
    assert (covered == 1).all()


@pytest.mark.parametrize("grid", [(2, 2), (3, 5), (8, 8), (1, 4), (7, 1)])
def test_many_weights_are_nearly_equal(grid):
    weights = np.random.default_rng(1).random((300, 400)) ** 4 * np.linspace(0, 1, 400)
    made = balanced_by(weights, grid)
    held = [made.local(weights, rank).sum() for rank in range(np.prod(grid))]
    np.testing.assert_allclose(sum(held), weights.sum())
    assert max(held) < 1.05 * np.mean(held)


@pytest.mark.parametrize("parts", range(1, 9))
def test_equal_weights_give_equal_parts(parts):
    for extent in range(30):
        made = balanced_by(np.ones(extent, np.int64), (parts,))
        assert np.ptp([made.local_shape(rank)[0] for rank in range(parts)]) <= 1


def test_axes_without_weights_are_not_split():
    made = balanced_by([1, 1, 1, 9], (2,), shape=(4, 3))
    assert [made.local_shape(rank) for rank in range(2)] == [(3, 3), (1, 3)]
    assert balanced_by([[1, 2], [3, 4]], ()).local_shape(0) == (2, 2)
    large = balanced_by(np.array([2**62, 2**62, 2**62], np.uint64), (3,))
    assert [large.local_shape(rank) for rank in range(3)] == [(1,), (1,), (1,)]


@pytest.mark.parametrize(
    ("weights", "grid", "shape", "error", "text"),
    [
        ([1, -1], (2,), None, ValueError, "at least 0, got -1 to 1"),
        ([1.0, np.nan], (2,), None, ValueError, "must be finite"),
        ([1.0, np.inf], (2,), None, ValueError, "must be finite"),
        ([1j], (2,), None, TypeError, "real numbers, got complex128"),
        ([1, 2], (2, 2), None, ValueError, r"at most 1 entries, all at least 1, got \(2, 2\)"),
        ([1, 2], (0,), None, ValueError, "all at least 1, got"),
        ([1, 2], (2,), (3, 2), ValueError, r"begin with that of weights, \(2,\), got \(3, 2\)"),
        ([1, 2], 2, None, TypeError, "grid must be a sequence"),
    ],
)
def test_bad_arguments(weights, grid, shape, error, text):
    with pytest.raises(error, match=text):
        balanced_by(weights, grid, shape=shape)
