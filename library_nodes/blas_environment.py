"""What a program that contracts tensors is compiled with: the headers of this package, and a BLAS."""

from __future__ import annotations

import dace.library

from dace_redist.library_nodes.environment import Memory, Plain, Runtime
from dace_redist.native.blas import find_blas


def _include_directories() -> list[str]:
    return list(find_blas().include_directories)


def _libraries() -> list[str]:
    return [find_blas().library]


def _definitions() -> list[str]:
    return list(find_blas().definitions)


@dace.library.environment
class Blas(Plain):
    """
    The header-only runtime of contractions, and the BLAS that :func:`dace_redist.native.blas.find_blas` chooses.

    It runs on as many threads as ``OMP_NUM_THREADS`` says, or on one: ranks share their node's cores.
    """

    cmake_includes = staticmethod(_include_directories)
    cmake_libraries = staticmethod(_libraries)
    cmake_compile_flags = staticmethod(_definitions)
    headers = {"frame": ["contraction/call.hpp"]}
    init_code = "dace_redist::blas::limit_threads();\n"
    dependencies = [Memory]


@dace.library.environment
class Lapack(Plain):
    """The header-only runtime of linear systems; LAPACK is a part of every BLAS that is chosen here, MPI comes too."""

    headers = {"frame": ["contraction/linear_solve.hpp"]}
    dependencies = [Blas, Runtime]
