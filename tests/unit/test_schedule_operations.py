"""Schedules of what is computed on the way, and of several tensors: against brute force, and as they are printed."""

from __future__ import annotations

import contextlib
import itertools
import json
import math

import numpy as np
import pytest
from distributions import FEW, blocked, distributions, moved, shapes
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import carried_out, summed

from dace_redist import Distribution, Schedule, schedule
from dace_redist.report import figure
from dace_redist.transform import Transform

D = Distribution
ROWS, COLUMNS = D((8, 6), (4, 1)), D((8, 6), (1, 4))
PARTIAL = D((8, 6), (2, 3), dims=(0, None))


def check_sums(found, axes, region=None):
    """Check the sums of random partial results."""
    shapes = [found.source.local_shape(rank) for rank in range(found.ranks)]
    partial = [np.random.default_rng(rank).integers(0, 1000, shape).astype(float) for rank, shape in enumerate(shapes)]
    wanted = moved(summed(found.source, partial), np.zeros(found.target.shape), axes, region)
    for rank, result in enumerate(carried_out(found, partial)):
        np.testing.assert_array_equal(result, found.target.local(wanted, rank))


@FEW
@given(shapes.flatmap(lambda shape: st.tuples(blocked(shape), distributions(shape))))
def test_messages_of_a_reduction_bring_each_partial_result_once(pair):
    source, target = pair
    found = schedule(source, target, op="sum")
    check_sums(found, None)
    assert found.exchanges == source.core.replicas
    held = sum(math.prod(target.local_shape(rank)) for rank in range(found.ranks))
    assert found.bytes_total() == found.volume_matrix().sum() == 8 * source.core.replicas * held
    received = sum(m.count for rank in range(found.ranks) for m in found.receives(rank))
    assert 8 * received == found.bytes_moved()


@st.composite
def shared_reductions(draw):
    """Source and target, both with replicas, parts of some hundred KiB, and where the elements go."""
    partial, replicas = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    shape = tuple(draw(st.integers(150, 300)) for _ in range(2))
    block = st.sampled_from([None, 1, 7, 40])
    source = D(shape, (2, partial), dims=draw(st.sampled_from([(0, None), (None, 0)])), block=(draw(block), None))
    axes = draw(st.sampled_from([None, (1, 0)]))
    dims = draw(st.sampled_from([(0, None), (None, 0), (None, None)]))
    target_shape = shape[::-1] if axes else shape
    target = D(target_shape, (2, replicas) if 0 in dims else (replicas,), dims=dims, block=(None, draw(block)))
    size = tuple(draw(st.integers(80, extent)) for extent in shape)
    starts = tuple(draw(st.integers(0, extent - part)) for extent, part in zip(shape, size, strict=True))
    turned = [size[axis] for axis in axes or (0, 1)]
    ends = tuple(draw(st.integers(0, extent - part)) for extent, part in zip(target_shape, turned, strict=True))
    return source, target, axes, draw(st.sampled_from([None, (starts, ends, size)]))


@settings(max_examples=40, deadline=None)
@given(shared_reductions())
def test_replicas_of_the_target_share_what_is_reduced(case):
    source, target, axes, region = case
    found = schedule(source, target, axes=axes, region=region, op="sum")
    assert found.exchanges == source.core.replicas + 1
    wider = schedule(source, target, "float32", axes=axes, region=region, op="sum", target_dtype="float64")
    assert wider.exchanges == source.core.replicas  # shares would be sent as float64
    check_sums(found, axes, region)
    moves = source.core.replicas + target.core.replicas - 1
    assert found.bytes_total() == 8 * moves * int(np.prod(source.shape if region is None else region[2]))


def test_which_factors_and_types_are_taken():
    factors = (-129, -128, -1, 0.5, 2, 127, 128, 255, 256, 1j)
    taken = {"int8": {-128, -1, 2, 127}, "uint8": {2, 127, 128, 255}, "bool": set(), "complex64": {*factors}}
    taken |= {"int16": {*factors} - {0.5, 1j}, "float32": {*factors} - {1j}, ">f8": set(), "datetime64[s]": set()}
    for dtype, factor in itertools.product(taken, factors):
        for name in ("alpha", "beta"):
            fits = factor in taken[dtype]
            with contextlib.nullcontext() if fits else pytest.raises(TypeError):
                schedule(ROWS, COLUMNS, dtype, **{name: factor})
    schedule(ROWS, COLUMNS, "bool", op="max", alpha=True)
    with pytest.raises(TypeError, match="beta must be a number of the target's type bool, got"):
        schedule(ROWS, COLUMNS, "bool", beta=1)


def test_a_region_of_other_extents_covers_its_target_turned():
    turned = Transform(2, np.dtype("f8"), axes=(1, 0), region=((1, 0), (0, 0), (2, 5)))
    covered = {shape: turned.covers(shape) for shape in ((5, 2), (2, 5), (5, 3), (0, 9))}
    assert covered == {(5, 2): True, (2, 5): False, (5, 3): False, (0, 9): True}


def test_several_tensors_in_one_exchange():
    tensors = [schedule(ROWS, COLUMNS), schedule(COLUMNS, ROWS, dtype="int32"), schedule(ROWS, ROWS)]
    joint = Schedule.joined(tensors)
    matrix = sum(tensor.volume_matrix() for tensor in tensors)
    for rank in range(4):
        targets, nbytes = joint.sent_to(rank)
        np.testing.assert_array_equal(matrix[rank, targets], nbytes)
        assert nbytes.sum() == matrix[rank].sum()
    assert joint.bytes_moved() == sum(tensor.bytes_moved() for tensor in tensors)
    np.testing.assert_array_equal(joint.volume_matrix(), matrix)
    for of_one_tensor in (joint.inverse, joint.adjoint, joint.busiest_rank, joint.run_lengths):
        with pytest.raises(ValueError, match="of several tensors only bytes are counted"):
            of_one_tensor()
    assert "in 12 messages, 24 one tensor after another" in str(joint)
    assert json.loads(json.dumps(joint.to_json()))["messages"] == 12
    assert "float64[8, 6] and 2 more" in figure.draw(joint).get_suptitle()


def test_what_cannot_move_in_one_exchange():
    with pytest.raises(ValueError, match="at least one tensor"):
        Schedule.joined([])
    with pytest.raises(ValueError, match="moves in exchanges of its own"):
        Schedule.joined([schedule(PARTIAL, COLUMNS, op="sum"), schedule(PARTIAL, COLUMNS)])
    with pytest.raises(ValueError, match="op must be one of"):
        schedule(PARTIAL, COLUMNS, op="mean")
    with pytest.raises(TypeError, match="cannot convert elements of complex64 to float64"):
        schedule(ROWS, COLUMNS, dtype="complex64", target_dtype="float64")
