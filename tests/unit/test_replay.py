"""Traces for simulators of messages: SMPI's, which SimGrid replays where it is installed, and GOAL text."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter

import pytest

from dace_redist import Distribution, schedule
from dace_redist.einsum import Einsum, Statement, plan_einsums

#: Actions of SMPI's replay: https://simgrid.org/doc/latest/app_smpi.html.
ACTION = re.compile(
    r"(?P<rank>\d+) (init|finalize|waitall|compute (?P<flops>\d+)"
    r"|(?P<way>isend|irecv) (?P<peer>\d+) 0 (?P<count>\d+) (?P<type>[46]))"
)
#: Statements of GOAL: Hoefler, Siebert, Lumsdaine, Group Operation Assembly Language, ICPP 2009.
STATEMENT = re.compile(
    r"(?P<label>l\d+): (calc (?P<work>\d+)|(?P<way>send|recv) (?P<bytes>\d+)b (to|from) (?P<peer>\d+) tag 0)"
    r"|(?P<later>l\d+) requires (?P<earlier>l\d+)"
)
ROWS, COLUMNS = Distribution((512, 512), (16,)), Distribution((512, 512), (1, 16))
MOVED = schedule(ROWS, COLUMNS)


def program():
    chain = [
        Statement(Einsum.parse(text), names, result)
        for text, names, result in (("ij,jk->ik", ("A", "B"), "C"), ("ik,kl->il", ("C", "D"), "E"))
    ]
    return plan_einsums(chain, dict.fromkeys(("A", "B", "D"), (256, 256)), 8)


def summed():
    return schedule(Distribution((60, 4), (3, 4), dims=(0, None)), Distribution((60, 4), (12,)), "float32", op="sum")


def huge():
    return schedule(*(Distribution((1 << 32,), (1,), ranks=[rank]) for rank in (1, 0)))


#: What is written, and the bytes that its ranks send, without barriers.
WRITTEN = {
    "redistribution": (lambda: MOVED, 512 * 512 * 8 * 15 / 16),
    "reduction": (summed, summed().bytes_moved()),
    "program": (program, 3 * 8 * 64 * 1024),
    "message of 32 GiB": (huge, 32 << 30),
}


@pytest.mark.parametrize("what", WRITTEN)
def test_traces_of_smpi(tmp_path, what):
    """Each line is an action, what is sent is received, and ranks wait for all before they go on."""
    make, nbytes = WRITTEN[what]
    (written := make()).to_smpi(tmp_path / "new" / "folder")
    names = (tmp_path / "new" / "folder" / "traces").read_text().split()
    messages = {"isend": Counter(), "irecv": Counter()}
    for rank, name in enumerate(names):
        lines = (tmp_path / "new" / "folder" / name).read_text().splitlines()
        actions = [ACTION.fullmatch(line) for line in lines]
        assert all(actions) and {int(action["rank"]) for action in actions} == {rank}
        assert [lines[0], lines[-1]] == [f"{rank} init", f"{rank} finalize"]
        for action, after in zip(actions, actions[1:], strict=False):
            if action["way"]:
                pair = (rank, int(action["peer"])) if action["way"] == "isend" else (int(action["peer"]), rank)
                messages[action["way"]][(*pair, int(action["count"]) * {"6": 1, "4": 8}[action["type"]])] += 1
                assert after["way"] or after[0].endswith("waitall")
    assert messages["isend"] == messages["irecv"] and len(names) == written.ranks
    assert sum(count * times for (_, _, count), times in messages["isend"].items() if count > 1) == nbytes
    barriers = sum(times for (_, _, count), times in messages["isend"].items() if count == 1) / 8 / 3
    assert barriers == (3 if what == "program" else 0)  # two sums, and two steps of computing


@pytest.mark.parametrize("what", WRITTEN)
def test_goal(tmp_path, what):
    """Labels are there before they are required, and what is sent is received."""
    make, nbytes = WRITTEN[what]
    (written := make()).to_goal(tmp_path / "text.goal")
    first, *blocks = re.split(r"\nrank ", (tmp_path / "text.goal").read_text())
    assert first == f"num_ranks {written.ranks}\n" and len(blocks) == written.ranks
    messages, work = {"send": Counter(), "recv": Counter()}, set()
    for rank, block in enumerate(blocks):
        head, *lines, end = block.strip().splitlines()
        assert (head, end) == (f"{rank} {{", "}")
        labels = set()
        statements = [STATEMENT.fullmatch(line) for line in lines]
        for found in statements:
            if found["label"]:
                assert found["label"] not in labels
                labels.add(found["label"])
            else:
                assert {found["later"], found["earlier"]} <= labels
            if found["way"]:
                pair = (rank, int(found["peer"])) if found["way"] == "send" else (int(found["peer"]), rank)
                messages[found["way"]][(*pair, int(found["bytes"]))] += 1
        work.add(sum(int(found["work"] or 0) for found in statements))
    assert messages["send"] == messages["recv"]
    assert sum(count * times for (_, _, count), times in messages["send"].items() if count > 1) == nbytes
    groups = written.groups if what == "program" else []
    assert work == {sum(round(group.flops / 10) for group in groups)}  # nanoseconds at 10 GFLOP/s


def test_files_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"folder of traces .*file cannot be written: .*; name one that can be written"):
        MOVED.to_smpi(tmp_path / "file")
    with pytest.raises(OSError, match=r"GOAL text .* cannot be written: .*; name a file in a folder that exists"):
        MOVED.to_goal(tmp_path / "none" / "text.goal")


@pytest.mark.skipif(shutil.which("smpirun") is None, reason="needs SimGrid: apt-get install simgrid libsimgrid-dev")
def test_replay_takes_as_long_as_links_and_cores_do(tmp_path):
    """A rank per node sends 15/16 of its rows at 1 GB/s; a program computes at 1 GFLOP/s and exchanges at 100 GB/s."""
    platform = (
        '<?xml version="1.0"?>\n<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n<platform version="4.1">'
        '<cluster id="c" prefix="n" suffix="" radical="0-15" speed="1Gf" bw="{}Bps" lat="10ns"/></platform>\n'
    )
    factors = ("smpi/bw-factor:0:1", "smpi/lat-factor:0:1", "network/crosstraffic:0", "network/TCP-gamma:0")
    options = ["-no-privatize", *(f"--cfg={factor}" for factor in factors), "--log=smpi_replay.thresh:info"]
    (tmp_path / "hosts").write_text("".join(f"n{rank}\n" for rank in range(16)))
    for written, rate, seconds in (
        (MOVED, 1e9, MOVED.bytes_moved() / 16 / 1e9),
        (plan := program(), 1e11, plan.flops / 1e9),
    ):
        (tmp_path / "platform.xml").write_text(platform.format(rate))
        written.to_smpi(tmp_path)
        command = f"smpirun -np {written.ranks} -platform platform.xml -hostfile hosts -replay traces".split()
        done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, timeout=100)
        found = re.search(r"Simulation time ([0-9.]+)", done.stdout + done.stderr)
        assert done.returncode == 0 and found, done.stderr
        assert float(found[1]) == pytest.approx(seconds, rel=0.05)
