"""The C++ runtime by itself, without Python: every strategy moves random tensors right, clean under the sanitisers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mpi_programs import SANITIZED, build, run

pytestmark = [pytest.mark.compile, pytest.mark.mpi_matrix]

CASES = {1: 60, 2: 60, 3: 60, 4: 50, 7: 30, 12: 16}  # by number of ranks: about 3 s each on 2 cores
CHECKS_PER_CASE = 7 * 4  # strategies; two layouts, two runs each


@pytest.fixture(scope="module")
def random_cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("mpi_random", tmp_path_factory.mktemp("cpp"), *SANITIZED)


@pytest.fixture(scope="module")
def remote_reads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("mpi_remote_read", tmp_path_factory.mktemp("cpp"), *SANITIZED)


@pytest.mark.parametrize("ranks", CASES)
def test_random_cases(random_cases: Path, ranks: int) -> None:
    printed = run(random_cases, ranks, CASES[ranks], ranks)
    found = re.search(r"(\d+) checks passed", printed)
    assert found, printed
    assert int(found[1]) == ranks * CASES[ranks] * CHECKS_PER_CASE


@pytest.mark.parametrize("ranks", [2, 5])
def test_remote_reads(remote_reads: Path, ranks: int) -> None:
    """Long messages arrive whether or not the kernel lets ranks read each other's memory."""
    assert "8 checks passed" in run(remote_reads, ranks)
