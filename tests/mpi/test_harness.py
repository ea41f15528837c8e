"""The mpi marker itself: what passes, what fails on one rank, what hangs, what skips."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parent.parent / "conftest.py"


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


def pytest_on(tmp_path: Path, body: str) -> tuple[int, str, float]:
    """Run pytest with this project's conftest on a test file with ``body``: (exit code, text, seconds)."""
    for file in (CONFTEST, *map(CONFTEST.with_name, ("forked_ranks.py", "launching.py"))):
        shutil.copy(file, tmp_path / file.name)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tmp_path / "test_it.py").write_text(f"import time, pytest\n{body}\n")
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("DACE_REDIST_MPI", "PYTEST_"))}
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        env=variables | {"DACE_REDIST_MPI_GRACE": "2"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.returncode, done.stdout + done.stderr, time.monotonic() - start


@pytest.mark.compile
def test_failure_on_one_rank_is_the_parents(tmp_path):
    code, text, _ = pytest_on(
        tmp_path,
        """
@pytest.mark.mpi(ranks=[3])
def test_it(comm):
    print(f"I am {comm.rank}")
    mine = comm.rank * 7
    assert mine != 14
""",
    )
    assert code == 1
    assert "test_it[3ranks] on 3 ranks: failed (rank 0: passed; rank 1: passed; rank 2: failed)" in text
    assert "assert 14 != 14" in text and "I am 2" in text
    assert "I am 0" not in text


@pytest.mark.compile
def test_ranks_that_wait_for_a_failed_one_are_ended(tmp_path):
    code, text, seconds = pytest_on(
        tmp_path,
        """
@pytest.mark.mpi(ranks=[2], timeout=60)
def test_it(comm):
    if comm.rank == 1:
        raise ValueError("only here")
    comm.Barrier()
""",
    )
    assert code == 1
    assert "ValueError: only here" in text and "rank 1: failed" in text
    assert seconds < 40


@pytest.mark.compile
def test_hang_is_ended_and_named(tmp_path):
    code, text, seconds = pytest_on(
        tmp_path,
        """
@pytest.mark.mpi(ranks=[2], timeout=6)
def test_it(comm):
    print(f"rank {comm.rank} got this far")
    if comm.rank == 0:
        time.sleep(1000)
    comm.Barrier()
""",
    )
    assert code == 1
    assert "test_it.py::test_it[2ranks] on 2 ranks: hung, ended after 6 s" in text
    assert "rank 0 got this far" in text and "rank 1 got this far" in text
    assert "line 7 in test_it" in text and "line 8 in test_it" in text  # the stack of each rank
    assert seconds < 40
    assert not left_over(str(tmp_path))


@pytest.mark.compile
def test_crash_of_a_rank_is_a_failure(tmp_path):
    code, text, _ = pytest_on(
        tmp_path,
        """
@pytest.mark.mpi(ranks=[2], timeout=30)
def test_it(comm):
    if comm.rank == 1:
        import ctypes
        ctypes.string_at(0)
    comm.Barrier()
""",
    )
    assert code == 1
    assert "Segmentation fault" in text and "in test_it" in text


@pytest.mark.compile
def test_skip_and_import_error(tmp_path):
    code, text, _ = pytest_on(
        tmp_path,
        """
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
""",
    )
    assert code == 1
    assert "1 failed, 1 skipped, 1 xfailed" in text
    assert "not on this machine" in text and "no_such_fixture" in text


def left_over(word: str) -> list[str]:
    """Command lines of processes that mention ``word``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if word in line and int(folder.name) != os.getpid():
            found.append(line)
    return found
