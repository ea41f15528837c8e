"""What a program that redistributes is compiled with: the headers of this package, and MPI."""

from __future__ import annotations

import os

import dace.library
from dace import SDFG, data, dtypes
from dace.codegen.common import sym2cpp, update_persistent_desc
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


#: Key in the ``location`` of an array that lies in node-shared memory, see :class:`PlaceInSharedMemory`.
NODE_SHARED = "node_shared"


def is_node_shared(array: data.Data) -> bool:
    """Whether a program allocates this array in node-shared memory."""
    return NODE_SHARED in array.location and array.lifetime == dtypes.AllocationLifetime.External


def _node_shared_arrays(sdfg: SDFG) -> list[tuple[str, str, str]]:
    """Pointer in the program's state, C++ type and number of elements of each array in node-shared memory."""
    return [
        (
            f"__state->__{owner.cfg_id}_{name}",
            array.dtype.ctype,
            sym2cpp(update_persistent_desc(array, owner).total_size),
        )
        for owner, name, array in sdfg.arrays_recursive()
        if is_node_shared(array)
    ]


def _allocate_arrays(sdfg: SDFG) -> str:
    return "".join(
        f"{pointer} = static_cast<{ctype}*>(dace_redist::allocate_shared_or_heap(sizeof({ctype}) * ({count})));\n"
        for pointer, ctype, count in _node_shared_arrays(sdfg)
    )


def _free_arrays(sdfg: SDFG) -> str:
    return "".join(f"dace_redist::free_shared({pointer});\n" for pointer, _, _ in _node_shared_arrays(sdfg))


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
    init_code = staticmethod(_allocate_arrays)
    finalize_code = staticmethod(_free_arrays)
    dependencies = [MPI]
