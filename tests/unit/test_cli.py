"""The command line: what it prints, and that bad input ends with one clear line."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest

from dace_redist import cli
from dace_redist.report.trace import Trace, draw

SEED = ["explain", "--shape", "48,24,24,72,288", "--from", "2,1,1,3,2", "--to", "1,1,1,1,12", "--dtype", "int32"]
SMALL = ["explain", "--shape", "8,9", "--from", "2,2", "--to", "4,1"]


def test_explain_prints_the_report(run):
    code, out, err = run(*SEED)
    assert (code, err) == (0, "")
    assert "1.96 GiB (91.7 %) in 66 messages" in out
    assert "busiest   rank 1" in out
    assert "stays on its rank" in out


def test_rank_lists_its_messages(run):
    code, out, _ = run(*SEED, "--rank", "3")
    lines = out.splitlines()
    assert code == 0
    assert "holds (24, 24, 24, 24, 144) before, (48, 24, 24, 72, 24) after" in out
    assert sum("sends to" in line for line in lines) == 6
    assert sum("receives from" in line for line in lines) == 6
    assert "run where sent" in out
    assert "keeps" in run(*SMALL, "--rank", "0")[1]
    assert "neither sends" in run("explain", "--shape", "2", "--from", "3", "--to", "3", "--rank", "2")[1]


def test_json(run):
    plain = json.loads(run(*SEED, "--json")[1])
    assert (plain["ranks"], plain["messages"], plain["dtype"]) == (12, 66, "int32")
    assert plain["run_lengths"]["sender"]["median"] == 24
    one = json.loads(run(*SMALL, "--rank", "1", "--json")[1])
    assert one["rank"] == 1
    assert [m["bytes"] for m in one["messages"]] == [64, 80, 64]
    assert one["messages"][0]["blocks"][0]["counts"] == [2, 4]


@pytest.mark.slow
def test_plot(run, tmp_path):
    code, out, _ = run(*SMALL, "--plot", str(tmp_path / "plan.png"))
    assert code == 0
    assert "moved" in out
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def span(start, duration):
    return {"ph": "X", "pid": 0, "tid": 0, "cat": "pack", "name": "pack", "ts": start, "dur": duration, "args": {}}


HEAD = {"ph": "M", "name": "dace_redist"}


def test_trace(run, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps([HEAD, span(5000, 1000), span(11000, 2000)]))
    assert "1 rank, 8 ms from first to last event" in run("trace", path)[1]
    assert "2 ms from first to last event" in run("trace", path, "--begin", "3")[1]
    for words, asked in ((("--begin", "870"), "from 870 ms on"), (("--begin", "2", "--end", "5"), "from 2 to 5 ms")):
        code, out, err = run("trace", path, *words)
        assert (code, out) == (2, "")
        assert f"'{path}' holds no events {asked} after the first one: its events take 8 ms" in err


def rank_file(folder, rank, ranks, loaded, events, cut_off=""):
    """Write the file of a rank with events of 1 us, one every 10 us."""
    common = {"kind": "put", "label": "", "strategy": "", "peer": 1 - rank, "bytes": 8, "thread": 0}
    lines = [{"trace": "dace_redist", "rank": rank, "ranks": ranks, "host": "node", "loaded": loaded}]
    lines += [common | {"start": loaded + 10_000 * i, "end": loaded + 10_000 * i + 1000} for i in range(events)]
    path = folder / f"rank-{rank}.library.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + cut_off)
    os.utime(path, ns=(loaded, loaded + 10_000 * events))


def test_merged_trace(run, tmp_path):
    begin, merged = 10**18, tmp_path / "run.json"
    rank_file(tmp_path, 0, 2, begin + 5000, 3)
    rank_file(tmp_path, 1, 2, begin, 2, cut_off='{"kind": "put", "lab')  # killed while it wrote
    rank_file(tmp_path, 2, 3, begin + 1000, 1)  # of a run of three ranks
    (tmp_path / "rank-3.notes.jsonl").write_text("other\n")
    code, out, _ = run("trace", tmp_path, "--merge", merged)
    assert code == 0 and "2 ranks, 26 us from first to last event" in out
    events = [event for event in json.loads(merged.read_text()) if event["ph"] == "X"]
    assert [(event["pid"], event["ts"]) for event in events] == [(0, 5.0), (0, 15.0), (0, 25.0), (1, 0.0), (1, 10.0)]
    assert events[0]["args"] == {"peer": 1, "bytes": 8} and events[0]["dur"] == 1.0
    assert run("trace", merged)[1] == out.replace(tmp_path.name, "run.json")
    (axes,) = (figure := draw(Trace(merged))).axes
    assert figure.get_figheight() > 2 * 0.3  # inches that a row needs
    bars = [path.get_extents() for some in axes.collections for path in some.get_paths()]
    assert sorted((round(1e3 * bar.x0), round(bar.y0 + 0.35)) for bar in bars) == [
        (0, 1),
        (5, 0),
        (10, 1),
        (15, 0),
        (25, 0),
    ]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1"]
    rank_file(tmp_path, 0, 2, begin + 10**9, 1)  # a later run in which rank 1 recorded nothing
    assert "1 rank, 1 us" in run("trace", tmp_path)[1]
    code, _, err = run("trace", merged, "--merge", "/dev/full")
    assert code == 1 and "merged trace /dev/full cannot be written: [Errno 28]" in err
    (tmp_path / "rank-4.library.jsonl").write_text('{"trace": "dace_redist", "rank": 4}\n')
    code, _, err = run("trace", tmp_path)
    assert code == 2 and "holds JSON that dace-redist did not write, or is damaged; run the program" in err


@pytest.mark.parametrize(
    "content, said",
    [
        (None, "there is no folder or file '{}'"),
        ([HEAD], "'{}' holds no events"),
        *(
            (events, "'{}' is JSON, but not a trace that dace-redist wrote, or is damaged")
            for events in ([{"name": "other"}], [HEAD, 3], [HEAD, {"ph": "X"}], [HEAD, span(float("nan"), 1)])
        ),
    ],
)
def test_files_that_are_no_trace(run, tmp_path, content, said):
    path = tmp_path / "run.json"
    if content is not None:
        path.write_text(json.dumps(content))
    code, out, err = run("trace", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said.replace("{}", str(path)) in err
    assert "holds no" in said or "run the program with DACE_REDIST_TRACE=FOLDER" in err


def test_interrupts(run, monkeypatch):
    def interrupted(given):
        raise KeyboardInterrupt

    monkeypatch.setattr("dace_redist.cli.described_schedule", interrupted)
    code, out, err = run(*SMALL)
    assert (code, out, err.strip()) == (130, "", "")


def test_help_version_and_commands(run):
    for words in (["--help"], [], ["-h"]):
        code, out, _ = run(*words)
        assert code == 0
        assert "explain" in out and "tune" in out
    assert run("--version")[1].startswith("dace-redist ")
    assert "--from-block" in run("explain", "--help")[1]


MATRIX, COUNT = ("ij,jk->ik", "--sizes", "i=4,j=4,k=4"), ("--ranks", "2")
MOVE = ("--shape", "8,9", "--from", "2,2", "--to", "4,1")
EINSUM_REFUSED = [
    (("ij,jk->ik", "--sizes", "i=4,j=4", *COUNT), "--sizes gives no size for the index 'k'"),
    (("ij,jk->ik", "--sizes", "i:4", *COUNT), "'i:4' is not the size of an index"),
    (("ij,jk->iz", "--sizes", "i=4,j=4,k=4", *COUNT), "index 'z', which no operand has"),
    ((*MATRIX, "--ranks", "0"), "0 is not in the range"),
    ((*MATRIX, *COUNT, "--memory-bytes", "4XB"), "an amount such as 4GiB, 500MB or 1000000, got '4XB'"),
    ((*MATRIX, *COUNT, "--memory-bytes", "10"), "memory_bytes is 10"),
    (("i,i->", "--sizes", "i=4,i=5", *COUNT), "has two sizes, 4 and 5"),
    (("i,i->", "--sizes", "i=4,q=5", *COUNT), "gives a size for 'q', which is no index of 'i,i->'"),
]
NO_RANK = "--rank: goes with none of --memory-bytes and --ranks-per-node"


@pytest.mark.parametrize(
    "words, said",
    [
        *((["einsum", *words], said) for words, said in EINSUM_REFUSED),
        (["simulate", *MOVE], "No such command 'simulate'"),
        (["explain", *MOVE, "--profile"], "No such option"),
        *((["--rank", "1", *more], NO_RANK) for more in (["--memory-bytes", "9"], ["--ranks-per-node", "2"])),
        (["--shape", "8,x"], "'x' in '8,x' is not a whole number"),
        (["--shape", "-1,9"], "shape[0] must be at least 0, got -1"),
        (["--shape", "8"], "more grid axes (2) than dimensions (1); say with --from-dims"),
        (["--from-block", "3"], "block needs one entry per entry of shape (2), got 1"),
        (["--from-block", "0,-"], "--from-block: block[0] must be at least 1 element, got 0"),
        (["--to-dims", "0,7"], "--to-dims: dims[1] is 7, but the process grid has axes 0 to 1 (-: not split)"),
        (["--dtype", "flat64"], "unknown dtype 'flat64'"),
        (["--dtype", "object"], "no fixed size"),
        (["--rank", "4"], "--rank: a rank must be between 0 and 3, got 4"),
        (["--to-dtype", "int8"], "cannot convert elements of float64 to int8"),
        (["--op", "max", "--beta", "1"], "beta requires op='sum'"),
        (["--tensors", "0"], "0 is not in the range"),
        (["--rank", "one"], "'one' is not a valid integer"),
        (["--memory-bytes", "16"], "memory_bytes is 16, but strategy Hierarchical needs at least"),
        (["--plot", "plan.gif"], "'plan.gif' needs one of the endings .png, .svg, .pdf"),
        (["--plot", "no/such/plan.png"], "the folder 'no/such' for 'plan.png' does not exist"),
        (["--frm", "2,2"], "No such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_exit_code_2(run, words, said):
    code, out, err = run(*([] if words[0] in (*cli.cli.commands, "simulate") else SMALL), *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("dace-redist: ")
    assert err.count("\n") == 1


def test_lines_fit_and_end_with_a_verdict(run):
    for words in ([], *([command] for command in cli.cli.commands)):
        out = run(*words, "--help")[1]
        assert max(map(len, out.splitlines())) <= 105 and (words or out.count("...") == 1)
    assert run(*SEED)[1].splitlines()[-1].startswith("91.7 % of the data moves; the default strategy, Hierarchical, ")
    code, out, err = run("config")
    assert (code, out) == (2, "")
    assert "name --cflags, --libs, --fortran, --cmakedir or --preload; dace-redist info prints" in err


@pytest.mark.parametrize(("output", "code", "said"), [(">&-", 0, ""), (">/dev/full", 1, "No space left on device")])
def test_output_that_cannot_be_written(output, code, said):
    command = shlex.join([sys.executable, "-m", "dace_redist", *SEED])
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ended = subprocess.run(f"{command} {output}", shell=True, capture_output=True, text=True, env=buffered)
    assert ended.returncode == code and said in ended.stderr and ended.stderr.count("\n") == bool(said), ended.stderr


def test_neither_dace_nor_mpi_nor_matplotlib_is_loaded():
    program = (
        "import sys; from dace_redist import cli\n"
        "try: cli.main(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code\n"
        "print([name for name in ('dace', 'mpi4py', 'matplotlib', 'sympy') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", program, *SEED], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"
    assert "66 messages" in out


def test_redistribute_loads_nothing_that_builds_or_measures():
    program = (
        "import sys, numpy; known = set(sys.modules)\n"  # NumPy 2.2 loads subprocess
        "import mpi4py; mpi4py.rc.initialize = False\n"
        "import dace_redist.native.interface, dace_redist.redistribution.problem\n"
        "slow = ('subprocess', 'tempfile', 'json', 'dace_redist.timing.measure')\n"
        "print([name for name in slow if name in set(sys.modules) - known])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out == "[]\n"


def test_reading_and_writing_load_mpi_when_they_are_called():  # modules of clusters are checked outside of jobs
    program = "import sys; from dace_redist import einsum, load, save, schedule; print('mpi4py.MPI' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"
