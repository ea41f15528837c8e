"""The kernels distributed by hand are right, and equal to the last bit to those that stock DaCe redistributes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from forked_ranks import Servers
from launching import launch

from dace_redist.report.trace import Trace
from dace_redist.strategies import STRATEGIES

pytestmark = [pytest.mark.compile, pytest.mark.timeout(1500)]

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "einsum"
#: Some strategies, and stock DaCe: most of the time goes into building programs. test_node.py has all strategies.
BY = {"mm2": ["stock", "Pack"], "mm3": ["Pipelined"], "ttmc": ["Hierarchical"]}
BUILT = ("even", 1)
LOADED = [("even", 4), ("ragged", 2)]
SIZES = {  # those of "ragged" do not divide, which stock DaCe cannot do
    "even": {kernel: dict.fromkeys("ijklm", 8) | dict.fromkeys("bcde", 4) for kernel in BY},
    "ragged": {kernel: dict(zip("ijklmbcde", (7, 6, 9, 7, 5, 3, 4, 3, 5), strict=True)) for kernel in BY},
}
# Starting Python and DaCe on 8 ranks takes longer than all runs together: one process runs all kernels.
RUN_ALL = """
import json, sys, zlib
sys.path.insert(0, sys.argv[1])
from by_hand import WORLD, ByHand
for kernel, lengths, strategies, path in map(json.loads, sys.argv[2:]):
    for strategy in strategies:
        program = ByHand(kernel, lengths, strategy)
        program()
        error, parts = program.error(), WORLD.allgather(zlib.crc32(program.result.tobytes()))
        record = {"kernel": kernel, "ranks": WORLD.size, "strategy": strategy, "error": error, "parts": parts}
        if WORLD.rank == 0:
            with open(path, "a") as file:
                file.write(json.dumps(record) + "\\n")
"""


def strategies(kernel: str, sizes: str) -> list[str]:
    return [name for name in BY[kernel] if (sizes, name) != ("ragged", "stock")]


def run_all(ranks: int, sizes: str, cwd: Path, timeout: float = 300, forks: Servers | None = None) -> None:
    """Run all kernels in one launch, in forks if given; each writes a file of results."""
    runs = [[name, SIZES[sizes][name], strategies(name, sizes), str(cwd / f"{name}-{sizes}-{ranks}")] for name in BY]
    arguments = ["-c", RUN_ALL, str(SCRIPTS), *map(json.dumps, runs)]
    argv = forks.command(arguments) if forks else [sys.executable, *arguments]
    code, output = launch(ranks, argv, timeout, cwd=cwd)
    assert code == 0, output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, ranks_with_dace: Servers) -> Path:
    """Return the folder of the runs, which are made once: programs are built on 1 rank and loaded on the others."""
    folder = tmp_path_factory.mktemp("kernels")
    run_all(1, "even", folder, timeout=600)
    for sizes, ranks in LOADED:
        # One launch for each: to load a program again, DaCe copies its library to a second file, over the one that
        # another rank may have loaded by then: that one dies of a bus error.
        run_all(ranks, sizes, folder, forks=ranks_with_dace)
    return folder


@pytest.mark.parametrize(("sizes", "ranks"), [BUILT, *LOADED])
@pytest.mark.parametrize("kernel", BY)
def test_right_and_equal(kernel: str, sizes: str, ranks: int, folder: Path) -> None:
    results = [json.loads(line) for line in (folder / f"{kernel}-{sizes}-{ranks}").read_text().splitlines()]
    assert [result["strategy"] for result in results] == strategies(kernel, sizes)
    for result in results:
        assert (result["kernel"], result["ranks"]) == (kernel, ranks)
        assert result["error"] < 1e-10
    assert all(result["parts"] == results[0]["parts"] for result in results)


def test_table_of_tuned_strategies(tmp_path: Path) -> None:
    words = ["mm1", "mttkrp3_0", *(word for size in ("I=64", "J=64", "K=64", "R=8") for word in ("--size", size))]
    words += ["--strategies", "Datatype,Tuned", "--check", "--limit", "0.05", "--repetitions", "1"]
    argv = [sys.executable, str(SCRIPTS / "run_einsum.py"), *words]
    code, output = launch(2, argv, 300, cwd=tmp_path, environment={"DACE_REDIST_EXCHANGE_SECONDS": "0"})
    assert code == 0 and output.count(", right, ") == 4, output
    head, product, tensor = (re.split("  +", line) for line in output.splitlines()[-3:])
    assert head == ["kernel", "Datatype, ms", "Tuned, ms", "redistribution", "strategy", "because"]
    assert product[0] == "mm1" and product[3:] == ["none", "-"]
    assert tensor[0] == "mttkrp3_0" and tensor[3] == "sum___return"
    assert re.match(r"not decided|\w+.* is the fastest strategy", tensor[5]), tensor


@pytest.mark.full
def test_demo(tmp_path: Path) -> None:
    small = ["--case", "seed-k2", "--preset", "tiny", "--size", "6", "--repetitions", "2"]
    argv = [sys.executable, str(SCRIPTS.parent / "demo.py"), *small]
    variables = os.environ | {"DACE_REDIST_TRACE": str(tmp_path / "trace")}
    done = subprocess.run(argv, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal to NumPy's result" in done.stdout
    assert all((tmp_path / "demo" / name).stat().st_size > 5000 for name in ("speedups.png", "plan.png"))
    methods = [
        json.loads(line)["method"] for line in (tmp_path / "demo" / "redistribution.jsonl").read_text().splitlines()
    ]
    assert {*STRATEGIES, "Auto", "stock DaCe", "plain copy"} < set(methods)
    records = [json.loads(line) for line in (tmp_path / "demo" / "einsum.jsonl").read_text().splitlines()]
    assert [record["strategy"] for record in records] == ["Auto", "Datatype"]
    for record in records:
        assert record["error"] < 1e-12
        assert len(record["samples"]) == 2 and min(record["samples"]) > 0
    trace = Trace(tmp_path / "trace")
    assert {"contract", "reduce", "copy", "wait", "planning"} < set(trace.seconds)
    assert {span.name for span in trace.spans if span.kind == "contract"}
