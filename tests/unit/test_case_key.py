"""The key of a tuned choice: the same for every way to write one redistribution, different for different ones."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from cases import blocked
from hypothesis import given, settings
from hypothesis import strategies as st

from dace_redist import Distribution, TiledDistribution, schedule
from dace_redist.redistribution.shared_arrays import empty, is_shared
from dace_redist.tuning.problem import (
    GPU_MEMORIES,
    MAIN_MEMORIES,
    MEMORIES,
    Problem,
    canonical,
    check_memory,
    gpu_memory_name,
    memory_name,
    schedule_key,
    sides_on_gpu,
)

SHAPE = (12, 10)
ROWS, COLUMNS = Distribution(SHAPE, [4]), Distribution(SHAPE, [1, 4])


def key(source=ROWS, target=COLUMNS, dtype="float64") -> str:
    return schedule_key(schedule(source, target, dtype=dtype))


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
        Distribution(SHAPE, [4], block=[3, 10]),
        Distribution(SHAPE, [4], block=[3, 2]),  # the second axis is not split: its blocks all lie on one rank
        Distribution(SHAPE, [4], block="ceil"),
        Distribution(SHAPE, [4], ranks=[0, 1, 2, 3]),
        Distribution(SHAPE, [4, 1], pins=[None, 0], dims=[0, None]),
    ],
)
def test_ways_to_write_the_same(other: Distribution):
    assert key(other) == key()


def test_balanced_where_the_last_is_short():
    assert key(Distribution((7, 2), [4]), Distribution((7, 2), [1])) == key(
        Distribution((7, 2), [4], block="ceil"), Distribution((7, 2), [1], block="ceil")
    )
    assert key(Distribution((6, 2), [4]), Distribution((6, 2), [1])) != key(
        Distribution((6, 2), [4], block="ceil"), Distribution((6, 2), [1])
    )


@pytest.mark.parametrize(
    "other",
    [
        lambda: key(COLUMNS, ROWS),
        lambda: key(dtype="float32"),
        lambda: key(ROWS, ROWS),
        lambda: key(Distribution(SHAPE, [3])),
        lambda: key(Distribution(SHAPE, [4], ranks=[1, 0, 2, 3])),
        lambda: key(Distribution(SHAPE, [4], block=[1, 10])),
        lambda: key(Distribution(SHAPE, [4, 2], dims=[0, None])),
        lambda: key(Distribution(SHAPE, [4, 2], dims=[0, None], pins=[None, 1])),
        lambda: key(TiledDistribution(SHAPE, (3, 10), [[0], [1], [2], [3]])),
        lambda: key(Distribution((12, 11), [4]), Distribution((12, 11), [1, 4])),
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


def test_where_arrays_lie():
    shared, ordinary = empty((4, 6), "float32"), np.empty((4, 6), "float32")
    for array, expected in ((shared, True), (ordinary, False)):
        for view in (array, array[1:, ::2], array.T, array.reshape(-1).view("int32"), np.asarray(array)):
            assert is_shared(view) == expected
    assert not is_shared(shared.copy())
    sides = ((False, False), (True, False), (False, True), (True, True))
    assert [memory_name(*pair) for pair in sides] == [*MAIN_MEMORIES]
    assert {gpu_memory_name(*pair) for pair in sides[1:]} == {*GPU_MEMORIES}
    assert [sides_on_gpu(gpu_memory_name(*pair)) for pair in sides[1:]] == [*sides[1:]]
    assert not any(any(sides_on_gpu(memory)) for memory in MAIN_MEMORIES)
    assert [Problem(schedule(ROWS, COLUMNS), memory).on_gpu for memory in MEMORIES] == [False] * 4 + [True] * 3
    with pytest.raises(ValueError, match="memory must be one of ordinary, .*, shared-both, got 'gpu'"):
        check_memory("gpu", MAIN_MEMORIES)
    assert [str(Problem(schedule(ROWS, COLUMNS), memory)) for memory in MEMORIES[:2]] == [
        "float64[12, 10]",
        "float64[12, 10] (shared-source)",
    ]
