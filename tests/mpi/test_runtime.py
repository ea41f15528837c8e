"""The C++ runtime by itself, without Python: every strategy moves random tensors right, clean under the sanitisers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from case_files import write_cases
from mpi_programs import SANITIZED, build, build_shared, run
from seeds import seed, some

pytestmark = [pytest.mark.compile, pytest.mark.timeout(600)]

CASES = {2: 40, 3: 25, 7: 20, 1: 40, 4: 30, 12: 12}  # by number of ranks: seconds each on 2 cores
RANKS = [3, 7, *(pytest.param(ranks, marks=pytest.mark.full) for ranks in (1, 2, 4, 12))]
CHECKS_PER_CASE = 9 * 4  # strategies; two layouts, two runs each


@pytest.mark.fuzz
@pytest.mark.mpi_matrix
@pytest.mark.parametrize("ranks", RANKS)
def test_random_cases(ranks: int, tmp_path: Path) -> None:
    program = build("mpi_random", *SANITIZED, sources=("toy_transport",))
    count = write_cases(tmp_path, ranks, some(CASES[ranks]), seed(ranks), layouts=2)
    printed = run(program, ranks, tmp_path, count, timeout=240)  # other tests run besides
    assert f"{ranks * count * CHECKS_PER_CASE} checks passed" in printed


@pytest.fixture
def xpmem() -> dict[str, str]:
    """Return the environment with a stand-in of XPMEM, by which programs can attach arrays of other ranks."""
    if os.geteuid() != 0:
        pytest.skip("only root may open /proc/PID/map_files, by which the stand-in of XPMEM attaches memory")
    return {"DACE_REDIST_XPMEM": str(build_shared("stand_in_xpmem"))}


@pytest.mark.fuzz
def test_random_cases_attached(xpmem: dict[str, str], tmp_path: Path) -> None:
    """Arrays of other ranks that can be attached are read and written like node-shared ones."""
    program = build("mpi_random", *SANITIZED, sources=("toy_transport",))
    count = write_cases(tmp_path, 3, some(CASES[3]), seed(3), layouts=2)
    printed = run(program, 3, tmp_path, count, timeout=240, **xpmem)
    assert f"{3 * count * CHECKS_PER_CASE} checks passed" in printed


@pytest.mark.parametrize("first_refused", [None, 1, 2])
def test_attached_arrays(first_refused: int | None, xpmem: dict[str, str]) -> None:
    """No rank asks the kernel for bytes of arrays that it can attach; what it cannot attach arrives nevertheless."""
    refusal = {"STAND_IN_XPMEM_REFUSES": str(first_refused)} if first_refused else {}
    printed = run(build("mpi_remote_read", *SANITIZED), 5, "mapped", **xpmem, **refusal)
    assert "2 checks passed" in printed


@pytest.mark.parametrize("case", ["allowed", "refused", "refused_later", "balanced"])
@pytest.mark.parametrize("ranks", [5, pytest.param(2, marks=pytest.mark.full)])
def test_remote_reads(ranks: int, case: str) -> None:
    """Long messages arrive whether or not the kernel lets ranks read each other's memory."""
    printed = run(build("mpi_remote_read", *SANITIZED), ranks, case)
    if "not tested" in printed:
        pytest.skip("the kernel does not let processes read each other's memory")
    assert "2 checks passed" in printed
