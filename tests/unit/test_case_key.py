"""The key of a tuned choice: the same for every way to write one redistribution, different for different ones."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from distributions import blocked
from hypothesis import given, settings
from hypothesis import strategies as st

from dace_redist import BoxDistribution, Distribution, TiledDistribution, schedule
from dace_redist.tuning.problem import canonical, schedule_key

SHAPE = (12, 10)
ROWS, COLUMNS = Distribution(SHAPE, [4]), Distribution(SHAPE, [1, 4])


def key(source=ROWS, target=COLUMNS, dtype="float64") -> str:
    return schedule_key(schedule(source, target, dtype=dtype))


@pytest.mark.slow
@settings(derandomize=True, max_examples=200)
@given(st.data(), st.lists(st.integers(0, 12), max_size=2).map(tuple))
def test_canonical_form_owns_the_same(data, shape: tuple[int, ...]):
    """By brute force: every rank holds the same elements in the same order, and the form is its own form."""
    distribution = data.draw(blocked(shape, 6))
    form = canonical(distribution)
    for rank in range(6):
        for before, after in zip(distribution.global_index(rank), form.global_index(rank), strict=True):
            assert np.array_equal(before, after)
        assert form.local_shape(rank) == distribution.local_shape(rank)
    assert form.ranks_needed == distribution.ranks_needed
    assert canonical(form) == form


@pytest.mark.parametrize(
    "other",
    [
        Distribution(SHAPE, [4, 1]),
        Distribution(SHAPE, [1, 4], dims=[1, 0]),
        Distribution(SHAPE, [4], block=[3, 2]),
        Distribution(SHAPE, [4], block="ceil"),
        Distribution(SHAPE, [4], block=[(3, 3, 3, 3), "balanced"]),
        Distribution(SHAPE, [4, 1], pins=[None, 0], dims=[0, None]),
    ],
)
def test_ways_to_write_the_same(other: Distribution):
    assert key(other) == key()


@pytest.mark.parametrize(
    "other",
    [
        lambda: key(COLUMNS, ROWS),
        lambda: key(dtype="float32"),
        lambda: key(ROWS, ROWS),
        lambda: key(Distribution(SHAPE, [3])),
        lambda: key(Distribution(SHAPE, [4], block=[(2, 4, 3, 3), None])),
        lambda: key(Distribution(SHAPE, [4], halo=1)),
        lambda: key(Distribution(SHAPE, [4], ranks=[1, 0, 2, 3])),
        lambda: key(Distribution(SHAPE, [4, 2], dims=[0, None], pins=[None, 1])),
        lambda: key(TiledDistribution(SHAPE, (3, 10), [[0], [1], [2], [3]])),
        lambda: key(BoxDistribution(SHAPE, [((0, 0), SHAPE)], [0])),
    ],
)
def test_different_ones(other):
    assert other() != key()


def test_key_is_the_same_in_every_process_and_version():
    """A change of the key forgets all records: it must not happen by accident."""
    program = (
        "from dace_redist import Distribution, schedule\nfrom dace_redist.tuning.problem import schedule_key\n"
        "print(schedule_key(schedule(Distribution((12, 10), [4]), Distribution((12, 10), [1, 4]))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == key() == "0d9e6ce178d20417289b8a163cb87266"
