"""The mpi marker itself: what passes, what fails on one rank, what hangs, what skips."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from launching import processes

CONFTEST = Path(__file__).resolve().parent.parent / "conftest.py"
MARK = "DACE_REDIST_TEST"  # in the environment of all processes


@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[1, 4])
def test_ranks_see_each_other(comm, mpi_ranks):
    assert comm.size == mpi_ranks
    assert comm.allgather(comm.rank) == list(range(mpi_ranks))


@pytest.mark.mpi(ranks=[2])
def test_a_rank_does_not_import_dace(comm):
    assert "dace" not in sys.modules


@pytest.mark.dace
@pytest.mark.mpi(ranks=[3])
def test_ranks_that_use_dace_have_it_and_are_processes_of_their_own(comm):
    assert "dace" in sys.modules
    assert len(set(comm.allgather(os.getpid()))) == 3


@pytest.mark.mpi(ranks=[2])
def test_ranks_iterate_over_sets_in_orders_of_their_own(comm):
    """So that ranks which take something from a set do not always agree."""
    assert len(set(comm.allgather(hash("abc")))) == 2


#: Tests that fail, hang, crash or skip.
TESTS = """
@pytest.mark.mpi(ranks=[3])
def test_fails(comm):
    print(f"I am {comm.rank}")
    mine = comm.rank * 7
    assert mine != 14

@pytest.mark.mpi(ranks=[2])
def test_skips(comm):
    pytest.skip("not on this machine")

@pytest.mark.mpi(ranks=[2])
@pytest.mark.xfail(reason="known")
def test_xfails(comm):
    assert comm.size == 7

@pytest.mark.mpi(ranks=[2])
def test_fixture_is_missing(comm, no_such_fixture):
    pass

@pytest.mark.mpi(ranks=[2], timeout=60)
def test_raises_on_one_rank(comm):
    if comm.rank == 1:
        raise ValueError("only here")
    comm.Barrier()

@pytest.mark.mpi(ranks=[2], timeout=4)
def test_hangs(comm):
    print(f"rank {comm.rank} got this far")
    if comm.rank == 0:
        time.sleep(1000)
    comm.Barrier()

@pytest.mark.mpi(ranks=[2], timeout=30)
def test_crashes(comm):
    if comm.rank == 1:
        ctypes.string_at(0)
    comm.Barrier()
"""


class Outcome(NamedTuple):
    """What a run of pytest left: its exit code, what it printed, the seconds it took, and its folder."""

    code: int
    text: str
    seconds: float
    folder: Path

    def of(self, test: str) -> str:
        """Return what was printed about a test that failed."""
        found = re.search(rf"^_+ {test}\[\dranks\] _+$(.*?)^(_|=){{10}}", self.text, re.MULTILINE | re.DOTALL)
        assert found, self.text
        return found[1]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Run pytest with this project's conftest on a file of those tests."""
    folder = tmp_path_factory.mktemp("harness")
    for file in (CONFTEST, *map(CONFTEST.with_name, ("forked_ranks.py", "launching.py"))):
        shutil.copy(file, folder / file.name)
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (folder / "test_it.py").write_text(f"import ctypes, time, pytest\n{TESTS}\n")
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("DACE_REDIST_MPI", "PYTEST_"))}
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "test_it.py"],
        cwd=folder,
        env=variables | {"DACE_REDIST_MPI_GRACE": "2", MARK: str(folder)},
        capture_output=True,
        text=True,
        timeout=250,
    )
    return Outcome(done.returncode, done.stdout + done.stderr, time.monotonic() - start, folder)


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("fails", "test_fails[3ranks] on 3 ranks: failed (rank 0: passed; rank 1: passed; rank 2: failed)"),
        ("fails", "assert 14 != 14"),
        ("fails", "I am 2"),
        ("raises_on_one_rank", "ValueError: only here"),
        ("raises_on_one_rank", "rank 1: failed"),
        ("hangs", "test_it.py::test_hangs[2ranks] on 2 ranks: hung, ended after 4 s"),
        ("hangs", "rank 0 got this far"),
        ("hangs", "rank 1 got this far"),
        ("crashes", "Segmentation fault"),
        ("crashes", "in test_crashes"),
        ("fixture_is_missing", "no_such_fixture"),
    ],
)
def test_failures_are_the_parents(outcome: Outcome, test: str, said: str):
    assert said in outcome.of(f"test_{test}")


def test_all_tests_have_ended(outcome: Outcome):
    assert outcome.code == 1 and "5 failed, 1 skipped, 1 xfailed" in outcome.text
    assert "not on this machine" in outcome.text and "I am 0" not in outcome.of("test_fails")
    assert outcome.seconds < 60  # ranks that wait for a failed one are ended
    assert not processes(f"{MARK}={outcome.folder}")


def test_stack_of_each_rank_that_hangs(outcome: Outcome):
    sleeps = 2 + next(i for i, line in enumerate(TESTS.splitlines()) if "sleep" in line)
    assert all(f"line {line} in test_hangs" in outcome.of("test_hangs") for line in (sleeps, sleeps + 1))
