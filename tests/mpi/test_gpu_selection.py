"""What is measured of arrays on GPUs, and that strategy Auto takes it; main memory stands in for a GPU."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_arrays import StridedDeviceArray, use_device

import dace_redist
from dace_redist import Distribution, schedule
from dace_redist.mpi.launch import launch
from dace_redist.redistribution.device_arrays import DeviceArray
from dace_redist.selection.problem_key import GPU_MEMORIES, sides_on_gpu
from dace_redist.strategies import DEFAULT_STRATEGY

SHAPE = (24, 20)
QUICK: dict[str, Any] = {"limit_seconds": 0.5, "progress": False}
#: Options of the default strategy, whose chunks are longer on a GPU.
USUAL = {"chunk_bytes": 1 << 20}
STAND_IN = "main memory in the place of a GPU"


def pair(ranks: int) -> tuple[Distribution, Distribution]:
    return Distribution(SHAPE, [ranks]), Distribution(SHAPE, [1, ranks])


@pytest.fixture
def files(comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this test's record and machine profile, the same on every rank."""
    folder = Path(comm.bcast(tmp_path))
    monkeypatch.setenv("DACE_REDIST_RECORD", str(folder / "tuning.json"))
    monkeypatch.setenv("DACE_REDIST_MACHINE", str(folder / "machine.json"))
    return folder


def placed(array: np.ndarray, on_gpu: bool) -> Any:
    return DeviceArray.from_numpy(array) if on_gpu else array


def moved_by(comm: Any, memory: str = "gpu", wrapped: Any = placed) -> tuple[str, dict[str, Any]]:
    """Redistributes with strategy Auto, checks what arrives, and says what moved it."""
    from dace_redist.redistribution.plan_cache import plans_in_use

    source, target = pair(comm.size)
    whole = np.arange(480.0).reshape(SHAPE)
    array, wanted = source.local(whole, comm.rank), target.local(whole, comm.rank)
    there = [wrapped(part, on_gpu) for part, on_gpu in zip((array, wanted * 0), sides_on_gpu(memory), strict=True)]
    out = dace_redist.redistribute(there[0], source, target, comm=comm, out=there[1])
    assert np.array_equal(out if isinstance(out, np.ndarray) else out.to_numpy(), wanted)
    return plans_in_use(comm)[-1]


@pytest.mark.compile
@pytest.mark.mpi(ranks=[3], timeout=240)
@pytest.mark.parametrize("memory", GPU_MEMORIES)
def test_tune_records_what_auto_takes(comm, files: Path, monkeypatch, caplog, memory: str):
    from dace_redist.redistribution.plan_cache import forget_choices
    from dace_redist.selection import selection
    from dace_redist.selection.problem_key import Problem
    from dace_redist.tuning.tune import tune

    use_device("host", monkeypatch)
    source, target = pair(comm.size)
    assert moved_by(comm, memory) == (DEFAULT_STRATEGY, USUAL)
    options = {"chunk_bytes": [64, 256], "depth": [2]}
    problem = Problem(schedule(source, target), memory)
    found = tune({(): problem}, comm=comm, strategies=["Pipelined", "Datatype"], options=options, **QUICK)
    assert set(comm.allgather(str(found))) == {str(found)}
    winner = found.problems[0].winner
    assert {m.strategy for m in found.problems[0].measured} == {"Pipelined", "Datatype"}

    expected = (winner.strategy, winner.options)
    assert moved_by(comm, memory) == expected  # the plan made before was dropped
    with dace_redist.plan(source, target, comm=comm, device=_devices(memory)) as plan:
        assert ((plan.strategy, plan.options), plan.recorded) == (expected, True)
    assert dace_redist.chosen_strategy(source, target, comm=comm, memory=memory).recorded
    others = {other: moved_by(comm, other) for other in GPU_MEMORIES if other != memory}
    assert set(map(str, others.values())) == {str((DEFAULT_STRATEGY, USUAL))}
    assert not dace_redist.chosen_strategy(source, target, comm=comm).recorded
    assert moved_by(comm, memory, _strided) == (DEFAULT_STRATEGY, USUAL)  # what is measured is in C order
    if comm.rank == 0:
        (entry,) = json.loads((files / "tuning.json").read_text())["entries"]
        assert (entry["memory"], entry["gpu"]) == (memory, STAND_IN)

    monkeypatch.setattr(selection, "device_name", lambda: "NVIDIA H200")
    forget_choices(comm)
    assert moved_by(comm, memory) == (DEFAULT_STRATEGY, USUAL)
    if comm.rank == 0:
        assert f"it is of another GPU ({STAND_IN}, here NVIDIA H200); tune again here" in caplog.text


def _devices(memory: str) -> tuple[str, ...]:
    return tuple("gpu" if on_gpu else "cpu" for on_gpu in sides_on_gpu(memory))


def _strided(array: np.ndarray, on_gpu: bool) -> Any:
    """The array as every other column of another one."""
    around = np.zeros((array.shape[0], 2 * array.shape[1]))
    around[:, ::2] = array
    return StridedDeviceArray(around[:, ::2]) if on_gpu else around[:, ::2]


@pytest.mark.mpi(ranks=[2])
def test_winners_with_default_options_have_those_of_a_gpu(comm, files: Path, monkeypatch):
    use_device("host", monkeypatch)
    source, target = pair(comm.size)
    moved = schedule(source, target)
    dace_redist.tune(
        moved, comm=comm, memory="gpu", strategies=["Pipelined"], options={"chunk_bytes": [1 << 20]}, **QUICK
    )
    assert moved_by(comm) == ("Pipelined", USUAL)
    assert dace_redist.chosen_strategy(source, target, comm=comm, memory="gpu").options == {}
    usual = dace_redist.strategies.OPTIONS["chunk_bytes"].default  # in main memory
    dace_redist.tune(
        moved, comm=comm, memory="gpu", strategies=["Pipelined"], options={"chunk_bytes": [usual]}, **QUICK
    )
    assert moved_by(comm) == ("Pipelined", {"chunk_bytes": usual})


@pytest.mark.mpi(ranks=[2])
def test_tensors_of_nothing_can_be_tuned(comm, files: Path, monkeypatch):
    use_device("host", monkeypatch)
    nothing = schedule(Distribution((0, 4), (2,)), Distribution((0, 4), (1, 2)))
    found = dace_redist.tune(nothing, comm=comm, memory="gpu", strategies=["Pack", "Datatype"], **QUICK)
    assert found.problems[0].winner.strategy in ("Pack", "Datatype")


# The command line ------------------------------------------------------------------------------------------------


def command_line(tmp_path: Path, *words: str, device: str) -> tuple[int, str]:
    argv = [sys.executable, "-m", "dace_redist.cli", "tune", "--shape", "24,20", "--from", "2", "--to", "1,2", *words]
    environment = {"DACE_REDIST_RECORD": str(tmp_path / "tuning.json"), "DACE_REDIST_DEVICE": device}
    return launch(2, [*argv, "--limit-seconds", "0.5", "--quiet"], 120, environment=environment)


@pytest.mark.compile
def test_command_line(tmp_path: Path):
    code, printed = command_line(tmp_path, "--memory", "gpu", "--strategy", "Pack", device="host")
    assert code == 0, printed
    assert re.search(r"^memory +gpu$", printed, re.MULTILINE) and re.search(r"^winner +Pack$", printed, re.MULTILINE)


@pytest.mark.compile
def test_without_a_gpu_the_command_says_so_once(tmp_path: Path):
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    argv = [sys.executable, "-m", "dace_redist.cli", "tune", "--shape", "24,20", "--from", "2", "--to", "1,2"]
    environment = {"DACE_REDIST_RECORD": str(tmp_path / "tuning.json"), "DACE_REDIST_DEVICE": "cuda", **hidden}
    code, printed = launch(2, [*argv, "--memory", "gpu"], 120, environment=environment)
    assert code == 2 and "Traceback" not in printed
    assert printed.count("dace-redist: ") == 1 and "no GPU can be used here" in printed
    assert not (tmp_path / "tuning.json").exists()
