"""The C interface: the example, misuse, Makefiles (``dace-redist config``) and CMake."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from launching import launch

from dace_redist.mpi.launch import mpi_environment
from dace_redist.native.toolchain import mpi_compiler

ROOT = Path(__file__).resolve().parents[2]
WARNINGS = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]

pytestmark = [pytest.mark.compile, pytest.mark.mpi_matrix]


def config(*arguments: str) -> list[str]:
    """Return the output of ``dace-redist config``, as words."""
    command = [sys.executable, "-m", "dace_redist.cli", "config", *arguments]
    return shlex.split(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def compiled(source: Path, folder: Path) -> Path:
    """A C program, compiled as README says."""
    mpicc, binary = Path(mpi_compiler()).with_name("mpicc"), folder / source.stem
    command = [mpicc, *WARNINGS, source, *config("--cflags", "--libs"), "-o", binary]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return binary


@pytest.mark.parametrize("example", ["redistribute.c", "alltoallw.c"])
def test_example(tmp_path: Path, example: str):
    code, printed = launch(4, [str(compiled(ROOT / "examples" / example, tmp_path))], 60)
    assert code == 0 and "the first column came from ranks 0 to 3" in printed, printed


@pytest.mark.parametrize("ranks", [1, 3])
def test_misuse_returns_codes(tmp_path: Path, ranks: int):
    code, printed = launch(ranks, [str(compiled(ROOT / "tests" / "cpp" / "c_misuse.c", tmp_path))], 60)
    assert code == 0 and "0 failures" in printed, printed


def test_cmake_package(tmp_path: Path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(example C)\nfind_package(MPI REQUIRED COMPONENTS C)\n"
        "find_package(dace_redist REQUIRED)\n"
        f"add_executable(example {ROOT / 'examples' / 'redistribute.c'})\n"
        "target_link_libraries(example PRIVATE dace_redist::dace_redist MPI::MPI_C)\n"
    )
    environment, build = os.environ | mpi_environment(), tmp_path / "build"
    (folder,) = config("--cmakedir")
    for command in (
        ["cmake", "-S", tmp_path, "-B", build, f"-Ddace_redist_DIR={folder}"],
        ["cmake", "--build", build],
    ):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
    code, printed = launch(2, [str(build / "example")], 60)
    assert code == 0 and "from ranks 0 to 1" in printed, printed
