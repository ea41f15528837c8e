"""``tune`` on several ranks: for arrays, GPUs, SDFGs and at the command line; errors; and ``bench``."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import numpy as np
import pytest
from device_arrays import use_device
from launching import launch
from results import refused

import dace_redist
from dace_redist import Distribution, schedule
from dace_redist.strategies import DEFAULT_STRATEGY
from dace_redist.timing.comparison import Comparison
from dace_redist.timing.memories import GPU_MEMORIES

SHAPE = (24, 20)
QUICK: dict[str, Any] = {"limit_seconds": np.float32(0.5), "progress": False}


@pytest.fixture
def certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the fastest candidate however busy the machine is."""
    monkeypatch.setattr(Comparison, "_drifted", lambda self: [])


def pair(ranks: int) -> tuple[Distribution, Distribution]:
    return Distribution(SHAPE, [ranks]), Distribution(SHAPE, [1, ranks])


@pytest.mark.mpi(ranks=[3], timeout=400)
@pytest.mark.parametrize("how", [{}, {"target_dtype": "float64", "alpha": 2}], ids=["moved", "computed"])
@pytest.mark.usefixtures("certain")
def test_the_result_of_tune_is_passed_to_redistribute(comm, how: dict[str, Any]):
    from dace_redist.redistribution.cache import plans_in_use

    source, target = pair(comm.size)
    moved = schedule(source, target, "float32", **how)
    found = dace_redist.tune(moved, comm=comm, strategies=["Pipelined", "Pack"], **QUICK)
    assert set(comm.allgather(str(found))) == {str(found)}
    assert {*found.phases[0]} == {"Pack", "Pipelined"}
    whole = np.arange(480, dtype="float32").reshape(SHAPE)
    out = dace_redist.redistribute(source.local(whole, comm.rank), source, target, comm=comm, **how, **found.best)
    assert np.array_equal(out, how.get("alpha", 1) * target.local(whole, comm.rank))
    strategy, options = plans_in_use(comm)[-1]
    assert {"strategy": strategy, **options} == found.best


@pytest.mark.dace
@pytest.mark.mpi(ranks=[2], timeout=240)
@pytest.mark.usefixtures("certain")
def test_nodes_of_an_sdfg_get_what_is_fastest(comm):
    import dace
    from sdfgs import add_move, with_arrays

    from dace_redist.library_nodes import Redistribute

    rows = dace.symbol("rows", dace.int64)
    there = [Distribution((2 * rows, 6), [2]), Distribution((2 * rows, 6), [1, 2])]
    sdfg = with_arrays("three_moves", dtype=dace.float32, A=(rows, 6), B=(2 * rows, 3))
    state = sdfg.add_state()
    nodes = [add_move(state, Redistribute("there", *there), "A", "B")]
    nodes.append(add_move(sdfg.add_state_after(state), Redistribute("back", *reversed(there)), "B", "A"))
    again = sdfg.add_state_after(sdfg.add_state_after(state))
    nodes.append(add_move(again, Redistribute("there_again", *there), "A", "B"))

    symbols = {"rows": 5}
    with pytest.raises(ValueError, match='Redistribute "there": rows has no value: give symbols='):
        dace_redist.tune(sdfg, comm=comm, **QUICK)
    for where, strategy in (("there*", "Pack"), ("back", "Pipelined")):
        dace_redist.tune(sdfg, comm=comm, symbols=symbols, where=where, strategies=[strategy], **QUICK)
    assert [node.strategy for node in nodes] == ["Pack", "Pipelined", "Pack"]
    found = dace_redist.tune(sdfg, comm=comm, symbols=symbols, strategies=["Pack"], **QUICK)
    assert [one.nodes for one in found] == [("there", "there_again"), ("back",)]
    assert str(found[0]).startswith("node      there, there_again\n")
    kept = dace.SDFG.from_json(sdfg.to_json())  # as DaCe saves it
    saved = [node.implementation for node, _ in kept.all_nodes_recursive() if isinstance(node, Redistribute)]
    assert saved == 3 * ["Pack"]


@pytest.mark.mpi(ranks=[3], timeout=240)
@pytest.mark.parametrize("memory", GPU_MEMORIES)
def test_measurements_of_arrays_on_a_gpu(comm, monkeypatch: pytest.MonkeyPatch, memory: str):
    """The GPU is emulated in main memory."""
    use_device("host", monkeypatch)
    found = dace_redist.tune(*pair(comm.size), comm=comm, memory=memory, **QUICK)
    assert set(comm.allgather(str(found))) == {str(found)}
    assert {*found.phases[0]} == {DEFAULT_STRATEGY} and found.best["strategy"] in (DEFAULT_STRATEGY, "Auto")


@pytest.mark.mpi(ranks=[2])
def test_ranks_of_another_mpi(comm, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    too_many = schedule(Distribution(SHAPE, [3]), Distribution(SHAPE, [1, 2]))
    text = "the launcher started 3 ranks, but MPI .* sees 2: mpiexec is of another MPI"
    refused(comm, RuntimeError, text, lambda: dace_redist.tune(too_many, comm=comm, **QUICK))


def command_line(*words: str) -> str:
    case = ["--shape", "24,20", "--from", "2", "--to", "1,2", "--limit-seconds", "0.5", "--strategy", "Pack"]
    code, printed = launch(2, [sys.executable, "-m", "dace_redist.cli", "tune", *case, *words], 120)
    assert code == 0, printed
    return printed


def test_command_line():
    printed = command_line("--dtype", "int32")
    assert re.search(r"tensor +int32\[24, 20\]", printed)
    assert re.search(r"^Pack +[\d.]+ ms +\[[\d.]+, [\d.]+\] +- +\d+$", printed, re.MULTILINE)
    assert "\r" not in printed  # no bar in a log
    printed = command_line("--strategy", DEFAULT_STRATEGY, "--json", "--quiet")
    plain = json.loads(printed[printed.index("{") :])
    assert {"Pack", DEFAULT_STRATEGY} <= {*plain["seconds"], *plain["before"][0]} and plain["best"]["strategy"]


def test_bench_compares_with_alltoallw():
    words = ["--shape", "24x20", "--from", "2", "--to", "1x2", "--axes", "1,0", "--limit-seconds", "0.3"]
    argv = [sys.executable, "-m", "dace_redist.cli", "bench", *words, "--strategy", "Pack", "--memory", "shared-target"]
    code, printed = launch(2, argv, 120)
    assert code == 0, printed
    assert re.search(r"^MPI_Alltoallw +[\d.]+ ms +\[[\d.]+, [\d.]+\] +1\.00 +\d+$", printed, re.MULTILINE)
    assert re.search(
        r"^(Pack is the fastest strategy: [\d.]+ times as|not decided.* Pack and MPI_Alltoallw)", printed, re.M
    )
