"""Compiled libraries of the package: built once per MPI, compiler and processor, and kept in the cache folder."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from dace_redist.native.toolchain import INCLUDE_DIRECTORY, REDISTRIBUTION, is_built, library_path


def ensure_library(name: str = REDISTRIBUTION) -> Path:
    """
    Return the path of one of :data:`dace_redist.native.toolchain.LIBRARIES`, built if need be. Not collective.

    Of several processes one builds; the others wait.

    :raises BuildError: If it cannot be built; says what the compiler said, or what is missing.
    :raises OSError: If the cache folder cannot be written; names the variable that moves it.
    """
    path = library_path(name)
    if is_built(name):
        return path
    from dace_redist.native.cmake_build import build_library  # rarely needed, and what it needs loads slowly

    build_library(name, path)
    return path


_CMAKE_PACKAGE = """\
if(NOT TARGET dace_redist::dace_redist)
  add_library(dace_redist::dace_redist SHARED IMPORTED)
  set_target_properties(dace_redist::dace_redist PROPERTIES IMPORTED_LOCATION "{library}"
    INTERFACE_INCLUDE_DIRECTORIES "{include}")
endif()
"""


def cmake_directory() -> Path:
    """
    Return the folder of a CMake package, by which ``find_package`` gives the target ``dace_redist::dace_redist``.

    The project finds and links MPI itself, for its own language.
    """
    library = ensure_library()
    folder = library.parent / "cmake"
    folder.mkdir(exist_ok=True)
    package = _CMAKE_PACKAGE.format(library=library, include=INCLUDE_DIRECTORY)
    (folder / "dace_redistConfig.cmake").write_text(package)
    return folder


@functools.cache
def load_library(name: str = REDISTRIBUTION) -> ctypes.CDLL:
    """Load a library into this process, built if need be, see :func:`ensure_library`."""
    return ctypes.CDLL(str(ensure_library(name)))
