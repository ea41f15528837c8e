"""Exports for message simulators: traces for SMPI and GOAL text. Replayed if SimGrid is installed."""

from __future__ import annotations

import re
import shutil
from collections import Counter

import pytest

from dace_redist import Distribution, schedule
from dace_redist.einsum import Einsum, Statement, plan_einsums
from dace_redist.simulation import exports
from dace_redist.simulation.program import simulate_plan
from dace_redist.simulation.redistribution import simulate_schedule

#: Actions of SMPI's replay: https://simgrid.org/doc/latest/app_exports.html.
ACTION = re.compile(
    r"(?P<rank>\d+) (init|finalize|waitall|compute \d+"
    r"|(?P<way>isend|irecv) (?P<peer>\d+) 0 (?P<count>\d+) [46]|wait (?P<sender>\d+) (?P<receiver>\d+) 0)"
)
#: Statements of GOAL: Hoefler, Siebert, Lumsdaine, Group Operation Assembly Language, ICPP 2009.
STATEMENT = re.compile(
    r"(?P<label>l\d+): (calc \d+|(?P<way>send|recv) (?P<bytes>\d+)b (to|from) (?P<peer>\d+) tag 0)"
    r"|(?P<later>l\d+) requires (?P<earlier>l\d+)"
)


def redistribution(machine: str = "fat-tree", **options):
    moved = schedule(Distribution((512, 512), (16,)), Distribution((512, 512), (1, 16)))
    return simulate_schedule(moved, machine, **{"ranks_per_node": 2, "strategies": ["Pack"], **options})


def program():
    chain = [
        Statement(Einsum.parse(text), names, result)
        for text, names, result in (("ij,jk->ik", ("A", "B"), "C"), ("ik,kl->il", ("C", "D"), "E"))
    ]
    plan = plan_einsums(chain, dict.fromkeys(("A", "B", "D"), (256, 256)), 8)
    return simulate_plan(plan, "torus", ranks_per_node=1)


SIMULATED = {"redistribution": redistribution, "program": program}


@pytest.mark.parametrize("what", SIMULATED)
def test_traces(tmp_path, what):
    """Each line is an action; what is sent is received; what is waited for was received before; bytes are right."""
    simulated = SIMULATED[what]()
    exports.write_traces(simulated.operations(), simulated.job, tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert (folder / "hosts").read_text().split() == [f"h{node}" for node in simulated.job.node_of]
    messages = {"isend": Counter(), "irecv": Counter()}
    for rank, name in enumerate((folder / "traces").read_text().split()):
        lines = (folder / name).read_text().splitlines()
        actions = [ACTION.fullmatch(line) for line in lines]
        assert all(actions) and {int(action["rank"]) for action in actions} == {rank}
        assert [lines[0], *lines[-2:]] == [f"{rank} init", f"{rank} waitall", f"{rank} finalize"]
        posted = Counter()
        for action in actions:
            if action["way"]:
                pair = (rank, int(action["peer"])) if action["way"] == "isend" else (int(action["peer"]), rank)
                messages[action["way"]][(*pair, int(action["count"]))] += 1
                posted[pair[0]] += action["way"] == "irecv"
            elif action["sender"]:
                assert int(action["receiver"]) == rank
                posted[int(action["sender"])] -= 1
        assert set(posted.values()) <= {0}
    assert messages["isend"] == messages["irecv"]
    if what == "redistribution":
        node_of = simulated.job.node_of
        between = sum(count * n for (a, b, count), n in messages["isend"].items() if node_of[a] != node_of[b])
        assert between == 512 * 512 * 8 * 14 / 16
        assert {count for (a, b, count) in messages["isend"] if node_of[a] == node_of[b]} == {1}


@pytest.mark.parametrize("what", SIMULATED)
def test_goal(tmp_path, what):
    """Labels are there before they are required; what is sent is received; work is the same as in the traces."""
    simulated = SIMULATED[what]()
    exports.write_goal(simulated.operations(), simulated.job.ranks, tmp_path / "text.goal")
    first, *blocks = re.split(r"\nrank ", (tmp_path / "text.goal").read_text())
    assert first == f"num_ranks {simulated.job.ranks}\n"
    messages = {"send": Counter(), "recv": Counter()}
    ranks = []
    for block in blocks:
        head, *lines, end = block.strip().splitlines()
        assert end == "}"
        ranks.append(rank := int(head.removesuffix(" {")))
        labels = set()
        for line in lines:
            found = STATEMENT.fullmatch(line)
            assert found, line
            if found["label"]:
                assert found["label"] not in labels
                labels.add(found["label"])
            else:
                assert {found["later"], found["earlier"]} <= labels
            if found["way"]:
                pair = (rank, int(found["peer"])) if found["way"] == "send" else (int(found["peer"]), rank)
                messages[found["way"]][(*pair, int(found["bytes"]))] += 1
    assert sorted(ranks) == list(range(simulated.job.ranks))
    assert messages["send"] == messages["recv"]


@pytest.mark.skipif(shutil.which("smpirun") is None, reason="SimGrid is not installed: apt-get install simgrid")
@pytest.mark.parametrize("machine", ["fat-tree", "piz-daint", "torus"])
def test_replayed_time_is_near_the_predicted_one(tmp_path, machine):
    simulated = redistribution(machine, ranks_per_node=4)
    exports.write_traces(simulated.operations(), simulated.job, tmp_path)
    replayed = exports.replay(tmp_path, 16, timeout=100)
    assert 0.5 < replayed / simulated.seconds < 1.5


@pytest.mark.skipif(shutil.which("smpirun") is None, reason="SimGrid is not installed: apt-get install simgrid")
def test_work_is_replayed_and_errors_are_shown(tmp_path):
    simulated = program()
    exports.write_traces(simulated.operations(), simulated.job, tmp_path)
    work = sum(step.work for step in simulated.steps)
    assert work <= exports.replay(tmp_path, 8, timeout=100) < 1.5 * simulated.seconds
    (tmp_path / "hosts").write_text("nowhere\n")
    with pytest.raises(RuntimeError, match="smpirun could not replay"):
        exports.replay(tmp_path, 8, timeout=100)
