"""The C, C++ and Fortran interfaces: their examples, programs that check results and errors, Makefiles and CMake."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from launching import launch

from dace_redist.mpi.launch import mpi_environment
from dace_redist.native.toolchain import mpi_compiler

ROOT = Path(__file__).resolve().parents[2]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
Build = Callable[[str, Path], str]

pytestmark = [pytest.mark.compile, pytest.mark.mpi_matrix]


def config(*arguments: str) -> list[str]:
    """Return the output of ``dace-redist config``, as words."""
    command = [sys.executable, "-m", "dace_redist.cli", "config", *arguments]
    return shlex.split(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run(*command: object, folder: Path) -> None:
    environment = os.environ | mpi_environment()
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def compiled(compiler: object, source: str, folder: Path, *switches: str) -> str:
    run(compiler, *switches, ROOT / source, *config("--libs"), "-o", "program", folder=folder)
    return str(folder / "program")


def c(source: str, folder: Path) -> str:
    """A C program, compiled as README says."""
    mpicc = Path(mpi_compiler()).with_name("mpicc")
    return compiled(mpicc, source, folder, "-std=c99", *WARNINGS, *config("--cflags"))


def cpp(source: str, folder: Path) -> str:
    """A C++ program, compiled as its manual page says."""
    return compiled(mpi_compiler(), source, folder, "-std=c++17", *WARNINGS, "-Wshadow", *config("--cflags"))


def fortran(source: str, folder: Path) -> str:
    """A Fortran program, compiled as its manual page says."""
    mpifort = Path(mpi_compiler()).with_name("mpifort")
    if not mpifort.exists() or not shutil.which("gfortran"):
        pytest.skip("needs mpifort and gfortran")
    (folder / "probe.f90").write_text("use mpi_f08\nend\n")
    if subprocess.run([mpifort, "-c", "probe.f90"], cwd=folder, capture_output=True).returncode:
        pytest.skip("this MPI has no module mpi_f08 for this gfortran")
    checks = ["-std=f2018", "-Wall", "-Werror", "-Wno-maybe-uninitialized", "-fcheck=bounds"]
    return compiled(mpifort, source, folder, *checks, *config("--fortran"))


@pytest.mark.parametrize(
    ("build", "source", "printed"),
    [
        (c, "redistribute.c", "the first column came from ranks 0 to 3"),
        (c, "alltoallw.c", "the first column came from ranks 0 to 3"),
        (cpp, "redistribute.cpp", "the first column came from ranks 0 to 3"),
        (fortran, "redistribute.f90", "the first row came from ranks 0. to 3."),
    ],
)
def test_example(build: Build, source: str, printed: str, tmp_path: Path):
    code, output = launch(4, [build(f"examples/{source}", tmp_path)], 60)
    assert code == 0 and printed in output, output


@pytest.mark.parametrize(
    ("build", "source", "ranks"),
    [(c, "c_misuse.c", (1, 3)), (cpp, "cpp_interface.cpp", (1, 3, 4)), (fortran, "fortran_interface.f90", (1, 3, 4))],
)
def test_results_and_errors(build: Build, source: str, ranks: tuple[int, ...], tmp_path: Path):
    program = build(f"tests/cpp/{source}", tmp_path)
    for count in ranks:
        code, output = launch(count, [program], 60)
        assert code == 0 and output.splitlines()[-1].strip() == "0 failures", output


def test_cmake_package(tmp_path: Path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(example C)\nfind_package(MPI REQUIRED COMPONENTS C)\n"
        "find_package(dace_redist REQUIRED)\n"
        f"add_executable(example {ROOT / 'examples' / 'redistribute.c'})\n"
        "target_link_libraries(example PRIVATE dace_redist::dace_redist MPI::MPI_C)\n"
    )
    (folder,) = config("--cmakedir")
    run("cmake", "-S", ".", "-B", "build", f"-Ddace_redist_DIR={folder}", folder=tmp_path)
    run("cmake", "--build", "build", folder=tmp_path)
    code, printed = launch(2, [str(tmp_path / "build" / "example")], 60)
    assert code == 0 and "from ranks 0 to 1" in printed, printed
