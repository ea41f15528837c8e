"""Shared libraries that tests compile against that of the package, once for all tests."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import filelock

from dace_redist.mpi.collective import sleeping_barrier
from dace_redist.native.toolchain import SOURCE_DIRECTORY, library_path, mpi_compiler

FOLDER = Path(__file__).resolve().parent / "cpp"


def compiled(name: str) -> Path:
    """Return the library of a source file of :data:`FOLDER`; compile it unless it exists."""
    source = FOLDER / f"{name}.cpp"
    digest = hashlib.blake2b(source.read_bytes() + str(library_path()).encode(), digest_size=8).hexdigest()
    library = Path(os.environ["DACE_default_build_folder"], f"lib{name}_{digest}.so")
    library.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(library.with_suffix(".lock")):
        if not library.exists():
            config = [sys.executable, "-m", "dace_redist.cli", "config", "--cflags", "--libs"]
            options = shlex.split(subprocess.run(config, check=True, capture_output=True, text=True).stdout)
            command = [
                mpi_compiler(),
                "-std=c++17",
                "-fPIC",
                "-shared",
                f"-I{SOURCE_DIRECTORY}",
                str(source),
                *options,
                "-o",
                str(library),
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
    return library


def compiled_by_one(comm: Any, name: str) -> Path:
    """Compile a library on rank 0, while the others sleep. Collective."""
    library = compiled(name) if comm.rank == 0 else None
    sleeping_barrier(comm)
    found: Path = comm.bcast(library)
    return found
