"""The einsums on a GPU against CuPy: what can be tested without a GPU."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from launching import launch

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "benchmarks" / "einsum"
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
sys.path.insert(0, {str(SCRIPTS)!r})
import run_einsum
distribute = run_einsum.distribute
run_einsum.distribute = lambda program, ranks, sizes, **_: distribute(program, ranks, sizes)
run_einsum.TOLERANCES["gpu"] = float(sys.argv.pop())
run_einsum.run_command(run_einsum.main, "run_einsum.py")
"""


def start(ranks: int, cupy: str, folder: Path, *command: str, timeout: float = 60) -> tuple[int, str]:
    """A launch with such a module in the place of CuPy."""
    (folder / "cupy.py").write_text(cupy)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return launch(ranks, [sys.executable, *command], timeout, environment={"PYTHONPATH": path}, cwd=folder)


@pytest.mark.full
@pytest.mark.compile
@pytest.mark.parametrize(("tolerance", "code", "verdict"), [("1e-10", 0, "right"), ("-1", 1, "WRONG")])
def test_on_the_processor(tolerance: str, code: int, verdict: str, tmp_path: Path) -> None:
    sizes = [word for name in "IJK" for word in ("--size", f"{name}=12")]
    options = ["mttkrp3_0", *sizes, "--size", "R=6", "--device", "gpu", "--against", "cupy", "--check"]
    words = [*options, "--repetitions", "2", tolerance]
    returned, output = start(2, ON_THE_PROCESSOR, tmp_path, "-c", RUN_ON_THE_PROCESSOR, *words, timeout=280)
    assert returned == code, output
    assert re.search(rf"Auto: [0-9.]+ ms, {verdict}, largest relative error", output), output
    assert "    cupy: " in output
