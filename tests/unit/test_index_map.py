"""Axes and regions that do not fit: what is said, and where."""

from __future__ import annotations

import json

import pytest

from dace_redist.distribution import Distribution
from dace_redist.schedule import schedule

A, B = Distribution((6, 4), (2, 1)), Distribution((4, 6), (2, 1))

WRONG = [
    ({"axes": (0, 0)}, ValueError, r"axes must name each of the 2 dimensions once, got \(0, 0\)"),
    ({"axes": 1}, TypeError, "axes must be a sequence of integers, got 1"),
    ({"axes": (0.5, 1)}, TypeError, r"axes\[0\] must be an integer, got 0.5"),
    ({}, ValueError, r"source and target need one global shape, got \(6, 4\) and \(4, 6\)"),
    ({"region": 3}, TypeError, r"region must be \(source_offset, target_offset, shape\), got 3"),
    ({"region": ((0, 0), (0, 0))}, TypeError, r"region must be \(source_offset, target_offset, shape\)"),
    ({"region": ((0, 0), (0,), (1, 1))}, ValueError, r"region: target_offset needs 2 entries, .* got \(0,\)"),
    ({"region": ((0, 0), (0, 0), (-1, 1))}, ValueError, r"region: shape\[0\] must be at least 0, got -1"),
    (
        {"region": ((0, 0), (0, 0), (5, 1))},
        ValueError,
        "region: 5 indices from 0 on are not inside dimension 0 of the t",
    ),
    (
        {"region": ((5, 0), (0, 0), (2, 1))},
        ValueError,
        "region: 2 indices from 5 on are not inside dimension 0 of the s",
    ),
    ({"region": ((0, -1), (0, 0), (2, 1))}, ValueError, "region: 1 indices from -1 on are not inside dimension 1"),
    ({"region": ((0, 0), (2**62, 0), (2**62, 1))}, ValueError, "are not inside dimension 0"),
    ({"reshape": 24}, TypeError, "reshape must be a sequence of integers, got 24"),
    ({"reshape": (4, "6")}, TypeError, r"reshape\[1\] must be an integer, got '6'"),
    ({"reshape": (6, 4)}, ValueError, r"reshape must be the shape of the target, \(4, 6\), got \(6, 4\)"),
    ({"reshape": (4, 6, 1)}, ValueError, r"reshape must be the shape of the target, \(4, 6\), got \(4, 6, 1\)"),
    ({"reshape": (-1, -1)}, ValueError, r"reshape must be extents of at least 0, and at most one -1, got \(-1, -1\)"),
    ({"reshape": (4, -2)}, ValueError, r"reshape must be extents of at least 0, and at most one -1, got \(4, -2\)"),
    ({"reshape": (4, 6), "region": ((0, 0), (0, 0), (1, 1))}, ValueError, "region and reshape cannot be combined"),
    ({"reshape": (4, 6), "axes": (0, 1, 2)}, ValueError, r"axes must name each of the 2 dimensions once"),
]


@pytest.mark.parametrize(("how", "kind", "message"), WRONG)
def test_what_does_not_fit_is_said(how, kind, message):
    with pytest.raises(kind, match=message):
        schedule(A, B, **how)


def test_the_report_names_the_map():
    plan = schedule(A, B, axes=(1, 0), region=((1, 0), (0, 2), (3, 4)))
    assert "as        axes (1, 0), region of (3, 4) from (1, 0) to (0, 2)" in str(plan)
    assert plan.to_json()["region"] == {"source_offset": (1, 0), "target_offset": (0, 2), "shape": (3, 4)}
    assert plan.bytes_total() == 12 * 8


@pytest.mark.parametrize(
    ("shape", "how", "said"),
    [
        ((6, 4), {"axes": (1, 0)}, r"with axes (1, 0) a source of shape (6, 4) needs .* (4, 6), got (6, 4)"),
        ((5, 5), {"reshape": (5, -1)}, "of shape (6, 4) has 24 elements, but the target's shape (5, 5) has 25"),
        ((0, 4), {"reshape": (0, 4)}, "has 24 elements, but the target's shape .* has 0"),
    ],
)
def test_targets_of_another_shape(shape, how, said):
    with pytest.raises(ValueError, match=said.replace("(", r"\(").replace(")", r"\)")):
        schedule(A, Distribution(shape, (2, 1)), **how)


@pytest.mark.slow
def test_the_report_names_the_reshape(tmp_path):
    moved = schedule(A, Distribution((3, 8), (2, 1)), axes=(1, 0), reshape=(3, 8))
    assert "as        axes (1, 0), reshape to (3, 8)" in str(moved)
    assert moved.to_json()["reshape"] == (3, 8)
    assert moved.inverse().transform.map_text == "reshape to (4, 6), axes (1, 0)"
    assert moved.inverse().inverse() == moved
    moved.plot(tmp_path / "plan.svg")


def test_blocks_of_a_reshape_are_few():
    """Whole rows are a loop, not a block each, also in block-cyclic distributions and those of 10^6 ranks."""

    def largest(source, target):
        sends, receives, kept = schedule(source, target, reshape=target.shape).of_rank(0)
        return max(len(message.blocks) for message in [*sends, *receives, kept])

    square, wide = (4096, 4096), (2048, 8192)
    for grids in (((4,), (4,)), ((1, 4), (4,)), ((2, 2), (2, 2)), ((1, 4), (1, 4))):
        assert largest(*(Distribution(shape, grid) for shape, grid in zip((square, wide), grids, strict=True))) <= 3
    for block in (1, 64):
        assert largest(*(Distribution(shape, (2, 2), block=(block, block)) for shape in (square, wide))) <= 16
    grid = (1000, 1000)
    assert largest(Distribution((10**6, 10**6), grid), Distribution((10**12,), (10**6,))) == 1


def test_a_reshape_into_billions_of_pieces_is_refused():
    """Neither length of rows divides the other."""
    rows, columns = 2**31, 2**31 - 1
    source, target = Distribution.split((rows, columns), 0, 2), Distribution.split((columns, rows), 0, 2)
    message = "of 2147483647 elements .* 2147483648 of the target meet in more than 8388608"
    with pytest.raises(ValueError, match=message):
        schedule(source, target, reshape=target.shape).of_rank(0)


COMMAND = ("explain", "--shape", "6,4", "--from", "2,1", "--to", "2,1")


def test_command_line(run):
    assert "relabel " not in run(*COMMAND, "--axes", "1,0")[1]
    other_ranks = run(*COMMAND, "--to-ranks", "1,0", "--to-shape", "6,4")[1]
    assert "dace_redist.relabel moves 192 B (100.0 %) less" in other_ranks

    def report(*words):
        return json.loads(run(*COMMAND, *words, "--json")[1])

    assert report("--axes", "1,0")["axes"] == [1, 0]
    reshaped = report("--reshape", "8,3")
    assert reshaped["target"]["shape"] == reshaped["reshape"] == [8, 3]
    assert "--reshape: name all extents, without -1" in run(*COMMAND, "--reshape", "8,-1")[2]
    found = report("--to-shape", "9,9", "--region-to", "5,5", "--region-shape", "3,4")
    assert (found["target"]["shape"], found["bytes_total"]) == ([9, 9], 96)
