"""The kernels distributed by hand are right with every strategy, and their answers are equal to the last bit."""

import json
import sys
from pathlib import Path

import pytest
from builds import BUILD_TYPE
from forked_ranks import Servers
from launching import launch

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
LOADED = [("even", 4), ("ragged", 2)]
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
