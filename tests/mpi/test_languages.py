"""The C++ header and the Fortran module: their examples, and programs that check results by formulas."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launching import launch

from dace_redist.native.toolchain import INCLUDE_DIRECTORY, mpi_compiler

ROOT = Path(__file__).resolve().parents[2]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
HEADER = INCLUDE_DIRECTORY / "dace_redist.hpp"

pytestmark = [pytest.mark.compile, pytest.mark.mpi_matrix]


def config(*arguments: str) -> list[str]:
    """Return the output of ``dace-redist config``, as words."""
    command = [sys.executable, "-m", "dace_redist.cli", "config", *arguments]
    return shlex.split(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run(command: list[object], folder: Path) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr


def cpp(source: str, folder: Path) -> Path:
    """A C++ program, compiled as its manual page says."""
    command = [mpi_compiler(), "-std=c++17", *WARNINGS, "-Wshadow", ROOT / source]
    run([*command, *config("--cflags", "--libs"), "-o", "program"], folder)
    return folder / "program"


def fortran(source: str, folder: Path) -> Path:
    """A Fortran program, compiled as its manual page says."""
    mpifort = Path(mpi_compiler()).with_name("mpifort")
    if not mpifort.exists() or not shutil.which("gfortran"):
        pytest.skip("needs mpifort and gfortran")
    (folder / "probe.f90").write_text("use mpi_f08\nend\n")
    if subprocess.run([mpifort, "-c", "probe.f90"], cwd=folder, capture_output=True).returncode:
        pytest.skip("this MPI has no module mpi_f08 for this gfortran")
    checks = ["-std=f2018", "-Wall", "-Wno-maybe-uninitialized", "-fcheck=bounds"]
    run([mpifort, *checks, *config("--fortran"), ROOT / source, *config("--libs"), "-o", "program"], folder)
    return folder / "program"


@pytest.mark.parametrize(
    ("build", "source", "printed"),
    [
        (cpp, "examples/redistribute.cpp", "the first column came from ranks 0 to 3"),
        (fortran, "examples/redistribute.f90", "the first row came from ranks 0. to 3."),
    ],
)
def test_example(build, source: str, printed: str, tmp_path: Path):
    code, output = launch(4, [str(build(source, tmp_path))], 60)
    assert code == 0 and printed in output, output


@pytest.mark.parametrize("ranks", [1, 3, 4])
@pytest.mark.parametrize(
    ("build", "source"), [(cpp, "tests/cpp/cpp_interface.cpp"), (fortran, "tests/cpp/fortran_interface.f90")]
)
def test_results_and_errors(build, source: str, ranks: int, tmp_path: Path):
    code, output = launch(ranks, [str(build(source, tmp_path))], 60)
    assert code == 0 and output.splitlines()[-1].strip() == "0 failures", output


def test_the_header_is_short():
    assert len(HEADER.read_text().splitlines()) <= 165
