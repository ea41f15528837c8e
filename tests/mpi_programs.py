"""
Compiles the C++ programs of ``tests/cpp`` that need MPI, with the MPI in use, and runs them.

What is compiled lies in the cache folder, beside the libraries, and is made again when a source changes. The strategies
are compiled once for all programs that want the same switches.
"""

from __future__ import annotations

import hashlib
import shlex
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import filelock
import pytest

from dace_redist.mpi.launch import launch
from dace_redist.native.library import ensure_library
from dace_redist.native.toolchain import INCLUDE_DIRECTORY, SOURCE_DIRECTORY, build_directory, mpi_compiler

SOURCES = Path(__file__).parent / "cpp"
SWITCHES = ["-std=c++17", "-g", "-fopenmp", "-Wall", "-Wextra", "-Wshadow"]
SWITCHES += [f"-I{folder}" for folder in (SOURCE_DIRECTORY, INCLUDE_DIRECTORY)]
#: Unoptimised: compiling takes a quarter of the time, and running twice as long, which is less.
SANITIZED = ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
#: The redistribution of arrays in main memory, without the public interfaces.
STRATEGIES = [
    *(
        source
        for folder in ("copy", "core", "exchange", "layout", "plan", "trace")
        for source in sorted(SOURCE_DIRECTORY.glob(f"{folder}/*.cpp"))
        if source.name not in ("nccl.cpp", "joint_plan.cpp", "program_plan.cpp", "sum_replicas.cpp")
    ),
    SOURCES / "no_device.cpp",
]
#: Threads that wait must not take the cores: there are more ranks than those.
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}


@cache
def build(name: str, *switches: str) -> Path:
    """
    Compile ``tests/cpp/<name>.cpp`` and link it with the strategies.

    :param switches: Further switches of the compiler.
    :return: The program.
    """
    sources = (SOURCES / f"{name}.cpp", *sorted(SOURCES.glob("*.hpp")))
    strategies = _compiled("strategies.o", [*switches, "-c"], STRATEGIES)
    return _compiled(name, [*switches, "-I", str(SOURCES), str(strategies)], sources[:1], sources)


@cache
def build_with_library(name: str) -> Path:
    """
    Compile ``tests/cpp/<name>.cpp`` and link it with libdace_redist.

    :return: The program.
    """
    library, source = ensure_library(), SOURCES / f"{name}.cpp"
    return _compiled(name, ["-O1", str(library), f"-Wl,-rpath,{library.parent}"], [source], [source])


def _compiled(name: str, switches: Sequence[str], sources: Sequence[Path], changes: Sequence[Path] = ()) -> Path:
    """A file made of all sources at once, unless it is there; the runtime's sources are in the folder's name."""
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


def run(binary: Path, ranks: int, *arguments: str | int, timeout: float = 60) -> str:
    """Run a program under mpiexec; fails the test unless it returns 0. Returns what it printed."""
    code, printed = launch(ranks, [str(binary), *map(str, arguments)], timeout, environment=ENVIRONMENT)
    if code != 0:
        pytest.fail(f"{binary.name} on {ranks} ranks returned {code}\n{printed[-8000:]}", pytrace=False)
    return printed
