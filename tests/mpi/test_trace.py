"""Traces: the events of each rank, the merge of their files, forked ranks, and folders that cannot be written."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from launching import launch

import dace_redist
from dace_redist import Distribution
from dace_redist.report.trace import Trace
from dace_redist.strategies import STRATEGIES

RANKS, SHAPE, CALLS = 3, (300, 200), 2
EVENTS = {"plan": 1, "run": CALLS}  # of each strategy and rank
#: Each strategy, and a transfer that is started, on arrays that are sent from as they lie and written in runs.
PROGRAM = f"""
import numpy as np
from mpi4py import MPI
import dace_redist

comm = MPI.COMM_WORLD
source = dace_redist.Distribution({SHAPE}, (1, comm.size))
target = dace_redist.Distribution({SHAPE}, (comm.size, 1))
whole = np.arange({SHAPE[0] * SHAPE[1]}.0).reshape({SHAPE})
A = source.local(whole, comm.rank).copy()
for strategy in {[*STRATEGIES]}:
    with dace_redist.plan(source, target, "float64", comm=comm, strategy=strategy) as plan:
        for call in range({CALLS}):
            np.testing.assert_array_equal(plan(A), target.local(whole, comm.rank))
        if strategy == "Pack":
            assert plan.start(A).wait().shape == target.local_shape(comm.rank)
comm.Barrier()
if comm.rank == 0:
    print("all equal")
"""


def traced(folder: Path, program: str, ranks: int = RANKS, **environment: str) -> str:
    """Run a program, and return what it prints."""
    variables = {"DACE_REDIST_TRACE": str(folder), **environment}
    code, printed = launch(ranks, [sys.executable, "-m", "mpi4py", "-c", program], 240, environment=variables)
    assert code == 0, printed
    return printed


@pytest.mark.slow
def test_a_trace_holds_what_each_rank_did(tmp_path: Path) -> None:
    folder, merged = tmp_path / "run", tmp_path / "run.json"
    for _ in range(2):  # the second run replaces the files of the first one
        printed = traced(folder, PROGRAM)
        assert "all equal" in printed and "no trace" not in printed, printed
    trace = Trace(folder)
    trace.merge(merged)
    assert Trace(merged).seconds == trace.seconds
    events = json.loads(merged.read_text())
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert [names[rank].split(" on ")[0] for rank in range(RANKS)] == ["rank 0", "rank 1", "rank 2"]
    exchanges = Counter((e["pid"], e["cat"], e["args"]["strategy"]) for e in events if "strategy" in e.get("args", {}))
    expected = Counter(
        {(rank, kind, name): n for rank in range(RANKS) for name in STRATEGIES for kind, n in EVENTS.items()}
    )
    expected.update({(rank, "start", "Pack"): 1 for rank in range(RANKS)})
    assert exchanges == expected
    assert trace.ranks == [0, 1, 2]
    assert {"send", "put", "unpack", "copy", "wait", "planning"} < set(trace.seconds)
    assert all(0 <= seconds < 60 for of_ranks in trace.seconds.values() for seconds in of_ranks.values())
    moved = dace_redist.schedule(Distribution(SHAPE, (1, RANKS)), Distribution(SHAPE, (RANKS, 1)), dtype="float64")
    puts = [e for e in events if e.get("cat") == "put"]
    assert sum(put["args"]["bytes"] for put in puts) == CALLS * moved.bytes_moved()
    assert {(put["pid"], put["args"]["peer"]) for put in puts} == {(a, b) for a in range(3) for b in range(3) if a != b}
    assert_nested(trace)


def assert_nested(trace: Trace) -> None:
    """Check that events lie within their exchange or the making of their plan, and that the ranks run concurrently."""
    outer = [span for span in trace.spans if span.kind in ("plan", "run", "start")]
    for span in trace.spans:
        if span.kind in ("pack", "put", "unpack") and span.thread == 0:
            around = [o for o in outer if o.rank == span.rank and o.start <= span.start and span.end <= o.end + 1e-3]
            assert around or any(p.kind == "progress" and p.start <= span.start for p in trace.spans), span
    starts = [min(span.start for span in trace.spans if span.rank == rank) for rank in trace.ranks]
    assert max(starts) < max(span.end for span in trace.spans)


#: A rank whose child ends as a C program does, with events that the parent recorded and one of its own.
FORKS = """
import ctypes
import os
import numpy as np
import dace_redist
from mpi4py import MPI

d = dace_redist.Distribution((8,), (1,))
with dace_redist.plan(d, d, "float64", comm=MPI.COMM_SELF, strategy="Pack") as plan:
    A = np.arange(8.0)
    plan(A)
    child = os.fork()
    plan(A)
    if child == 0:
        ctypes.CDLL(None).exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.slow
def test_a_forked_child_does_not_write(tmp_path: Path) -> None:
    traced(tmp_path, FORKS, ranks=1)
    assert [span.kind for span in Trace(tmp_path).spans if span.kind in ("plan", "run")] == ["plan", "run", "run"]


#: Out of a node-shared array of 1.2 MiB a rank, in runs of some elements, into an ordinary one. Runs at the edges of
#: blocks are shorter.
OUT_OF_SHARED = """
import numpy as np
from mpi4py import MPI
import dace_redist

comm = MPI.COMM_WORLD
source = dace_redist.Distribution((480, 1024), (comm.size, 1))
target = dace_redist.Distribution((480, 1024), (1, comm.size), block=(None, RUN))
whole = np.arange(480 * 1024.0).reshape(480, 1024)
A = dace_redist.shared_empty(source.local_shape(comm.rank))
A[...] = source.local(whole, comm.rank)
with dace_redist.plan(source, target, "float64", comm=comm, strategy="Hierarchical") as plan:
    out = np.empty(target.local_shape(comm.rank))
    np.testing.assert_array_equal(plan(A, out=out), target.local(whole, comm.rank))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("run", "kind", "other"), [(4, "unpack", "pull"), (256, "pull", "unpack")])
def test_short_runs_are_not_pulled(tmp_path: Path, run: int, kind: str, other: str) -> None:
    traced(tmp_path, OUT_OF_SHARED.replace("RUN", str(run)), DACE_REDIST_STREAM_BYTES=str(4 << 20))
    kinds = {span.kind for span in Trace(tmp_path).spans}
    assert kind in kinds and other not in kinds, kinds
