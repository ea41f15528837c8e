"""Measurements of arrays on GPUs, and their use by strategy Auto; the GPU is emulated in main memory."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calibration_sizes import SIZES
from device_arrays import StridedDeviceArray, use_device
from launching import launch

import dace_redist
from dace_redist import Distribution, schedule
from dace_redist.redistribution.device_arrays import DeviceArray
from dace_redist.strategies import DEFAULT_STRATEGY, OPTIONS
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


@pytest.mark.mpi(ranks=[2])
def test_winners_with_default_options_have_those_of_a_gpu(comm, files: Path, monkeypatch):
    use_device("host", monkeypatch)
    source, target = pair(comm.size)
    moved, usual = schedule(source, target), OPTIONS["chunk_bytes"].default  # in main memory

    def tune(chunk_bytes: int) -> None:
        only = {"chunk_bytes": [chunk_bytes], "depth": [OPTIONS["depth"].default], "growth": [1.0]}
        dace_redist.tune(moved, comm=comm, memory="gpu", strategies=["Pipelined"], options=only, **QUICK)

    tune(1 << 20)
    assert moved_by(comm) == ("Pipelined", USUAL)
    assert dace_redist.chosen_strategy(source, target, comm=comm, memory="gpu").options == {}
    tune(usual)
    assert moved_by(comm) == ("Pipelined", {"chunk_bytes": usual})


@pytest.mark.mpi(ranks=[2])
def test_nccl_is_tried_where_it_can_be_used(comm, files: Path, monkeypatch):
    use_device("host,apart", monkeypatch)
    monkeypatch.setenv("DACE_REDIST_NCCL", "/no/such/libnccl.so")
    moved = schedule(*pair(comm.size))
    found = dace_redist.tune(moved, comm=comm, memory="gpu", strategies=["NCCL", "Pack"], **QUICK)
    assert found.problems[0].winner.strategy == "Pack"
    assert re.search(r"^  NCCL +cannot: strategy NCCL needs NVIDIA's NCCL", str(found), re.MULTILINE)
    with pytest.raises(ValueError, match="strategy NCCL cannot be tuned with gpu-source arrays"):
        dace_redist.tune(moved, comm=comm, memory="gpu-source", strategies=["NCCL"], **QUICK)


@pytest.mark.mpi(ranks=[2])
def test_tensors_of_nothing_can_be_tuned(comm, files: Path, monkeypatch):
    use_device("host", monkeypatch)
    nothing = schedule(Distribution((0, 4), (2,)), Distribution((0, 4), (1, 2)))
    found = dace_redist.tune(nothing, comm=comm, memory="gpu", strategies=["Pack", "Hierarchical"], **QUICK)
    assert found.problems[0].winner.strategy in ("Pack", "Hierarchical")


# The machine profile ---------------------------------------------------------------------------------------------


@pytest.mark.compile
@pytest.mark.mpi(ranks=[3], timeout=240)
@pytest.mark.parametrize("kind", ["host", "host,apart", "host,apart,aware"])
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
    assert device.copies.pack.runs == [8, 64] and device.node.push.runs == [8, 16 << 10]
    assert device.to_main_memory.nbytes == device.to_gpu.nbytes == device.network.messages.nbytes == [8, 4 << 10]
    assert sorted(device.node.latency) == ["messages", "shared"]
    assert f"GPU                 {STAND_IN}" in profile_text(made) and "GPU to main memory" in profile_text(made)

    moved = schedule(Distribution((66, 66), (3, 1)), Distribution((66, 66), (1, 3)))
    for memory in GPU_MEMORIES:
        report = str(CostReport.of(moved, memory, files / "machine.json", 3))
        assert f"GPU       {STAND_IN}" in report and f"3 ranks on 1 node, {memory} arrays" in report
        assert all(f"\n{name.rjust(12)}  " in report for name in ("Pack", "Pipelined", "Hierarchical"))
    comm.Barrier()
    monkeypatch.setattr(calibrating, "topology_of", lambda _: Topology("processor", "MPI", (0, 1, 2)))
    alone = calibrating.calibrate(BENCH, comm, **how)
    assert alone.device is not None and alone.device.node is None and alone.device.network is not None


@pytest.mark.compile
@pytest.mark.mpi(ranks=[2], timeout=120)
def test_without_a_gpu_the_profile_is_as_before(comm, files: Path, monkeypatch):
    from dace_redist import RedistributionError
    from dace_redist.native import device
    from dace_redist.redistribution.bench import BENCH
    from dace_redist.tuning import calibrate as calibrating

    monkeypatch.delenv("DACE_REDIST_DEVICE", raising=False)
    monkeypatch.setattr(device, "_driver_finds_gpu", lambda: False)
    how: dict[str, Any] = {"output": files / "machine.json", "limit_seconds": 1, "progress": False}
    made = calibrating.calibrate(BENCH, comm, sizes=calibrating.Sizes(**SIZES), **how)
    assert made.device is None
    if comm.rank == 0:
        assert "device" not in json.loads((files / "machine.json").read_text())
    comm.Barrier()
    monkeypatch.setenv("DACE_REDIST_DEVICE", "cuda")  # asked for
    with pytest.raises(RedistributionError, match="no GPU can be used here"):
        calibrating.calibrate(BENCH, comm, sizes=calibrating.Sizes(**SIZES), **how)


@pytest.mark.compile
@pytest.mark.mpi(ranks=[3], timeout=120)
def test_auto_takes_what_the_profile_predicts(comm, files: Path, monkeypatch, caplog):
    from dace_redist.redistribution.plan_cache import forget_choices
    from dace_redist.tuning import profile as machine_profile

    use_device("host", monkeypatch)
    save_profile(comm, files / "machine.json", None)
    assert moved_by(comm) == (DEFAULT_STRATEGY, USUAL)
    if comm.rank == 0:
        assert "is ignored for arrays on a GPU: it was made where no GPU could be used" in caplog.text
    for slow, expected in (("push", "Pack"), ("messages", DEFAULT_STRATEGY)):
        save_profile(comm, files / "machine.json", slow)
        forget_choices(comm)
        strategy, options = moved_by(comm)
        assert strategy == expected and options == ({} if strategy == "Pack" else USUAL)
    assert machine_profile.load(files / "machine.json")[0].device is not None
    comm.Barrier()


def save_profile(comm: Any, path: Path, slow: str | None) -> None:
    """Save the profile of the package for this machine, with a GPU on which one kind of message is slow."""
    from dace_redist import __version__
    from dace_redist.mpi.topology import topology_of
    from dace_redist.tuning import profile as machine_profile

    here = topology_of(comm)
    plain = machine_profile.default_profile().model_dump()
    plain |= {"machine": here.machine, "mpi": here.mpi, "package": __version__}
    if slow is not None:
        flat = {"footprints": [64], "runs": [8], "seconds_per_byte": [[1e-9]]}
        node = {
            "messages": {"nbytes": [8, 4096], "seconds": [1e-9, 1e-5]},
            "push": flat,
            "latency": {kind: {"exchange": 1e-6, "message": 1e-7} for kind in ("messages", "shared")},
        }
        if slow == "push":
            node["push"] = flat | {"seconds_per_byte": [[1.0]]}
        else:
            node["messages"] = {"nbytes": [8, 4096], "seconds": [1e-9, 1.0]}
        plain["device"] = {
            "name": STAND_IN,
            "launch": 1e-7,
            "copies": {kind: flat for kind in ("pack", "unpack", "permuted")},
            "to_main_memory": {"nbytes": [8], "seconds": [1.0]},
            "to_gpu": {"nbytes": [8], "seconds": [1.0]},
            "node": node,
            "network": plain["network"],
        }
    if comm.rank == 0:
        machine_profile.save(machine_profile.MachineProfile.model_validate(plain), path)
    comm.Barrier()


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
    assert code == 1 and "Traceback" not in printed
    assert printed.count("dace-redist: ") == 1 and "no GPU can be used here" in printed
    assert not (tmp_path / "tuning.json").exists()
