"""
The copy kernels and the protocols of a node are right on 64-bit ARM, whose memory order is weaker than that of x86-64:
cross-compiled, and run by an emulator (Debian: g++-aarch64-linux-gnu, qemu-user).
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from mpi_programs import SOURCES, SWITCHES, mpi_flags

from dace_redist.native.toolchain import SOURCE_DIRECTORY

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
COPIES = sorted(SOURCE_DIRECTORY.glob("copy/*.cpp"))
PROTOCOLS = [
    path for room in ("core", "layout", "copy", "trace", "shm") for path in SOURCE_DIRECTORY.glob(f"{room}/*.cpp")
]
PROTOCOLS += [*SOURCE_DIRECTORY.glob("transport/node_*.cpp"), SOURCE_DIRECTORY / "transport" / "message.cpp"]
WRAPPED = "-Wl,--wrap=mmap,--wrap=munmap,--wrap=process_vm_readv"
#: The program does not start MPI, of which there is no library for ARM here.
NO_MPI = 'extern "C" int MPI_Finalized(int* finalized) {\n  *finalized = 1;\n  return 0;\n}\n'

pytestmark = [pytest.mark.compile, pytest.mark.full]


def emulated(tmp_path: Path, sources: list[Path | str], *switches: str, arguments: tuple[str, ...] = ()) -> str:
    """Compile a program for ARM and return what it prints; skip the test where that cannot be done."""
    for tool in (COMPILER, EMULATOR):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} on this machine")
    program = tmp_path / "program"
    command = [COMPILER, "-static", "-O1", "-pthread", *SWITCHES, *switches]
    subprocess.run([*command, *map(str, sources), "-o", str(program)], check=True, timeout=300)
    done = subprocess.run([EMULATOR, str(program), *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_copies(tmp_path):
    assert "checks passed" in emulated(tmp_path, [SOURCES / "test_copy.cpp", *COPIES], arguments=("150",))


def test_protocols_between_two_threads(tmp_path):
    (tmp_path / "no_mpi.cpp").write_text(NO_MPI)
    sources = [SOURCES / "threads.cpp", tmp_path / "no_mpi.cpp", *PROTOCOLS]
    emulated(tmp_path, sources, "-I", str(SOURCES), *mpi_flags(), WRAPPED, "-Wl,--unresolved-symbols=ignore-all")
