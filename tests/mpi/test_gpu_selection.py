"""Measurements of arrays on GPUs, and their use by strategy Auto; the GPU is emulated in main memory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calibration_sizes import SIZES
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
    from dace_redist.redistribution.bench import BENCH
    from dace_redist.redistribution.plan_cache import forget_choices
    from dace_redist.tuning import auto as selection
    from dace_redist.tuning.problem import Problem
    from dace_redist.tuning.tune import tune

    use_device("host", monkeypatch)
    source, target = pair(comm.size)
    assert moved_by(comm, memory) == (DEFAULT_STRATEGY, USUAL)
    options = {"chunk_bytes": [64, 256], "depth": [2]}
    problem = Problem(schedule(source, target), memory)
    found = tune({(): problem}, BENCH, comm=comm, strategies=["Pipelined", "Pack"], options=options, **QUICK)
    assert set(comm.allgather(str(found))) == {str(found)}
    winner = found.problems[0].winner
    assert {m.strategy for m in found.problems[0].measured} == {"Pipelined", "Pack"}

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
    """Return the array as every other column of another one."""
    around = np.zeros((array.shape[0], 2 * array.shape[1]))
    around[:, ::2] = array
    return StridedDeviceArray(around[:, ::2]) if on_gpu else around[:, ::2]


@pytest.mark.mpi(ranks=[2], alone=True)
def test_nccl_is_tried_where_it_can_be_used(comm, files: Path, monkeypatch):
    use_device("host,apart", monkeypatch)
    monkeypatch.setenv("DACE_REDIST_NCCL", "/no/such/libnccl.so")
    moved = schedule(*pair(comm.size))
    found = dace_redist.tune(moved, comm=comm, memory="gpu", strategies=["NCCL", "Pack"], **QUICK)
    assert found.problems[0].winner.strategy == "Pack"
    assert re.search(r"^  NCCL +cannot: strategy NCCL needs NVIDIA's NCCL", str(found), re.MULTILINE)
    with pytest.raises(ValueError, match="strategy NCCL cannot be tuned with gpu-source arrays"):
        dace_redist.tune(moved, comm=comm, memory="gpu-source", strategies=["NCCL"], **QUICK)


# The machine profile ---------------------------------------------------------------------------------------------


@pytest.mark.compile
@pytest.mark.mpi(ranks=[3], timeout=240)
@pytest.mark.parametrize("kind", ["host,apart,aware"])
def test_calibrate_measures_the_gpu(comm, files: Path, monkeypatch, kind: str):
    from dace_redist.mpi.topology import Topology
    from dace_redist.redistribution.bench import BENCH
    from dace_redist.tuning import calibrate as calibrating
    from dace_redist.tuning import profile as machine_profile
    from dace_redist.tuning.report import CostReport, profile_text

    use_device(kind, monkeypatch)
    sizes = calibrating.Sizes(**SIZES)
    how: dict[str, Any] = {"output": files / "machine.json", "limit_seconds": 1, "progress": False}
    how |= {"sizes": sizes, "gpu_sizes": sizes}
    nodes = Topology("processor", "MPI", (0, 0, 1))  # pretended
    monkeypatch.setattr(calibrating, "topology_of", lambda _: nodes)
    made = calibrating.calibrate(BENCH, comm, **how)
    assert comm.allgather(made) == [made] * 3 and machine_profile.load(files / "machine.json") == (made, "")
    device = made.device
    assert device is not None and device.name == STAND_IN and 0 < device.launch < 1
    assert device.kernels.pack.runs == device.node.push.sent.runs == [8, 64]
    assert device.to_main_memory.nbytes == device.to_gpu.nbytes == device.network.messages.nbytes == [8, 4 << 10]
    assert sorted(device.node.latency) == ["messages", "shared"]
    assert f"GPU                 {STAND_IN}" in profile_text(made) and "main memory to GPU" in profile_text(made)

    moved = schedule(Distribution((66, 66), (3, 1)), Distribution((66, 66), (1, 3)))
    for memory in GPU_MEMORIES:
        report = str(CostReport.of(moved, memory, files / "machine.json", 3))
        assert f"GPU       {STAND_IN}" in report and f"3 ranks on 1 node, {memory} arrays" in report
        assert all(f"\n{name.rjust(12)}  " in report for name in ("Pack", "Pipelined", "Hierarchical"))
    comm.Barrier()
    monkeypatch.setattr(calibrating, "topology_of", lambda _: Topology("processor", "MPI", (0, 1, 2)))
    alone = calibrating.calibrate(BENCH, comm, **how)
    assert alone.device is not None and alone.device.node is None and alone.device.network is not None


# The command line ------------------------------------------------------------------------------------------------
