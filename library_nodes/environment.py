"""What a program that redistributes is compiled with: the headers of this package, and MPI."""

from __future__ import annotations

import os

import dace.library
from dace.config import Config
from dace.libraries.comm.environments.mpi import MPI

import dace_redist
from dace_redist.program import mpi_compiler


def _cmake_variables() -> dict[str, str]:
    """Which MPI, unless the user told CMake (``DACE_compiler_extra_cmake_args``)."""
    if "MPI_CXX_COMPILER" in str(Config.get("compiler", "extra_cmake_args")):
        return {}
    compiler = mpi_compiler()
    of_c = os.path.join(os.path.dirname(compiler), "mpicc")  # CMake looks for both and must not mix two MPIs
    return {"MPI_CXX_COMPILER": compiler} | ({"MPI_C_COMPILER": of_c} if os.access(of_c, os.X_OK) else {})


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
