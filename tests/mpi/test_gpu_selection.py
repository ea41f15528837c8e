"""Measurements of arrays on GPUs, and their use by strategy Auto; the GPU is emulated in main memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_arrays import StridedDeviceArray, use_device

import dace_redist
from dace_redist import Distribution, schedule
from dace_redist.redistribution.device_arrays import DeviceArray
from dace_redist.strategies import DEFAULT_STRATEGY
from dace_redist.tuning.problem import GPU_MEMORIES, sides_on_gpu

SHAPE = (24, 20)
QUICK: dict[str, Any] = {"limit_seconds": 0.5, "progress": False}
#: Options of the default strategy, whose chunks are longer on a GPU.
USUAL = {"chunk_bytes": 1 << 20}
STAND_IN = "main memory in the place of a GPU"


def pair(ranks: int) -> tuple[Distribution, Distribution]:
    return Distribution(SHAPE, [ranks]), Distribution(SHAPE, [1, ranks])


@pytest.fixture
def files(comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of this test's record and machine profile, equal on every rank."""
    folder = Path(comm.bcast(tmp_path))
    monkeypatch.setenv("DACE_REDIST_RECORD", str(folder / "tuning.json"))
    monkeypatch.setenv("DACE_REDIST_MACHINE", str(folder / "machine.json"))
    return folder


def placed(array: np.ndarray, on_gpu: bool) -> Any:
    return DeviceArray.from_numpy(array) if on_gpu else array


def moved_by(comm: Any, memory: str = "gpu", wrapped: Any = placed) -> tuple[str, dict[str, Any]]:
    """Redistribute with strategy Auto, check the result, and return the strategy used."""
    from dace_redist.redistribution.cache import plans_in_use

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
    from dace_redist.measuring.tune import tune
    from dace_redist.redistribution.cache import forget_choices
    from dace_redist.tuning import auto as selection
    from dace_redist.tuning.problem import Problem

    use_device("host", monkeypatch)
    source, target = pair(comm.size)
    assert moved_by(comm, memory) == (DEFAULT_STRATEGY, USUAL)
    options = {"chunk_bytes": [64, 256], "depth": [2]}
    problem = Problem(schedule(source, target), memory)
    found = tune({(): problem}, comm=comm, strategies=["Pipelined", "Pack"], options=options, **QUICK)
    assert set(comm.allgather(str(found))) == {str(found)}
    winner = found.problems[0].winner
    assert {m.strategy for m in found.problems[0].measured} == {"Pipelined", "Pack"}

    expected = (winner.strategy, winner.options)
    assert moved_by(comm, memory) == expected  # the plan made before was dropped
    with dace_redist.plan(source, target, "float64", comm=comm, device=_devices(memory)) as plan:
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
    """Return the array as every other column of another one."""
    around = np.zeros((array.shape[0], 2 * array.shape[1]))
    around[:, ::2] = array
    return StridedDeviceArray(around[:, ::2]) if on_gpu else around[:, ::2]


# The machine profile ---------------------------------------------------------------------------------------------


# The command line ------------------------------------------------------------------------------------------------
