"""The einsums on a GPU against CuPy: what can be tested without a GPU."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

import dace
import pytest
from builds import BUILD_TYPE, nvcc_with_cublas
from launching import launch

from dace_redist.native.device import DEVICE_VARIABLE

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu" / "einsums.py"
KERNELS = ("mm2", "mttkrp3_0", "ttmc")
NO_CUPY = "raise ImportError('none here')"
NO_GPU = """
class runtime:
    class CUDARuntimeError(Exception): ...
    def getDeviceCount():
        raise runtime.CUDARuntimeError('no driver')
class cuda:
    runtime = runtime
"""
#: NumPy in the place of CuPy.
ON_THE_PROCESSOR = """
from numpy import *
class runtime:
    class CUDARuntimeError(Exception): ...
    getDeviceCount = staticmethod(lambda: 1)
class Stream:
    synchronize = staticmethod(lambda: None)
class cuda:
    runtime, get_current_stream = runtime, Stream
class get_default_memory_pool:
    free_all_blocks = staticmethod(lambda: None)
"""
RUN_ON_THE_PROCESSOR = f"""
import sys
sys.path.insert(0, {str(SCRIPT.parent)!r})
import einsums
einsums.distributed = lambda case, ranks, sizes: einsums.distribute(case.program, ranks, sizes)
einsums.TOLERANCE = float(sys.argv.pop())
einsums.main()
"""


#: Command lines, one after the other in one launch.
RUN_ALL = f"""
import json, runpy, sys
from mpi4py import MPI
for sys.argv[1:] in json.loads(sys.argv.pop()):
    try:
        runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
    except SystemExit as end:
        if MPI.COMM_WORLD.rank == 0:
            print("exit code", end.code, file=sys.stderr, flush=True)
"""
ERRORS = [
    (["cp"], "there is no kernel cp, but mm2, mttkrp3_0, ttmc"),
    (["mm2", "--size", "M=4"], "--size: mm2 have no M, but I, J, K, L"),
    (["--size", "I"], "argument --size: expected NAME=NUMBER, got 'I'"),
    (["--preset", "huge"], "argument --preset: invalid choice: 'huge'"),
    ([], "the comparison is with CuPy, which cannot be imported (none here): pip install cupy-cuda13x"),
]


def start(ranks: int, cupy: str, folder: Path, *command: str, timeout: float = 60) -> tuple[int, str]:
    """A launch with such a module in the place of CuPy."""
    (folder / "cupy.py").write_text(cupy)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {"PYTHONPATH": path, "DACE_compiler_build_type": BUILD_TYPE}
    return launch(ranks, [sys.executable, *command], timeout, environment=variables, cwd=folder)


def test_nothing_to_measure(tmp_path: Path) -> None:
    code, output = start(2, NO_GPU, tmp_path, str(SCRIPT))
    assert code == 2
    assert output.count("there is no GPU that could be measured: no driver\n") == 1
    assert "Traceback" not in output


def test_wrong_arguments(tmp_path: Path) -> None:
    _, output = start(2, NO_CUPY, tmp_path, "-c", RUN_ALL, json.dumps([arguments for arguments, _ in ERRORS]))
    parts = output.split("exit code ")
    assert [part.partition("\n")[0] for part in parts[1:]] == ["2"] * len(ERRORS)
    for part, (_, line) in zip(parts, ERRORS, strict=False):
        assert part.count(line) == 1 and "Traceback" not in part


@pytest.mark.compile
@pytest.mark.parametrize(("tolerance", "code", "verdict"), [("1e-10", 0, "right"), ("-1", 1, "WRONG")])
def test_on_the_processor(tolerance: str, code: int, verdict: str, tmp_path: Path) -> None:
    options = ["--preset", "small", "--size", "I=6", "--size", "J=9", "--repetitions", "2", tolerance]
    returned, output = start(2, ON_THE_PROCESSOR, tmp_path, "-c", RUN_ON_THE_PROCESSOR, *options, timeout=280)
    assert returned == code, output
    for kernel in KERNELS:
        (ratio,) = (line for line in output.splitlines() if line.startswith(f"{kernel:12} ratio"))
        assert f"(required: at most 1.3), {verdict}: relative error" in ratio
        for method in ("distributed over 2", "CuPy, optimize=True", "CuPy, in NumPy's order"):
            assert output.count(f"{kernel:12} {method:24} ") == 1


@pytest.mark.compile
@pytest.mark.parametrize("kernel", KERNELS)
def test_programs_compile(kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not nvcc_with_cublas(tmp_path):
        pytest.skip("no nvcc with cuBLAS on this machine: a program that computes on a GPU cannot be compiled")
    einsums = runpy.run_path(str(SCRIPT))
    monkeypatch.setenv(DEVICE_VARIABLE, "host")
    case = einsums["CASES"][kernel]
    sdfg = einsums["distributed"](case, 4, einsums["sizes_of"](case, "large", {})).sdfg
    assert {array.storage for array in sdfg.arrays.values()} == {dace.StorageType.GPU_Global}
    sdfg.build_folder = str(tmp_path)
    with dace.config.set_temporary("compiler", "build_type", value=BUILD_TYPE):
        sdfg.compile(return_program_handle=False)
    assert list(tmp_path.rglob(f"lib{sdfg.name}.so"))
