"""What a program that contracts tensors is linked with: the library of contractions, which has a BLAS."""

from __future__ import annotations

import dace.library

from dace_redist.library_nodes.environment import Plain, Runtime
from dace_redist.native.library import ensure_library
from dace_redist.native.toolchain import EINSUM


def _einsum_library() -> list[str]:
    return [str(ensure_library(EINSUM))]


@dace.library.environment
class Blas(Plain):
    """
    The library of contractions and linear systems, with the BLAS of :func:`dace_redist.native.blas.find_blas`.

    It runs on as many threads as ``OMP_NUM_THREADS`` says, or on one: ranks share their node's cores.
    """

    cmake_libraries = staticmethod(_einsum_library)
    headers = {"frame": ["dace_redist_einsum.hpp"]}
    init_code = "dace_redist::program::limit_blas_threads();\n"
    dependencies = [Runtime]
