"""The C++ runtime by itself, without Python: every strategy moves random tensors right, clean under the sanitisers."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from case_files import write_cases
from cases import converts
from launching import launch
from mpi_programs import SANITIZED, SOURCES, build, build_shared, build_with_library, compiled, run
from seeds import seed, some

from dace_redist import Distribution
from dace_redist.report.trace import Trace
from dace_redist.transform import COMPUTED_TYPES, OPS

pytestmark = [pytest.mark.compile, pytest.mark.timeout(600)]

CASES = {2: 40, 3: 25, 7: 20, 1: 40, 4: 30, 12: 12}  # by number of ranks: seconds each on 2 cores
RANKS = [3, 7, *(pytest.param(ranks, marks=pytest.mark.full) for ranks in (1, 2, 4, 12))]
CHECKS_PER_CASE = 7 * 4  # strategies; two layouts, two runs each
LEAKS = {"ASAN_OPTIONS": "detect_leaks=1:fast_unwind_on_malloc=0"}


@pytest.fixture
def program() -> Path:
    interface = ("api/dace_redist.cpp", "api/groups.cpp", "api/handles.cpp")
    wrapped = "-Wl,--wrap=malloc,--wrap=aligned_alloc"
    linked = (wrapped, '-DDACE_REDIST_VERSION=""', *interface)
    return build("mpi_random", *SANITIZED, sources=("toy_transport",), linked=linked)


@pytest.mark.fuzz
@pytest.mark.mpi_matrix
@pytest.mark.parametrize("ranks", RANKS)
def test_random_cases(program: Path, ranks: int, tmp_path: Path) -> None:
    count = write_cases(tmp_path, ranks, some(CASES[ranks]), seed(ranks), layouts=2)
    printed = run(program, ranks, tmp_path, count, "all", timeout=240)  # other tests run besides
    assert f"{ranks * count * CHECKS_PER_CASE} checks passed" in printed


def test_nothing_is_lost(program: Path, tmp_path: Path) -> None:
    """Plans of every strategy free their memory; looking for leaks takes long."""
    count = write_cases(tmp_path, 2, some(9), seed(2), layouts=2)
    assert "checks passed" in run(program, 2, tmp_path, count, "all", timeout=240, **LEAKS)


FAULTS = {3: 120, 2: 90, 5: 60}  # cases by number of ranks


@pytest.mark.fuzz
@pytest.mark.mpi_matrix
@pytest.mark.parametrize("ranks", [3, *(pytest.param(ranks, marks=pytest.mark.full) for ranks in (2, 5))])
def test_random_faults(program: Path, ranks: int, tmp_path: Path) -> None:
    """Allocations, calls of MPI, copies that fail on one rank: an error or the right tensor everywhere, and no hang."""
    count = write_cases(tmp_path, ranks, some(FAULTS[ranks]), seed(ranks))
    printed = run(program, ranks, tmp_path, count, seed(ranks), timeout=240)
    found = re.search(r"(\d+) faults: (\d+) errors", printed)
    assert found, printed
    assert int(found[1]) >= int(found[2]) > 0


def reduction(ranks: int, scattered: bool, types: tuple[str, str], op: str | None, **how: Any) -> dict[str, Any]:
    """Return a case of partial results on all ranks, of which each gets a part, or all."""
    shape, split = (2 * ranks + 1, 3), (0, None) if scattered else (None, None)
    source, target = (Distribution(shape, (ranks,), dims=dims) for dims in ((None, None), split))
    how = {"axes": None, "region": None, "reshape": None, "alpha": 1, "beta": 0, "conj": False, "op": op} | how
    return {"source": source, "target": target, "types": types, "computes": True, "how": how}


@pytest.mark.fuzz
def test_operations_on_all_types(program: Path, tmp_path: Path) -> None:
    """Every strategy reduces partial results of every type and converts them, or names why it does not."""
    ranks, random = 3, np.random.default_rng(seed())
    pairs = [(one, to) for one in COMPUTED_TYPES for to in COMPUTED_TYPES if converts(one, to)]
    cases = []
    for op in (None, *OPS):
        fitting = [pair for pair in pairs if op not in ("min", "max") or pair[1][0] != "c"]
        for pair in (fitting[number] for number in random.permutation(len(fitting))[: some(len(fitting))]):
            scale = pair[1] != "bool" and op in (None, "sum") and random.integers(2)
            factors = {"alpha": 2, "beta": int(random.integers(3))} if scale else {}
            cases.append(reduction(ranks, bool(random.integers(2)), pair, op, **factors))
    joint = [(0, cases[first : first + 12]) for first in range(0, len(cases), 12)]
    count = write_cases(tmp_path, ranks, 0, seed(), layouts=2, given=joint)
    printed = run(program, ranks, tmp_path, count, "all", timeout=240)
    assert f"{ranks * count * CHECKS_PER_CASE} checks passed" in printed


@pytest.mark.parametrize("ranks", [4, *(pytest.param(ranks, marks=pytest.mark.full) for ranks in (2, 5))])
def test_every_strategy_fails_everywhere(program: Path, ranks: int, tmp_path: Path) -> None:
    """A failure at any stage, of any rank, on one node and two: an error on every rank, and the next plan works."""
    rows, columns = (Distribution((20, 20), (ranks,), dims=dims) for dims in ((0, None), (None, 0)))
    copy = reduction(ranks, False, ("float64", "float64"), None) | {"source": rows, "target": columns}
    sums = [reduction(ranks, scattered, ("float64", "float64"), "sum") for scattered in (False, True)]
    wide_rows, wide_columns = (Distribution((200, 200), (ranks,), dims=dims) for dims in ((0, None), (None, 0)))
    wide = copy | {"source": wide_rows, "target": wide_columns}  # ranks read and write each other's arrays
    given = [(0, [case]) for case in (copy, wide, *sums)]
    count, stride = write_cases(tmp_path, ranks, 0, seed(), given=given), 1 if some(9) == 9 else 11
    printed = run(program, ranks, tmp_path, count, "table", stride, timeout=240)
    found = re.search(r"(\d+) faults: (\d+) errors", printed)
    assert found and int(found[1]) == int(found[2]) > count * 6 * 5 * 3 * 2 // stride - 10, printed


def test_every_allocation_fails(program: Path, tmp_path: Path) -> None:
    """At whichever allocation a rank is out of memory: an error or the right tensor everywhere, and no hang."""
    ranks = 3
    rows, columns = (Distribution((9, 9), (ranks,), dims=dims) for dims in ((0, None), (None, 0)))
    copy = reduction(ranks, False, ("float64", "float64"), None) | {"source": rows, "target": columns}
    count, stride = write_cases(tmp_path, ranks, 0, seed(), given=[(0, [copy])]), 1 if some(9) == 9 else 5
    printed = run(program, ranks, tmp_path, count, "allocations", stride, timeout=500)
    found = re.search(r"(\d+) faults", printed)
    assert found and int(found[1]) > 7 * 2 * 100 // stride, printed


@pytest.fixture
def xpmem() -> dict[str, str]:
    """Return the environment with a stand-in of XPMEM, by which programs can attach arrays of other ranks."""
    if os.geteuid() != 0:
        pytest.skip("only root may open /proc/PID/map_files, by which the stand-in of XPMEM attaches memory")
    return {"DACE_REDIST_XPMEM": str(build_shared("stand_in_xpmem"))}


@pytest.mark.fuzz
def test_random_cases_attached(program: Path, xpmem: dict[str, str], tmp_path: Path) -> None:
    """Arrays of other ranks that can be attached are read and written like node-shared ones."""
    count = write_cases(tmp_path, 3, some(CASES[3]), seed(3), layouts=2)
    printed = run(program, 3, tmp_path, count, "all", timeout=240, **xpmem)
    assert f"{3 * count * CHECKS_PER_CASE} checks passed" in printed


#: Rows of one rank, or of all, to all ranks, of which each gets those of the rank before; in private memory that can be
#: attached, or to node-shared memory.
LONG = """
import mmap
import sys
import numpy as np
from mpi4py import MPI
from dace_redist import Distribution, plan, shared_empty

def attachable(shape):
    count = int(np.prod(shape))
    return np.frombuffer(mmap.mmap(-1, 8 * count), count=count).reshape(shape) if count else np.empty(shape)

comm = MPI.COMM_WORLD
shape = (40 * comm.size, 8192)  # 2.5 MiB for each rank, in several pieces
whole = np.arange(np.prod(shape), dtype=float).reshape(shape)
last = Distribution.on_rank((1,), comm.size - 1)  # which keeps an element
one = np.ones(last.local_shape(comm.rank))
for case in sys.argv[1:]:
    turned = [*range(1, comm.size), 0] if "all" in case else None
    source = Distribution(shape, (comm.size if "all" in case else 1,))
    target = Distribution(shape, (comm.size,), ranks=turned)
    A, B = attachable(source.local_shape(comm.rank)), attachable(target.local_shape(comm.rank))
    B = shared_empty(B.shape) if "shared" in case else B
    A[...] = source.local(whole, comm.rank)
    with plan([last, source], [last, target], "f8", comm=comm, strategy="Hierarchical") as made:
        for _ in range(2):
            B[...] = -1
            made([one, A], out=[one.copy(), B])
            assert np.array_equal(B, target.local(whole, comm.rank))
    comm.Barrier()  # others may still write to it
"""


def reads(ranks: int, folder: Path, *cases: str, **environment: str) -> list[list[int]]:
    """Make long moves, each twice; return for each in how many of both runs each rank reads others' private memory."""
    command = [sys.executable, "-m", "mpi4py", "-c", LONG, *cases]
    code, printed = launch(ranks, command, 100, environment={"DACE_REDIST_TRACE": str(folder), **environment})
    assert code == 0, printed
    if "the kernel refuses" in printed:
        pytest.skip("the kernel does not let processes read each other's memory")
    spans, found = Trace(folder).spans, [[0] * ranks for _ in cases]
    for rank in range(ranks):
        read = [span.start for span in spans if (span.rank, span.kind) == (rank, "read")]
        runs = sorted((span.start, span.end) for span in spans if (span.rank, span.kind) == (rank, "run"))
        assert len(runs) == 2 * len(cases)
        for number, (start, end) in enumerate(runs):
            found[number // 2][rank] += any(start <= at <= end for at in read)
    return found


@pytest.mark.parametrize("first_refused", ["", "1", "2"])
def test_attached_arrays(first_refused: str, xpmem: dict[str, str], tmp_path: Path) -> None:
    """No rank asks the kernel for bytes of arrays that it can attach; what it cannot attach arrives nevertheless."""
    refusal = {"STAND_IN_XPMEM_REFUSES": first_refused} if first_refused else {}
    found = reads(5, tmp_path, "all", "one", "all shared", "one shared", **xpmem, **refusal)
    assert first_refused or not any(map(any, found))


@pytest.mark.parametrize(
    ("allowed", "moves"),
    [
        # where ranks share cores, the sender copies; so it does where all ranks have as much to copy
        ("", {"one": 2, "one shared": 2, "all": 2, "all shared": 0}),
        ("0", {"one": 0}),
        ("2", {"one": 1}),  # by its second piece; not again after that
    ],
)
@pytest.mark.parametrize("ranks", [5, 2])
def test_remote_reads(ranks: int, allowed: str, moves: dict[str, int], tmp_path: Path) -> None:
    """Long messages arrive, whether or not the kernel lets ranks read memory of others; who has less to copy reads."""
    source = SOURCES / "stand_in_readv.cpp"
    library = compiled("libstand_in_readv.so", ["-fPIC", "-shared"], [source], [source])
    stand_in = {"LD_PRELOAD": str(library), **({"STAND_IN_READS": allowed} if allowed else {})}
    if ranks > len(os.sched_getaffinity(0)) and "one shared" in moves:
        moves = moves | {"one shared": 0}
    expected = [[runs if "all" in case else 0, *[runs] * (ranks - 1)] for case, runs in moves.items()]
    assert reads(ranks, tmp_path, *moves, **stand_in) == expected


@pytest.mark.fuzz
@pytest.mark.mpi_matrix
@pytest.mark.parametrize("ranks", [3, *(pytest.param(ranks, marks=pytest.mark.full) for ranks in (2, 5))])
def test_threads_take_turns_in_mpi(program: Path, ranks: int, tmp_path: Path) -> None:
    """Under MPI_THREAD_SERIALIZED two threads with plans of their own are never in MPI together, nor ever stuck."""
    count = write_cases(tmp_path, ranks, some(60), seed(ranks))
    assert "checks passed" in run(program, ranks, tmp_path, count, "threads", timeout=240)


def test_mpi_ends_where_threads_made_plans_in_any_order() -> None:
    """MPI_Finalize frees their windows, which is collective, in one order on all ranks."""
    assert run(build("mpi_finalize", *SANITIZED), 2, **LEAKS).count("MPI ended") == 2


@pytest.mark.skipif(not SANITIZED[1:], reason="DACE_REDIST_SANITIZE=0 leaves out what finds leaks")
def test_leaks_are_found() -> None:
    """Those of MPI are suppressed; a lost object of the library ends the program."""
    code, printed = launch(2, [str(build("mpi_finalize", *SANITIZED)), "leak"], 60, environment=LEAKS)
    assert code != 0 and "MPI ended" in printed and re.search("in main .*mpi_finalize.cpp", printed), printed


@pytest.mark.parametrize("ranks", [3, pytest.param(4, marks=pytest.mark.full)])
def test_joined_messages_of_many_nodes(ranks: int) -> None:
    """Nodes that the program has not, with some parts: as sorting all parts of each pair of nodes places them."""
    program = build("mpi_joined", *SANITIZED)
    for number in range(some(6)):
        printed = run(program, ranks, 17, seed(number) + 1)
        assert sum(int(count) for count in re.findall(r"(\d+) joined messages, 0 wrong", printed)) > 100, printed


def test_memory_of_joining() -> None:
    """A rank keeps a few numbers for each other one, not the parts of all ranks of its node."""
    ranks = 12000
    printed = run(build("mpi_joined", *SANITIZED), 12, ranks, 0)
    assert max(int(nbytes) for nbytes in re.findall(r"(\d+) bytes", printed)) < 200 * ranks, printed


@pytest.mark.parametrize("strategy", ["Hierarchical", "Pack"])
def test_one_rank_fails_for_all(strategy: str) -> None:
    """All ranks learn of a failure by few messages that name its rank, also if the first to be told does not look."""
    ranks = 9
    printed = run(build_with_library("failure"), ranks, strategy)
    found = re.search(r"(\d+) notices", printed)
    assert found and ranks - 1 <= int(found[1]) <= 2 * (ranks - 1), printed


def test_address_space_of_many_ranks() -> None:
    """Ranks map the memory of all ranks of their node: of a machine with 16 TiB, and where 2 GiB are left for each."""
    source, ranks = SOURCES / "stand_in_sysconf.cpp", 8
    large = str(compiled("libstand_in_sysconf.so", ["-fPIC", "-shared"], [source], [source]))
    program = build_with_library("failure")
    for limit, preloaded in (("unlimited", large), (str(2 * ranks << 20), "")):
        words = ("-c", f"ulimit -v {limit} && exec {program} Hierarchical")
        printed = run(Path("/bin/sh"), ranks, *words, LD_PRELOAD=preloaded)
        assert "notices" in printed and "no node-shared memory" not in printed
