"""Code of programs besides their tasklets: objects in the program's state, memory allocated at its start, libraries."""

from __future__ import annotations

from typing import Any

import dace.library
from dace import SDFG, data, dtypes
from dace.codegen.common import sym2cpp, update_persistent_desc
from dace.config import Config
from dace.libraries.blas.environments.cublas import cuBLAS

# Memory allocated at program start

#: Keys in the ``location`` of an array: node-shared, see :class:`PlaceInSharedMemory`; and the number of a piece of
#: memory, which all arrays of the same number share.
NODE_SHARED, MEMORY_PIECE = "node_shared", "memory_piece"


def is_node_shared(array: data.Data) -> bool:
    """True if a program allocates this array in node-shared memory."""
    return NODE_SHARED in array.location and is_allocated_at_start(array)


def is_allocated_at_start(array: data.Data) -> bool:
    """True if this package's code allocates the array when a program starts, and frees it at its end."""
    placed = NODE_SHARED in array.location or MEMORY_PIECE in array.location
    return placed and array.transient and array.lifetime == dtypes.AllocationLifetime.External


def allocate_at_start(array: data.Data, location: dict[str, int]) -> None:
    """Let this package's code allocate an array when a program starts; ``location`` holds one of the keys above."""
    array.storage = dtypes.StorageType.CPU_Heap
    array.lifetime = dtypes.AllocationLifetime.External
    array.location = {**array.location, **location}


def _pieces(sdfg: SDFG) -> list[list[tuple[str, data.Data, SDFG]]]:
    """Return the arrays to allocate, grouped by shared memory: pointer in the program's state, descriptor, SDFG."""
    pieces: dict[object, list[tuple[str, data.Data, SDFG]]] = {}
    for owner, name, array in sdfg.arrays_recursive():
        if is_allocated_at_start(array):
            pointer = f"__state->__{owner.cfg_id}_{name}"
            key = (owner.cfg_id, array.location.get(MEMORY_PIECE, name))
            pieces.setdefault(key, []).append((pointer, array, owner))
    return list(pieces.values())


def _allocation(sdfg: SDFG) -> str:
    """Return the code that initialises MPI, unless the caller of the program has, and allocates arrays."""
    code = "int initialized; MPI_Initialized(&initialized); if (!initialized) MPI_Init(nullptr, nullptr);\n"
    for arrays in _pieces(sdfg):
        on_node = "true" if any(is_node_shared(array) for _, array, _ in arrays) else "false"
        counts = [sym2cpp(update_persistent_desc(array, owner).total_size) for _, array, owner in arrays]
        nbytes = [
            f"static_cast<std::int64_t>(sizeof({array.dtype.ctype}) * ({count}))"
            for (_, array, _), count in zip(arrays, counts, strict=True)
        ]
        code += f"{{ void* const piece = dace_redist::program::allocate({on_node}, {{{', '.join(nbytes)}}});\n"
        code += "".join(f"{at} = static_cast<{array.dtype.ctype}*>(piece);\n" for at, array, _ in arrays) + "}\n"
    return code


# Libraries; `dace_redist.native` is imported when a program is built, not to plan one

#: Header for the GPU code of a program, which accesses the program's state.
_NAMES = "dace_redist_names.hpp"


class _Plain:
    """Base environment with the empty attributes that DaCe requires."""

    cmake_minimum_version = None
    cmake_packages = cmake_includes = cmake_compile_flags = cmake_link_flags = state_fields = ()
    cmake_libraries: Any = ()
    cmake_files: Any = ()
    cmake_variables: Any = {}
    headers: Any = {}
    init_code: Any = ""
    finalize_code: Any = ""
    dependencies: Any = ()


@dace.library.environment
class RuntimeEnvironment(_Plain):
    """
    Environment of redistributions: the library, MPI, and memory for arrays allocated at program start, see
    :func:`is_allocated_at_start`.

    DaCe's own environment of MPI is not used: its compiler flags are a set, whose order differs between processes, so
    that DaCe often runs CMake again instead of repeating the commands of an earlier build.
    """

    cmake_packages = ["MPI"]
    cmake_libraries = ["MPI::MPI_CXX", "dace_redist::program"]  # targets: DaCe splits paths at spaces
    headers = {"frame": ["dace_redist_program.hpp"], "cuda": [_NAMES]}
    init_code = staticmethod(_allocation)

    @staticmethod
    def cmake_variables() -> dict[str, str]:
        """Return CMake's MPI compilers, unless the user sets them (``DACE_compiler_extra_cmake_args``)."""
        from dace_redist.native.toolchain import mpi_settings

        return {} if "MPI_CXX_COMPILER" in str(Config.get("compiler", "extra_cmake_args")) else mpi_settings()

    @staticmethod
    def cmake_files() -> list[str]:
        """Return the CMake files of the library of redistribution."""
        from dace_redist.native.cmake_build import cmake_package

        return [str(cmake_package())]

    @staticmethod
    def finalize_code(sdfg: SDFG) -> str:
        """Return the code that frees arrays."""
        return "".join(f"dace_redist::program::free({arrays[0][0]});\n" for arrays in _pieces(sdfg))


@dace.library.environment
class NumpyEnvironment(_Plain):
    """
    Environment of elementwise code with NumPy's values, also of -0.0, which DaCe's flags give up.

    NumPy rounds the product in ``a * b + c``: multiply and add are no single operation.
    """

    cmake_compile_flags = ("-fsigned-zeros -fno-reciprocal-math -ffp-contract=off",)
    headers = {"frame": ["dace_redist_numpy.hpp"], "cuda": ["dace_redist_numpy.hpp"]}
    dependencies = [RuntimeEnvironment]


@dace.library.environment
class DeviceEnvironment(_Plain):
    """
    Environment of arrays on a GPU. Its library is built with the program and loaded by the runtime, unless
    ``DACE_REDIST_DEVICE`` names another.
    """

    dependencies = [RuntimeEnvironment]

    @staticmethod
    def cmake_libraries() -> list[str]:
        """Build the library; return nothing to link."""
        from dace_redist.native.device import ensure_device_library

        ensure_device_library()
        return []


@dace.library.environment
class EinsumEnvironment(_Plain):
    """Environment of the library of contractions, with the BLAS of :func:`dace_redist.native.blas.find_blas`."""

    cmake_libraries = ["dace_redist_einsum::dace_redist_einsum"]
    dependencies = [RuntimeEnvironment]

    @staticmethod
    def cmake_files() -> list[str]:
        """Return the CMake files of the library."""
        from dace_redist.native import cmake_build, toolchain

        return [str(cmake_build.cmake_package(toolchain.EINSUM))]


@dace.library.environment
class CublasEnvironment(_Plain):
    """Environment of contractions on the GPU, with cuBLAS through DaCe's own environment."""

    headers = {"frame": ["dace_redist_cublas.hpp"], "cuda": [_NAMES]}
    dependencies = [DeviceEnvironment, EinsumEnvironment, cuBLAS]


@dace.library.environment
class BlasEnvironment(_Plain):
    """
    Environment of contractions and linear systems in main memory.

    The number of threads is ``OMP_NUM_THREADS``, by default 1: ranks share the cores of their node.
    """

    headers = {"frame": ["dace_redist_einsum.hpp"], "cuda": [_NAMES]}
    init_code = "dace_redist::program::limit_blas_threads();\n"
    dependencies = [EinsumEnvironment]
