"""Every C++ header compiles alone, without a warning, and the C++ tests run clean under the sanitisers."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from mpi_programs import SANITIZED, compiled_room, mpi_flags

from dace_redist.native.blas import find_blas

ROOT = Path(__file__).resolve().parents[2]
ROOMS = [ROOT / "dace_redist" / room for room in ("runtime", "contraction", "scalapack")]
FOLDERS = [folder for room in ROOMS for folder in (room / "src", room / "include") if folder.exists()]
#: The header for cuBLAS, which few machines have; it has a test of its own.
CUBLAS = "dace_redist_cublas.hpp"
HEADERS = sorted(header.relative_to(folder).as_posix() for folder in FOLDERS for header in folder.rglob("*.h*"))
HEADERS.remove(CUBLAS)
INCLUDES = [option for folder in FOLDERS for option in ("-I", str(folder))]
PROGRAMS = sorted(Path(__file__).parent.glob("test_*.cpp"))
#: Sources of the kernels, which each program is linked with.
COPIES = [str(source) for source in sorted(FOLDERS[0].glob("copy/*.cpp"))]
CONTRACTIONS = [str(source) for source in sorted(FOLDERS[2].glob("*.cpp"))]
#: In place of a program's own number, as the sanitisers make it slow.
RANDOM_CASES, RANDOM_CASES_OF = "150", {"test_device_copy": "40", "test_array_allocator": "2000"}
#: Sources of the runtime that a program is linked with.
LINKED = {
    "test_array_allocator": [f"shm/{name}.cpp" for name in ("arena", "array_allocator", "available_memory", "xpmem")],
    "test_device_copy": ["device/copy_kernel.cpp"],
}
#: Options that a program is linked with.
LINK_OPTIONS = {"test_array_allocator": ["-Wl,--wrap=sysconf,--wrap=madvise"]}
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Werror"]

pytestmark = pytest.mark.compile


@cache
def blas_flags() -> list[str]:
    """Include options and macros of the BLAS in use."""
    blas = find_blas()
    return [*(f"-isystem{path}" for path in blas.include_directories), *blas.definitions]


def complaints(compiler: str, *arguments: str, folder: Path | None = None) -> str:
    """Run a compiler in a folder and return its output if it failed; skip the test if it is not installed."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} on this machine")
    done = subprocess.run([compiler, *WARNINGS, *INCLUDES, *arguments], capture_output=True, text=True, cwd=folder)
    return "" if done.returncode == 0 else f"{shlex.join(done.args)}\n{done.stderr}"


def check_syntax(compiler: str, standard: str, source: Path, headers: list[str]) -> str:
    """Compile a file that only includes ``headers``, each twice."""
    source.write_text("".join(f"#include <{header}>\n" for header in headers * 2))
    return complaints(compiler, f"-std={standard}", "-fsyntax-only", *mpi_flags(), *blas_flags(), str(source))


@pytest.mark.lint
def test_each_header_compiles_alone(tmp_path):
    def check(header: str) -> str:
        return check_syntax("g++", "c++17", tmp_path / f"{header.replace('/', '-')}.cpp", [header])

    assert HEADERS
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = [text for text in pool.map(check, HEADERS) if text]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.lint
def test_contractions_compile_without_a_warning():
    found = complaints("g++", "-std=c++17", "-fsyntax-only", *mpi_flags(), *blas_flags(), *CONTRACTIONS)
    if found:
        pytest.fail(found, pytrace=False)


def test_header_for_cublas(tmp_path):
    there = complaints("g++", "-fsyntax-only", "-include", "cublas_v2.h", "-x", "c++", os.devnull)
    if there:
        pytest.skip("no cublas_v2.h where g++ looks for headers (CPATH)")
    found = check_syntax("g++", "c++17", tmp_path / "cublas.cpp", [CUBLAS])
    if found:
        pytest.fail(found, pytrace=False)


@pytest.mark.parametrize(("compiler", "standard"), [("g++", "c++20"), ("clang++", "c++17")])
def test_all_headers_compile_together(compiler, standard, tmp_path):
    found = check_syntax(compiler, standard, tmp_path / "all.cpp", HEADERS)
    if found:
        pytest.fail(found, pytrace=False)


@pytest.mark.parametrize("compiler", ["g++", pytest.param("clang++", marks=pytest.mark.full)])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_program_runs_clean(program, compiler, tmp_path):
    """
    These are MPI-free; undefined behaviour and memory errors end them. The argument: how many random cases.

    By clang without OpenMP, which it may lack, and for any processor: kernels differ by what it has.
    """
    binary = tmp_path / program.stem
    sources = [str(program), *(str(FOLDERS[0] / source) for source in LINKED.get(program.stem, []))]
    if compiler == "g++":
        sources += [str(compiled_room("copy", SANITIZED)), *SANITIZED, "-fopenmp"]
    else:
        sources += [*COPIES, *(switch for switch in SANITIZED if switch != "-march=native")]
    switches = ["-std=c++17", "-g", "-pthread", *LINK_OPTIONS.get(program.stem, [])]
    found = complaints(compiler, *switches, *sources, "-o", str(binary))
    if "cannot find" in found and ("libclang_rt" in found or "asan" in found):
        pytest.skip(f"{compiler} has no sanitiser libraries here (Debian: apt-get install libclang-rt-dev)")
    if found:
        pytest.fail(found, pytrace=False)
    cases = RANDOM_CASES_OF.get(program.stem, RANDOM_CASES)
    done = subprocess.run([binary, cases], capture_output=True, text=True, timeout=240)
    said = f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    assert done.returncode == 0, f"{program.name} returned {done.returncode}\n{said}"
