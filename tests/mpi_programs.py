"""Compiles the C++ programs of ``tests/cpp`` that need MPI, with the MPI in use, and runs them."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from dace_redist.mpi.launch import launch
from dace_redist.native.toolchain import SOURCE_DIRECTORY, mpi_compiler

SOURCES = Path(__file__).parent / "cpp"
SWITCHES = ["-std=c++17", "-g", "-fopenmp", "-Wall", "-Wextra", "-Wshadow", "-I", str(SOURCE_DIRECTORY)]
SANITIZED = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
#: Threads that wait must not take the cores: there are more ranks than those.
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}


def build(name: str, folder: Path, *switches: str) -> Path:
    """
    Compile ``tests/cpp/<name>.cpp``.

    :param folder: Where to put the binary.
    :param switches: Further switches of the compiler.
    :return: The binary.
    """
    binary = folder / name
    command = [mpi_compiler(), *SWITCHES, *switches, str(SOURCES / f"{name}.cpp"), "-o", str(binary)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    if done.returncode != 0:
        pytest.fail(f"{shlex.join(command)}\n{done.stderr[-8000:]}", pytrace=False)
    return binary


def run(binary: Path, ranks: int, *arguments: str | int, timeout: float = 60) -> str:
    """Run a program under mpiexec; fails the test unless it returns 0. Returns what it printed."""
    code, printed = launch(ranks, [str(binary), *map(str, arguments)], timeout, environment=ENVIRONMENT)
    if code != 0:
        pytest.fail(f"{binary.name} on {ranks} ranks returned {code}\n{printed[-8000:]}", pytrace=False)
    return printed
