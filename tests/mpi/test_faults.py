"""Allocations, calls of MPI and copies that fail on one rank: an error or the right tensor everywhere, and no hang."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from case_files import write_cases
from mpi_programs import SANITIZED, build, run
from seeds import seed, some

pytestmark = [pytest.mark.compile, pytest.mark.mpi_matrix]

CASES = {3: 120, 2: 90, 5: 60}  # by number of ranks
RANKS = [3, *(pytest.param(ranks, marks=pytest.mark.full) for ranks in (2, 5))]
WRAPPED = "-Wl,--wrap=malloc,--wrap=aligned_alloc"


@pytest.fixture
def program() -> Path:
    interface = ("api/dace_redist.cpp", "api/handles.cpp", "device/current_device.cpp")
    return build("mpi_faults", *SANITIZED, linked=(WRAPPED, '-DDACE_REDIST_VERSION=""', *interface))


@pytest.mark.fuzz
@pytest.mark.parametrize("ranks", RANKS)
def test_random_faults(program: Path, ranks: int, tmp_path: Path) -> None:
    count = write_cases(tmp_path, ranks, some(CASES[ranks]), seed(ranks))
    printed = run(program, ranks, tmp_path, count, seed(ranks), timeout=240)
    found = re.search(r"(\d+) faults: (\d+) errors", printed)
    assert found, printed
    assert int(found[1]) >= int(found[2]) > 0
