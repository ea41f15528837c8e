"""Output of a plan: the report, the command line, the picture."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest
from planner_statements import shapes_of, statements_of

from dace_redist import Distribution
from dace_redist.einsum import plan_einsums, plot
from dace_redist.einsum.placement import Placement
from dace_redist.einsum.plot import draw
from dace_redist.einsum.report import to_json
from dace_redist.einsum.statement import Loop

#: Programs with the options of their statements.
PICTURES = {name: {} for name in ("2MM", "3MM", "MTTKRP of order 5", "shared", "scalar")}
PICTURES |= {"sweep": {"loops": (Loop("sweep", 10),)}, "systems": {"solves": True}}


ON_ONE = {"A": Distribution.on_rank((4096, 4096), 0)}


def planned(**options):
    """Return a plan of two products, on grids between which sums move."""
    shapes, grid = dict.fromkeys("ABC", (4096, 4096)), {"i": 2, "k": 2, "l": 2}
    return plan_einsums(statements_of("2MM"), shapes, 8, overrides={"D": grid}, **options)


def test_report():
    words = str(planned())
    assert words.splitlines()[0].startswith("plan for 8 ranks, 8 bytes per element")
    assert "D = ij,jk,kl->il of A, B, C" in words
    assert re.search(r"ij,jk->ik +D_ik = A, B +i:2 j:2 k:2 +17.2 GFLOP", words)
    assert re.search(r"ik,kl->il +D = D_ik, C +i:2 k:2 l:2 +17.2 GFLOP", words)
    assert re.search(r"summed over j on 2 ranks each, to 2 x 2 blocks on 2 ranks each +32 MiB", words)
    assert re.search(r"summed over k on 2 ranks each, scattered along i +16 MiB", words)
    assert "bytes per rank   96 MiB: fetched 48 MiB, reduced 48 MiB, moved 0 B" in words
    assert re.search(r"move A +4096 x 4096 +1 x 1 blocks to 4 x 2 blocks +112 MiB", str(planned(placements=ON_ONE)))
    assert re.search(r"communication +10.5 % of the time, at 1 GB/s and 40 GFLOP/s per rank", words)
    assert max(map(len, words.splitlines())) < 130


def test_report_for_programs():
    plan = planned(node_size=4, placements=ON_ONE)
    found = json.loads(json.dumps(to_json(plan)))
    assert [group["grid"] for group in found["groups"]] == [group.parts for group in plan.groups]
    to = found["groups"][0]["reduction"].pop("to")
    assert Placement(**{name: tuple(value) for name, value in to.items()}) == plan.groups[0].sums_at
    assert found["groups"][0]["reduction"] == {"over": "j", "ranks": 2, "scattered": None}
    assert found["groups"][1]["reduction"] == {"over": "k", "ranks": 2, "scattered": "i"}
    assert [(move["tensor"], move["bytes_total"]) for move in found["moves"]] == [
        (move.tensor, move.bytes_total) for move in plan.moves
    ]
    assert found["moves"][0]["shape"] == [4096, 4096]
    assert found["bytes_per_rank"] == plan.bytes_per_rank
    assert found["bytes_between_nodes"] == plan.internode_bytes[0]
    for move, made in zip(found["moves"], plan.moves, strict=True):
        placement = Placement(**{name: tuple(value) for name, value in move["target"].items()})
        assert placement == made.target


# The command line ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_command(run, tmp_path):
    sizes = ("--sizes", "i=512,j=512,k=512,a=24")
    limits = ("--memory-bytes", "4GiB", "--dtype", "float32")
    code, out, err = run("einsum", "ijk,ja,ka->ia", *sizes, "--ranks", 8, *limits)
    assert (code, err) == (0, "")
    assert "i:2 j:2 k:2" in out
    assert "plan for 8 ranks, 4 bytes per element" in out
    nodes = ("--ranks", 4, "--ranks-per-node", 2, "--plot", tmp_path / "p.png")
    code, out, _ = run("einsum", "ij,jk->ik; ik,ka->ia", *sizes, *nodes)
    assert code == 0
    assert "ia = ik,ka->ia of ik, ka" in out
    assert "between nodes" in out
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    short = ("--sizes", "i=8", "--sizes", "j=4", "--ranks", "2")
    assert "of ij, ij.2" in run("einsum", "i j, i j -> i", *short)[1]
    assert json.loads(run("einsum", "ij,ij->i", *short, "--json")[1])["groups"][0]["operands"] == ["ij", "ij.2"]


# The picture ---------------------------------------------------------------------------------------------------------


def test_picture_says_what_moves(tmp_path):
    plan = planned()
    words = [text.get_text() for text in draw(plan).axes[0].texts]
    assert "ij,jk → ik\ni:2 j:2 k:2\n17.2 GFLOP" in words
    assert "16 MiB" in words
    plan.plot(tmp_path / "plan.svg")
    assert (tmp_path / "plan.svg").read_bytes().startswith(b"<?xml")
    with pytest.raises(ValueError, match="needs one of the endings"):
        plan.plot(tmp_path / "plan.gif")


def test_results_are_joined_to_their_boxes_in_the_next_row():
    statements = statements_of("3MM")
    axes = draw(plan_einsums(statements, dict.fromkeys(shapes_of(statements), (8192, 8192)), 8)).axes[0]
    centres: dict[str, list[float]] = {}
    for text in axes.texts:
        centres.setdefault(text.get_text().split("\n")[0], []).append(text.get_position()[0])
    twice = [places for name, places in centres.items() if len(places) == 2 and "→" not in name and "iB" not in name]
    assert twice == [[*line.get_xdata()] for line in axes.lines if line.get_linestyle() == ":"] and len(twice) == 2


@pytest.mark.parametrize("name", PICTURES)
def test_picture_can_be_read_in_700_pixels(name):
    statements = statements_of(name, **PICTURES[name])
    shapes = {tensor: (1024,) * len(shape) for tensor, shape in shapes_of(statements).items()}
    figure = draw(plan_einsums(statements, shapes, 8))
    pixels = 700 / (72 * figure.get_figwidth())
    assert min(text.get_fontsize() for text in figure.axes[0].texts) * pixels >= 8.5
    (left, right), (low, high) = figure.axes[0].get_xlim(), figure.axes[0].get_ylim()
    points = [xy for line in figure.axes[0].lines for xy in line.get_xydata()]
    points += [text.get_position() for text in figure.axes[0].texts if text.get_text()]
    assert all(left <= x <= right and low <= y <= high for x, y in points)


@pytest.mark.parametrize(
    ("groups", "shown"),
    [
        ("aaab", [("a", 1), ("a", 1), ("a", 1), ("b", 1)]),
        ("baaaa", [("b", 1), ("a", 4)]),
        ("abcabc", [("abc", 2)]),
        ("ababababx", [("ab", 4), ("x", 1)]),
        ("ababx", [("a", 1), ("b", 1), ("a", 1), ("b", 1), ("x", 1)]),
    ],
)
def test_repetitions_that_leave_out_three_groups_are_folded(groups, shown, monkeypatch):
    monkeypatch.setattr(plot, "_key", lambda plan, number: plan.groups[number])
    found = plot.folded(SimpleNamespace(groups=groups))
    assert [("".join(groups[number] for number in part), times) for part, times in found] == shown
