"""Output of a plan: the report, the command line, the picture."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from dace_redist import cli
from dace_redist.einsum import Einsum, Statement, plan_einsums
from dace_redist.einsum.command import amount_of_memory
from dace_redist.einsum.placement import Placement
from dace_redist.einsum.plot import draw
from dace_redist.einsum.report import format_flops

E = Einsum.parse
LOOP = {"repeats": 10, "loops": ("sweep",)}
PROGRAMS = {
    "2MM": [("ij,jk,kl->il", "ABC", "D", {})],
    "3MM": [("ij,jk,kl,lm->im", "ABCD", "E", {})],
    "MTTKRP": [("ijklm,ja,ka,la,ma->ia", "XBCDE", "A", {})],
    "CP": [
        ("ijk,ja,ka->ia", "XBC", "A", LOOP),
        ("ijk,ia,ka->ja", "XAC", "B", LOOP),
        ("ijk,ia,ja->ka", "XAB", "C", LOOP),
    ],
    "shared": [("ij,jk->ik", "AB", "C", {}), ("ij,jl->il", "AD", "E", {}), ("ik,il->kl", "CE", "F", {})],
    "scalar": [("ij,ij->", "AB", "n", {})],
    "systems": [("ij->ji", "G", "H", {"solves": True}), ("ji,ik->jk", "HB", "X", {"solves": True})],
}


def planned(name, ranks=8, size=64, **options):
    statements = [Statement(E(text), tuple(names), result, "", **more) for text, names, result, more in PROGRAMS[name]]
    shapes = {}
    for s in statements:
        for indices, tensor in zip(s.einsum.operands, s.operands, strict=True):
            shapes.setdefault(tensor, (size,) * len(indices))
    return plan_einsums(statements, shapes, ranks, **options)


def test_report():
    words = str(planned("2MM", size=4096, overrides={"D": {"i": 2, "k": 2, "l": 2}}))
    assert words.splitlines()[0].startswith("plan for 8 ranks, 8 bytes per element")
    assert "D = ij,jk,kl->il of A, B, C" in words
    assert re.search(r"ij,jk->ik +D_ik = A, B +i:2 j:2 k:2 +17.2 GFLOP", words)
    assert re.search(r"ik,kl->il +D = D_ik, C +i:2 k:2 l:2 +17.2 GFLOP", words)
    assert re.search(r"move D_ik +4096 x 4096 +4 x 2 blocks to 2 x 2 blocks on 2 ranks each +16 MiB", words)
    assert re.search(r"summed over k on 2 ranks each, scattered along i +16 MiB", words)
    assert "bytes per rank   96 MiB: fetched 48 MiB, reduced 32 MiB, moved 16 MiB" in words
    assert re.search(r"communication +2.8 % of the time, at 1 GB/s and 10 GFLOP/s per rank", words)
    assert max(map(len, words.splitlines())) < 130


def test_report_for_programs():
    plan = planned("2MM", size=4096, overrides={"D": {"i": 2, "k": 2, "l": 2}}, node_size=4)
    found = json.loads(json.dumps(plan.to_json()))
    assert [group["grid"] for group in found["groups"]] == [group.parts for group in plan.groups]
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


def test_report_for_programs_has_all_kernels():
    for name in PROGRAMS:
        plan = planned(name)
        found = json.loads(json.dumps(plan.to_json()))
        assert [group["result"] for group in found["groups"]] == [group.result for group in plan.groups]


def test_report_of_loops_and_of_unused_ranks():
    assert "A = ijk,ja,ka->ia of X, B, C, 10 times" in str(planned("CP"))
    small = plan_einsums([Statement(E("i,i->i"), ("a", "b"), "c", "v.py:1")], {"a": (3,), "b": (3,)}, 8)
    assert "unused           5 ranks: 3-7" in str(small)
    assert "(v.py:1)" in str(small)
    assert "to the first of them" in str(planned("scalar"))
    assert "one rank" in str(planned("2MM", ranks=1))


def test_report_of_linear_systems():
    words = str(planned("systems", size=100))
    assert "H = invert ij->ji of G" in words and "X = solve ji,ik->jk of H, B" in words
    assert re.search(r"invert ij->ji +H = G +whole on 8 ranks +3 MFLOP", words)
    assert re.search(r"solve ji,ik->jk +X = H, B +k:8 +1.26 MFLOP", words)


def test_operations_have_prefixes():
    assert [format_flops(n) for n in (0, 999, 1500, 2.5e12)] == ["0 FLOP", "999 FLOP", "1.5 kFLOP", "2.5 TFLOP"]


# The command line ----------------------------------------------------------------------------------------------------


@pytest.fixture
def run(capsys):
    def call(*words):
        with pytest.raises(SystemExit) as end:
            cli.main(["einsum", *words])
        return end.value.code or 0, *capsys.readouterr()

    return call


@pytest.mark.slow
def test_command(run, tmp_path):
    sizes = ("--sizes", "i=512,j=512,k=512,a=24")
    code, out, err = run("ijk,ja,ka->ia", *sizes, "--ranks", "8", "--memory-bytes", "4GiB", "--dtype", "float32")
    assert (code, err) == (0, "")
    assert "i:2 j:2 k:2" in out
    assert "plan for 8 ranks, 4 bytes per element" in out
    code, out, _ = run(
        "ij,jk->ik; ik,ka->ia", *sizes, "--ranks", "4", "--ranks-per-node", "2", "--plot", str(tmp_path / "p.png")
    )
    assert code == 0
    assert "ia = ik,ka->ia of ik, ka" in out
    assert "between nodes" in out
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    short = ("--sizes", "i=8", "--sizes", "j=4", "--ranks", "2")
    assert "of ij, ij.2" in run("i j, i j -> i", *short)[1]
    assert json.loads(run("ij,ij->i", *short, "--json")[1])["groups"][0]["operands"] == ["ij", "ij.2"]


@pytest.mark.parametrize(
    "words, message",
    [
        (("ij,jk->ik", "--sizes", "i=4,j=4", "--ranks", "2"), "--sizes gives no size for the index 'k'"),
        (("ij,jk->ik", "--sizes", "i:4", "--ranks", "2"), "'i:4' is not the size of an index"),
        (("ij,jk->iz", "--sizes", "i=4,j=4,k=4", "--ranks", "2"), "index 'z', which no operand has"),
        (("ij,jk->ik", "--sizes", "i=4,j=4,k=4", "--ranks", "0"), "0 is not in the range"),
        (
            ("ij,jk->ik", "--sizes", "i=4,j=4,k=4", "--ranks", "2", "--memory-bytes", "4XB"),
            "'4XB' is not an amount of",
        ),
        (("ij,jk->ik", "--sizes", "i=4,j=4,k=4", "--ranks", "2", "--memory-bytes", "10"), "memory_bytes is 10"),
        (("ij,jk->ik", "--sizes", "i=4,j=4,k=4", "--ranks", "2", "--dtype", "nix"), "unknown dtype"),
        (
            ("i,i->", "--sizes", "i=4", "--ranks", "2", "--dtype", "M8"),
            "type datetime64 cannot be multiplied; expected one",
        ),
        (("i,i->", "--sizes", "i=4", "--ranks", "2", "--dtype", "S3"), "cannot be multiplied"),
        (("i,i->", "--sizes", "i=4", "--ranks", "2", "--dtype", ">f8"), "cannot be multiplied"),
        ((" ; ", "--sizes", "i=4", "--ranks", "2"), "there is no einsum"),
        (("i,i->", "--sizes", "i=4,i=5", "--ranks", "2"), "has two sizes, 4 and 5"),
        (("i,i->", "--sizes", "i=4", "--sizes", "i=4", "--ranks", "2"), "has two sizes, 4 and 4"),
        (("i,i->", "--sizes", "i=4,q=5", "--ranks", "2"), "gives a size for 'q', which is no index of 'i,i->'"),
        (("i,i->", "--sizes", "i=4 j=5", "--ranks", "2"), "commas stand between sizes"),
        (("ij jk->ik", "--sizes", "i=4,j=4,k=4", "--ranks", "2"), "is a comma missing between ij and jk?"),
        (("é,é->", "--sizes", "é=4", "--ranks", "2"), "is not an index"),
    ],
)
def test_bad_input_ends_with_one_line(run, words, message):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "word, count",
    [("1000", 1000), ("4GiB", 4 << 30), ("4G", 4 << 30), ("1.5kB", 1500), ("9007199254740993", 2**53 + 1)],
)
def test_amounts_of_memory(word, count):
    assert amount_of_memory(word) == count


@pytest.mark.slow
def test_neither_dace_nor_mpi_is_loaded():
    code = (
        "import sys; from dace_redist import cli, einsum; einsum.plan_einsums; "
        "print([m for m in ('dace', 'mpi4py', 'matplotlib') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
    code = "import sys; from dace_redist import cli; print([m for m in ('scipy', 'opt_einsum') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


# The picture ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PROGRAMS, "many", "repeated"])
def test_texts_stay_inside_the_picture_and_apart(name):
    figure = draw(LONG[name]() if name in LONG else planned(name, size=24))
    figure.draw_without_rendering()
    frame = figure.bbox.padded(1)
    boxes = [text.get_window_extent() for text in figure.axes[0].texts if text.get_text()]
    assert all(frame.contains(*box.p0) and frame.contains(*box.p1) for box in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def many_products():
    """A chain of different products, which takes several rows."""
    names = [f"T{number}" for number in range(16)]
    statements = [
        Statement(E("ij,jk->ik"), (left, f"A{number}"), right)
        for number, (left, right) in enumerate(zip(names, names[1:], strict=False))
    ]
    sizes = [(24, 24 + number) for number in range(17)]
    shapes = {f"A{number}": (24 + number, 25 + number) for number in range(15)} | {"T0": sizes[0]}
    return plan_einsums(statements, shapes, 4)


def repeated_products():
    """Two steps, ten times, between two others."""
    statements = [Statement(E("ij,jk->ik"), ("A", "B"), "X0")]
    for number in range(10):
        statements.append(Statement(E("ij,jk->ik"), (f"X{number}", "B"), f"Y{number}"))
        statements.append(Statement(E("ij,kj->ik"), (f"Y{number}", "B"), f"X{number + 1}"))
    statements.append(Statement(E("ij->j"), ("X10",), "s"))
    return plan_einsums(statements, {"A": (24, 24), "B": (24, 24)}, 4)


LONG = {"many": many_products, "repeated": repeated_products}


def test_long_pictures_fold_repeated_steps_and_have_several_rows():
    repeated, many = draw(repeated_products()), draw(many_products())
    words = [text.get_text() for text in repeated.axes[0].texts]
    assert [word for word in words if "times" in word] == ["10 times, the last shown"]
    assert sum("→" in word for word in words) == 4
    assert any(word.startswith("X10\n") for word in words) and not any(word.startswith("X5\n") for word in words)
    assert sum("→" in text.get_text() for text in many.axes[0].texts) == 15  # none is left out
    assert max(*many.get_size_inches(), *repeated.get_size_inches()) < 22


def test_picture_says_what_moves(tmp_path):
    plan = planned("2MM", size=4096, overrides={"D": {"i": 2, "k": 2, "l": 2}})
    words = [text.get_text() for text in draw(plan).axes[0].texts]
    assert "ij,jk → ik\ni:2 j:2 k:2\n17.2 GFLOP" in words
    assert "16 MiB" in words
    plan.plot(tmp_path / "plan.svg")
    assert (tmp_path / "plan.svg").read_bytes().startswith(b"<?xml")
    with pytest.raises(ValueError, match="needs one of the endings"):
        plan.plot(tmp_path / "plan.gif")
