"""Axes and regions that do not fit: what is said, and where."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from dace_redist.cli import cli
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
]


@pytest.mark.parametrize(("how", "kind", "message"), WRONG)
def test_what_does_not_fit_is_said(how, kind, message):
    with pytest.raises(kind, match=message):
        schedule(A, B, **how)


def test_with_axes_the_shapes_must_be_permuted():
    with pytest.raises(
        ValueError, match=r"with axes \(1, 0\) a source of shape \(6, 4\) needs .* \(4, 6\), got \(6, 4\)"
    ):
        schedule(A, A, axes=(1, 0))


def test_the_report_names_the_map():
    plan = schedule(A, B, axes=(1, 0), region=((1, 0), (0, 2), (3, 4)))
    assert "as        axes (1, 0), region of (3, 4) from (1, 0) to (0, 2)" in str(plan)
    assert plan.to_json()["region"] == {"source_offset": (1, 0), "target_offset": (0, 2), "shape": (3, 4)}
    assert plan.bytes_total() == 12 * 8


COMMAND = ["explain", "--shape", "6,4", "--from", "2,1", "--to", "2,1"]


def test_command_line_says_what_other_ranks_would_save():
    done = CliRunner().invoke(cli, [*COMMAND, "--axes", "1,0"])
    assert "relabel " not in done.output
    done = CliRunner().invoke(cli, [*COMMAND, "--to-ranks", "1,0", "--to-shape", "6,4"])
    assert "renumbered by dace_redist.relabel: 192 B (100.0 %) less" in done.output


def test_command_line():
    done = CliRunner().invoke(cli, [*COMMAND, "--axes", "1,0", "--json"])
    assert json.loads(done.output)["axes"] == [1, 0]
    done = CliRunner().invoke(
        cli, [*COMMAND, "--to-shape", "9,9", "--region-to", "5,5", "--region-shape", "3,4", "--json"]
    )
    report = json.loads(done.output)
    assert (report["target"]["shape"], report["bytes_total"]) == ([9, 9], 96)
