"""The C, C++ and Fortran interfaces: their examples, programs that check results and errors, Makefiles and CMake."""

from __future__ import annotations

import itertools
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from launching import launch, long_waits
from mpi_programs import mpifort
from redistribution import scalapack

from dace_redist import _core
from dace_redist._version import __version__
from dace_redist.mpi.launch import mpi_environment
from dace_redist.native.cmake_build import ensure_library
from dace_redist.native.toolchain import EINSUM, REDISTRIBUTION, mpi_compiler

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
    libraries = [*config("--libs"), "-lm"]
    if "pdgesv" in (ROOT / source).read_text():
        if reason := scalapack.library_missing():
            pytest.skip(reason)
        libraries.append(os.environ.get(scalapack.VARIABLE, "-lscalapack-openmpi"))
    run(compiler, *switches, ROOT / source, *libraries, "-o", "program", folder=folder)
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
    checks = ["-std=f2018", "-Wall", "-Werror", "-Wno-maybe-uninitialized", "-fcheck=bounds"]
    return compiled(mpifort(folder), source, folder, *checks, *config("--fortran"))


@pytest.mark.parametrize(
    ("build", "source", "printed"),
    [
        (c, "redistribute.c", "the first column came from ranks 0 to 3"),
        (c, "alltoallw.c", "the first column came from ranks 0 to 3"),
        (c, "solve.c", "x solves A x = b"),
        (cpp, "redistribute.cpp", "the first column came from ranks 0 to 3"),
        (fortran, "redistribute.f90", "the first row came from ranks 0. to 3."),
        (fortran, "solve.f90", "x solves A x = b"),
    ],
)
def test_example(build: Build, source: str, printed: str, tmp_path: Path):
    program = build(f"examples/{source}", tmp_path)
    for ranks in (4, 3) if "solve" in source else (4,):  # a grid of 2 x 2, and of 3 x 1 with uneven parts
        code, output = launch(ranks, [program], 60)
        assert code == 0 and printed in output, output


@pytest.mark.parametrize(
    ("build", "source", "ranks"),
    [(c, "c_misuse.c", (1, 3)), (cpp, "cpp_interface.cpp", (1, 3, 4)), (fortran, "fortran_interface.f90", (1, 3, 4))],
)
def test_results_and_errors(build: Build, source: str, ranks: tuple[int, ...], tmp_path: Path):
    program = build(f"tests/cpp/{source}", tmp_path)
    for count in ranks:
        check_no_failures(count, program, str(tmp_path))
    if build is fortran:
        assert np.array_equal(np.load(tmp_path / "fortran.npy"), np.add.outer(100 * np.arange(1, 14), np.arange(1, 12)))


def check_no_failures(ranks: int, *command: str) -> None:
    code, output = launch(ranks, command, 60)
    assert code == 0 and output.splitlines()[-1].strip() == "0 failures", output


@pytest.mark.parametrize("ranks", [1, 5])
def test_groups_and_files(ranks: int, tmp_path: Path):
    """Files of NumPy are read by C, and those of C by NumPy."""
    wholes = [np.arange(float(math.prod(shape))).reshape(shape) for shape in ((), (11,), (7, 5), (4, 3, 6))]
    for (number, whole), order in itertools.product(enumerate(wholes), "CF"):
        np.save(tmp_path / f"given{number}{order}.npy", np.asarray(whole, order=order))
    np.save(tmp_path / "float32.npy", wholes[2].astype("f4"))
    complete = (tmp_path / "given2C.npy").read_bytes()
    (tmp_path / "short.npy").write_bytes(complete[:-1])
    (tmp_path / "damaged.npy").write_bytes(complete[1:])
    check_no_failures(ranks, c("tests/cpp/groups_and_files.c", tmp_path), str(tmp_path))
    made = sorted(tmp_path.glob("made*"))
    assert len(made) == 40 and not list(tmp_path.glob(".*"))
    for path in made:
        whole, order = wholes[int(path.name[4])], path.name[5]
        if path.suffix == ".npy":
            found = np.load(path)
            assert found.flags.f_contiguous if order == "F" else found.flags.c_contiguous
        else:
            found = np.fromfile(path, offset=24).reshape(whole.shape, order=order)
        np.testing.assert_array_equal(found, whole)


def test_missing_ranks_of_a_c_program_are_named(tmp_path: Path):
    code, output = launch(3, [c("tests/cpp/late.c", tmp_path)], 60, environment={"DACE_REDIST_WAIT_MESSAGE": "0.5"})
    assert code == 0, output
    operations = ("the first plan of a communicator", 'a plan of "rows"', 'a transfer of "rows"', "a plan")
    said = sorted((name, rank) for rank, name, late in long_waits(output) if 2 in late)
    assert said == sorted((name, rank) for name in operations for rank in (0, 1)), output


@pytest.mark.parametrize("version", ["", "0.1", "0.1.0 EXACT"])
def test_cmake_package(version: str, tmp_path: Path):
    done = configured(version, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    if version:
        return
    run("cmake", "--build", "build", folder=tmp_path)
    code, printed = launch(2, [str(tmp_path / "build" / "example")], 60)
    assert code == 0 and "from ranks 0 to 1" in printed, printed


@pytest.mark.parametrize("version", ["0.0.1", "0.1.1", "0.2", "1"])
def test_cmake_package_of_another_version(version: str, tmp_path: Path):
    done = configured(version, tmp_path)
    assert done.returncode != 0 and f"dace_redistConfig.cmake, version: {__version__}" in done.stderr, done.stderr


def configured(version: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Configure a project that needs a version of the package."""
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(example C)\nfind_package(MPI REQUIRED COMPONENTS C)\n"
        f"find_package(dace_redist {version} REQUIRED)\n"
        f"add_executable(example {ROOT / 'examples' / 'redistribute.c'})\n"
        "target_link_libraries(example PRIVATE dace_redist::dace_redist MPI::MPI_C)\n"
    )
    (package,) = config("--cmakedir")
    command = ["cmake", "-S", ".", "-B", "build", f"-Ddace_redist_DIR={package}"]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=os.environ | mpi_environment())


def test_libraries_export_public_functions_only():
    exported = []
    for library in (ensure_library(REDISTRIBUTION), ensure_library(EINSUM), Path(_core.__file__)):
        command = ["nm", "-DC", "--defined-only", str(library)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        exported.append({line.split(maxsplit=2)[2] for line in printed.splitlines()})
    public = re.compile(r"dr_\w+|.*\bdace_redist::((library|program)::.*|current_device\(\))")
    assert all(exported) and [name for names in exported[:2] for name in names if not public.fullmatch(name)] == []
    assert not any(first & second for first, second in itertools.combinations(exported, 2))


def test_calls_after_mpi_is_finalized(tmp_path: Path):
    """Each raises an error; none ends the process."""
    (tmp_path / "program.py").write_text(AFTER_MPI)
    code, printed = launch(2, [sys.executable, str(tmp_path / "program.py")], 60)
    assert code == 0 and printed.count("errors: 8") == 2, printed


AFTER_MPI = """
import numpy as np
from mpi4py import MPI
import dace_redist as dr
rows, columns = dr.Distribution((6, 4), (2, 1)), dr.Distribution((6, 4), (1, 2))
rank = MPI.COMM_WORLD.rank
a, b = np.ones(rows.local_shape(rank)), np.ones(columns.local_shape(rank))
cached, other = MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup()
dr.redistribute(a, rows, columns, comm=cached)
made, started = (dr.plan(rows, columns, "float64", comm=cached) for _ in range(2))
request = started.start(a, b)
MPI.COMM_WORLD.Barrier()
while not request.test():
    pass
array = dr.DistributedArray(a, rows, cached)
multiply = dr.einsum_plan("ij,kj->ik", array, array)
MPI.Finalize()
calls = [
    lambda: made(a, b),
    lambda: made.start(a, b),
    lambda: dr.plan(rows, columns, "float64", comm=cached),
    lambda: dr.redistribute(a, rows, columns, comm=cached),
    lambda: dr.redistribute(a, rows, columns, comm=other),
    lambda: dr.redistribute(a, columns, rows),
    lambda: array.redistribute(columns),
    lambda: multiply(array, array),
]
errors = 0
for call in calls:
    try:
        call()
    except dr.RedistributionError as error:
        errors += "finalized" in str(error)
print(f"errors: {errors}", flush=True)
"""
