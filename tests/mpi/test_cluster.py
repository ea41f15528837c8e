"""Emulated nodes: what ranks see of each other, what crosses the links, every strategy between nodes, and the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cluster
import pytest
from launching import processes

from dace_redist.strategies import STRATEGIES

PROGRAM = Path(__file__).resolve().parent.parent / "cluster_program.py"
NBYTES = 8 << 20  # of a message, as in PROGRAM
OVERHEAD = 2 << 20  # bytes per link that start and end of a job may take, with all headers

A_MOMENT = "sleep 0.5; "  # Open MPI 5's launcher now and then waits for ever after daemons whose ranks ended at once

on_nodes = pytest.mark.usefixtures("nodes")


@pytest.fixture(scope="module")
def nodes() -> None:
    reason = cluster.why_not()
    if reason:
        pytest.skip(f"this machine cannot emulate nodes: {reason}")


def job(ranks: int, *arguments: str, **options: Any) -> tuple[dict[int, list[Any]], list[cluster.Link]]:
    """Run PROGRAM on two nodes; return (reports of each rank, links). Fail the test unless the job returns 0."""
    argv = [sys.executable, "-m", "mpi4py", str(PROGRAM), *arguments]
    done = cluster.run(2, ranks, argv, **{"timeout": 100, **options})
    said = defaultdict(list)
    for line in done.output.splitlines():
        if line.startswith("rank "):
            head, _, text = line.partition(": ")
            said[int(head.removeprefix("rank "))].append(json.loads(text))
    if done.returncode != 0 or sorted(said) != list(range(ranks)):
        pytest.fail(f"{arguments} on {ranks} ranks returned {done.returncode}\n{done.output[-8000:]}", pytrace=False)
    return said, done.links


# What a node is -----------------------------------------------------------------------------------------------------


@on_nodes
@pytest.mark.parametrize(
    "ranks, mapping, groups",
    [
        (5, "cyclic", [[0, 2, 4], [1, 3]]),
        pytest.param(4, "block", [[0, 1], [2, 3]], marks=pytest.mark.full),
        pytest.param(3, "block", [[0, 1], [2]], marks=pytest.mark.full),
    ],
)
def test_ranks_see_two_nodes(ranks: int, mapping: str, groups: list[list[int]]) -> None:
    said, _ = job(ranks, "nodes_seen", mapping=mapping)
    seen = {rank: lines[0] for rank, lines in said.items()}
    for node, group in enumerate(groups):
        for rank in group:
            assert seen[rank]["host"] == seen[rank]["processor"] == f"node{node}"
            assert seen[rank]["group"] == seen[rank]["files"] == seen[rank]["window"] == group
    assert len({node["process"] for node in seen.values()}) == 2  # nobody sees processes of the other node


@on_nodes
@pytest.mark.parametrize(("distance", "messages"), [("1", 0), ("2", 2)])
def test_only_messages_between_nodes_use_the_link(distance: str, messages: int) -> None:
    said, links = job(4, "send", distance)
    assert all(said.values())
    assert all(0 <= moved - messages * NBYTES < OVERHEAD for link in links for moved in link), links


# Strategies ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def moved(nodes: None) -> dict[int, list[Any]]:
    """Return the reports of all strategies, from one job, since most of its time is the start."""
    return job(4, "redistribute", *STRATEGIES, "joined", timeout=500)[0]


@pytest.mark.mpi_matrix
@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", [*STRATEGIES, "joined"])
def test_strategy_between_nodes(moved: dict[int, list[Any]], strategy: str) -> None:
    for rank, lines in moved.items():
        checks = [line for line in lines if line[0] == strategy]
        assert len(checks) == 2 * 3 * 4  # shapes, targets, there and back twice
        assert all(right for *_, right in checks), f"rank {rank}: {[check for check in checks if not check[-1]]}"


@on_nodes
@pytest.mark.mpi_matrix
@pytest.mark.parametrize(("ranks", "mapping"), [(4, "block"), pytest.param(7, "cyclic", marks=pytest.mark.full)])
@pytest.mark.parametrize("strategy", ["Hierarchical", "joined"])
def test_replicas_and_sums_cross_once(ranks: int, mapping: str, strategy: str) -> None:
    """What leaves both nodes: the replicated tensor once, the sum of each node once, or both."""
    said, links = job(ranks, "replicate", strategy, mapping=mapping)
    assert all(right for lines in said.values() for right, _ in lines)
    assert sum(nbytes for _, nbytes in said[0]) == (1 + 1 + 2) * NBYTES
    assert 0 <= sum(link.sent for link in links) - 4 * NBYTES < 2 * OVERHEAD, links


# The end of a job ---------------------------------------------------------------------------------------------------


@pytest.fixture
def left_behind(nodes: None) -> Iterator[dict[str, str]]:
    """Environment for a job; fails the test if something that has it, or a network device or mount, is there later."""
    mark = f"DACE_REDIST_TEST={uuid.uuid4().hex}"
    before = devices_and_mounts()
    yield dict([mark.split("=")])
    for _ in range(100):  # the kernel needs its time to end what was killed
        left = processes(mark)
        if not left:
            break
        time.sleep(0.1)
    assert not left
    assert devices_and_mounts() == before


def devices_and_mounts() -> tuple[list[str], list[str]]:
    return sorted(os.listdir("/sys/class/net")), Path("/proc/self/mounts").read_text().splitlines()


@on_nodes
@pytest.mark.parametrize("script, code", [("exit 0", 0), ("exit 3", 3)])
def test_nothing_is_left_of_a_job_that_ended(left_behind: dict[str, str], script: str, code: int) -> None:
    argv = ["sh", "-c", f"sleep 1000 >/dev/null 2>&1 & {A_MOMENT}{script}"]
    assert cluster.run(2, 2, argv, environment=left_behind).returncode == code


@on_nodes
def test_nothing_is_left_when_the_caller_is_killed(left_behind: dict[str, str]) -> None:
    command = [sys.executable, cluster.__file__, "--ranks", "2", "--", "sh", "-c", "echo here; sleep 1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | left_behind) as caller:
        assert caller.stdout is not None
        assert [caller.stdout.readline() for _ in range(2)] == ["here\n"] * 2
        (key, value), *_ = left_behind.items()
        assert len(processes(f"{key}={value}")) > 5  # else the check of what is left would see nothing
        caller.send_signal(signal.SIGKILL)


# The command line and bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nodes_asked, ranks, options, message",
    [
        (0, 2, {}, "number of nodes must be from 1 to 1000, got 0"),
        (3, 2, {}, "3 nodes need at least 3 ranks, got 2"),
        (2, 2, {"rate": "fast"}, "rate must be such as 1gbit, 250mbit or none, got 'fast'"),
    ],
)
def test_bad_arguments(nodes_asked: int, ranks: int, options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cluster.run(nodes_asked, ranks, ["true"], **options)
