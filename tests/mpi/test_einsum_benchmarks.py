"""The kernels distributed by hand are right with every strategy, and their answers are equal to the last bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builds import BUILD_TYPE
from forked_ranks import Servers
from launching import launch

from dace_redist.report.trace import Trace
from dace_redist.strategies import host_strategies

pytestmark = [pytest.mark.compile, pytest.mark.timeout(1500)]

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "einsum"
MOVES = {"mm2": 1, "mm3": 2, "ttmc": 3, "mttkrp": 0}  # Redistributes of each kernel
#: Each strategy moves at least one kernel: most of the time goes into building programs.
BY = {
    "mm2": ["MPI", "Datatype", "Pack", "Threaded"],
    "mm3": ["MPI", "Pipelined", "RMA"],
    "ttmc": ["MPI", "Shared", "Hierarchical", "Aggregated"],
    "mttkrp": ["MPI", "Pack"],
}
BUILT = ("even", 1)
LOADED = [("even", 2), ("even", 4), ("even", 8), ("ragged", 1), ("ragged", 2), ("ragged", 8)]
SIZES = {  # those of "ragged" do not divide, which stock DaCe cannot do
    "even": {"mm2": [16], "mm3": [16], "ttmc": [8, 4], "mttkrp": [8, 4]},
    "ragged": {"mm2": [13], "mm3": [13], "ttmc": [7, 3], "mttkrp": [7, 3]},
}
# Starting Python and DaCe on 8 ranks takes longer than all runs together: one process runs many command lines.
RUN_ALL = """
import json, runpy, sys
from mpi4py import MPI
sys.path.insert(0, sys.argv[1])
for sys.argv in map(json.loads, sys.argv[2:]):
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if MPI.COMM_WORLD.rank == 0:
            print("exit code", end.code, file=sys.stderr, flush=True)
"""


def command(kernel: str, *arguments: str) -> list[str]:
    return [str(SCRIPTS / f"{kernel}.py"), *arguments]


def run_all(
    ranks: int, commands: list[list[str]], cwd: Path, timeout: float = 300, forks: Servers | None = None
) -> list[str]:
    """Run the command lines in one launch, in forks if given; return the output of each, its exit code last."""
    arguments = ["-c", RUN_ALL, str(SCRIPTS), *map(json.dumps, commands)]
    argv = forks.command(arguments) if forks else [sys.executable, *arguments]
    code, output = launch(ranks, argv, timeout, environment={"DACE_compiler_build_type": BUILD_TYPE}, cwd=cwd)
    assert code == 0, output
    return output.split("exit code ")


def case(kernel: str, sizes: str, ranks: int, folder: Path) -> list[str]:
    names = BY[kernel]
    size, *rank = map(str, SIZES[sizes][kernel])
    arguments = ["--size", size, *(["--rank", *rank] if rank else []), "--repetitions", "1"]
    arguments += ["--json", str(folder / f"{kernel}-{sizes}-{ranks}"), "--strategy"]
    return command(kernel, *arguments, *(names if sizes == "even" else names[1:]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, ranks_with_dace: Servers) -> Path:
    """Return the folder of the runs, which are made once: programs are built on 1 rank and loaded on the others."""
    folder = tmp_path_factory.mktemp("kernels")
    run_all(1, [case(kernel, *BUILT, folder) for kernel in MOVES], folder, timeout=600)
    for sizes, ranks in LOADED:
        # One launch for each: to load a program again, DaCe copies its library to a second file, over the one that
        # another rank may have loaded by then: that one dies of a bus error.
        commands = [[*case(kernel, sizes, ranks, folder), "--prebuilt"] for kernel in MOVES]
        run_all(ranks, commands, folder, forks=ranks_with_dace)
    return folder


def test_every_strategy_moves_a_kernel() -> None:
    assert {name for names in BY.values() for name in names} == {*host_strategies(), "MPI"}


@pytest.mark.parametrize(("sizes", "ranks"), [BUILT, *LOADED])
@pytest.mark.parametrize("kernel", MOVES)
def test_right_and_equal(kernel: str, sizes: str, ranks: int, folder: Path) -> None:
    names = case(kernel, sizes, ranks, folder)
    results = [json.loads(line) for line in (folder / f"{kernel}-{sizes}-{ranks}").read_text().splitlines()]
    assert [result["strategy"] for result in results] == names[names.index("--strategy") + 1 :]
    for result in results:
        assert (result["kernel"], result["ranks"]) == (kernel, ranks)
        assert result["error"] < 1e-10
        assert sum(step.startswith("redistribute") for step in result["seconds"]) == MOVES[kernel]
        assert all(seconds >= 0 for seconds in result["seconds"].values())
        assert [len(result["samples"][step]) for step in result["seconds"]] == [1] * len(result["seconds"])
    assert len({result["checksum"] for result in results}) == 1


ERRORS = [
    (["mm2", "--size", "0"], "argument --size: expected a positive integer, got '0'"),
    (["mm2", "--strategy", "Quick"], "invalid choice: 'Quick'"),
    (["mm2", "--option", "chunk_bytes"], "expected NAME=VALUE, got 'chunk_bytes'"),
    (["mm2", "--option", "chunk_bytes=8"], "--option is for the strategies other than MPI"),
    (["mm2", "--json", "/no/such/folder/file"], "--json: [Errno 2]"),
    (["mm2", "--size", "13"], "needs --size to be a multiple of 2 on 2 ranks (mode k of grid 1), got 13"),
    (["ttmc", "--size", "7", "--rank", "3"], "needs --size to be a multiple of 2 on 2 ranks (mode l of grid 1), got 7"),
    (["mm2", "--strategy", "Pipelined", "--option", "no_such_option=1"], "strategy Pipelined: "),
    (["run_einsum", "mm4"], "invalid choice: 'mm4'"),
    (["run_einsum"], "which kernel? One of mm1, mm2,"),
    (["run_einsum", "mm2", "--strategy", "MPI"], "invalid choice: 'MPI'"),
    (["run_einsum", "mm2", "--size", "X=3"], "--size: mm2 has no X, but I, J, K, L"),
    (["run_einsum", "mm2", "--size", "I=-1"], "argument --size: expected NAME=NUMBER, got 'I=-1'"),
    (["run_einsum", "mm2", "--memory", "1000"], "take more ranks or more memory"),
    (["run_einsum", "mm2", "--slabs", "A=2"], "mm2 has no axis 2 of A"),
    (["run_einsum", "mm2", "--plot", "/no/such/folder/plan.png"], "/no/such/folder"),
    (["run_einsum", "mm2", "--json", "/no/such/folder/file"], "--json: [Errno 2]"),
]


def test_wrong_arguments(tmp_path: Path) -> None:
    outputs = run_all(2, [command(*arguments) for arguments, _ in ERRORS], tmp_path)
    for before, after, (_, message) in zip(outputs, outputs[1:], ERRORS, strict=False):
        assert before.count(message) == 1
        assert "Traceback" not in before
        assert after.startswith("2\n")


def test_wrong_number_of_ranks(tmp_path: Path) -> None:
    code, output = launch(3, [sys.executable, *command("mm2")], timeout=60, cwd=tmp_path)
    assert code == 2
    assert output.count("needs 1, 2, 4 or 8 ranks, got 3") == 1


def test_demo(tmp_path: Path) -> None:
    argv = [sys.executable, str(SCRIPTS / "demo.py"), "--size", "6", "--rank", "4", "--repetitions", "2"]
    variables = os.environ | {"DACE_compiler_build_type": BUILD_TYPE, "DACE_REDIST_TRACE": str(tmp_path / "trace")}
    done = subprocess.run(argv, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All answers are right." in done.stdout
    assert all((tmp_path / "demo" / name).stat().st_size > 5000 for name in ("times.png", "plan.png"))
    records = [json.loads(line) for line in (tmp_path / "demo" / "results.jsonl").read_text().splitlines()]
    assert [record["strategy"] for record in records] == [*host_strategies()]
    for record in records:
        assert record["error"] < 1e-12
        kinds = [step.split(" ")[0] for step in record["samples"]]
        assert {"redistribute", "contract"} < set(kinds) and kinds[-1] == "total"
        assert all(len(times) == 2 and min(times) > 0 for times in record["samples"].values())
    trace = Trace(tmp_path / "trace")
    assert {"contract", "sum", "copy", "wait", "planning"} < set(trace.seconds)
    assert {span.name for span in trace.spans if span.kind == "contract"}
