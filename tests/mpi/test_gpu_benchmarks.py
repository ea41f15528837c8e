"""The einsums on a GPU against CuPy: what can be tested without a GPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from builds import BUILD_TYPE
from launching import launch

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu" / "einsums.py"
KERNELS = ("mm2", "mttkrp3_0", "ttmc")
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
einsums.run_command(einsums.main, "einsums.py")
"""


def start(ranks: int, cupy: str, folder: Path, *command: str, timeout: float = 60) -> tuple[int, str]:
    """A launch with such a module in the place of CuPy."""
    (folder / "cupy.py").write_text(cupy)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {"PYTHONPATH": path, "DACE_compiler_build_type": BUILD_TYPE}
    return launch(ranks, [sys.executable, *command], timeout, environment=variables, cwd=folder)


@pytest.mark.full
@pytest.mark.compile
@pytest.mark.parametrize(("tolerance", "code", "verdict"), [("1e-10", 0, "right"), ("-1", 1, "WRONG")])
def test_on_the_processor(tolerance: str, code: int, verdict: str, tmp_path: Path) -> None:
    options = ["--preset", "tiny", "--repetitions", "2", tolerance]
    returned, output = start(2, ON_THE_PROCESSOR, tmp_path, "-c", RUN_ON_THE_PROCESSOR, *options, timeout=280)
    assert returned == code, output
    for kernel in KERNELS:
        assert output.count(f"{kernel:12} {verdict}: relative error") == 1
        for method in ("distributed over 2", "CuPy, optimize=True", "CuPy, in NumPy's order"):
            assert output.count(f"{kernel:12} {method:24} ") == 1
