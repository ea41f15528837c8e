"""Compiled libraries of the package: those that came with it, others built once and kept in the cache folder."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from dace_redist._version import __version__
from dace_redist.errors import BuildError
from dace_redist.mpi.launch import launched_rank, mpi_name
from dace_redist.native.loaded_mpi import mpi_in_use
from dace_redist.native.toolchain import (
    CACHE_VARIABLE,
    CUDA,
    EINSUM,
    EINSUM_INCLUDE_DIRECTORY,
    INCLUDE_DIRECTORY,
    LIBRARIES,
    NO_COMPILER,
    PACKAGE_DIRECTORY,
    REDISTRIBUTION,
    build_directory,
    build_environment,
    cuda_compiler,
    cuda_key,
    is_built,
    library_path,
    mpi_compiler,
    mpi_settings,
    packaged,
    processor_levels,
)

#: Seconds after which a process says that it waits.
_SECONDS_BEFORE_NOTICE = 2.0


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path):
            if not is_built(name):
                _build(name, path)
    except BuildError as error:
        raise BuildError(f"cannot build the library of {LIBRARIES[name]}: {error}") from error
    except OSError as error:
        raise OSError(
            error.errno, f"cannot write {path.parent} ({error.strerror}); set {CACHE_VARIABLE} to another folder"
        ) from error
    return path


_CMAKE_PACKAGE = """\
if(NOT TARGET {name}::{name})
  add_library({name}::{name} SHARED IMPORTED)
  set_target_properties({name}::{name} PROPERTIES IMPORTED_LOCATION "{library}"
    INTERFACE_INCLUDE_DIRECTORIES "{include}")
  # For DaCe programs, which take twice as long to compile with Open MPI 4's C++ bindings, gone from MPI.
  add_library({name}::program INTERFACE IMPORTED)
  set_target_properties({name}::program PROPERTIES INTERFACE_LINK_LIBRARIES {name}::{name}
    INTERFACE_COMPILE_DEFINITIONS "OMPI_SKIP_MPICXX;MPICH_SKIP_MPICXX")
endif()
"""

#: As CMake's SameMinorVersion.
_CMAKE_VERSION = """\
set(PACKAGE_VERSION {version})
string(REGEX MATCH "^[0-9]+[.][0-9]+" minor ${{PACKAGE_VERSION}})
if(minor VERSION_EQUAL "${{PACKAGE_FIND_VERSION_MAJOR}}.${{PACKAGE_FIND_VERSION_MINOR}}" AND
    PACKAGE_FIND_VERSION VERSION_LESS_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
"""


def cmake_package(name: str = REDISTRIBUTION) -> Path:
    """
    Return a CMake file with the target ``NAME::NAME`` of a library, built if need be.

    Projects find and link MPI themselves.
    """
    library = ensure_library(name)
    folder = (build_directory() if library == packaged() else library.parent) / "cmake"
    include = f"{INCLUDE_DIRECTORY};{EINSUM_INCLUDE_DIRECTORY}" if name == EINSUM else INCLUDE_DIRECTORY
    facts = {"name": name, "library": library, "include": include, "version": __version__}
    for end, text in (("ConfigVersion", _CMAKE_VERSION), ("Config", _CMAKE_PACKAGE)):
        file, text = folder / f"{name}{end}.cmake", text.format(**facts)
        if not file.exists() or file.read_text() != text:  # by a newer file DaCe would not reuse its CMake results
            folder.mkdir(parents=True, exist_ok=True)
            part = folder / f"{name}.{os.uname().nodename}.{os.getpid()}.part"
            part.write_text(text)
            part.replace(file)
    return file


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file that is built; a process that waits for it says so."""
    import filelock  # loads slowly, as the other imports in functions here: a built library needs none of them

    lock = filelock.FileLock(path.with_suffix(".lock"))
    try:
        lock.acquire(timeout=_SECONDS_BEFORE_NOTICE)
    except filelock.Timeout:
        if launched_rank() in (None, 0):  # the others of a job wait alike
            print(f"dace-redist: waiting for another process that builds {path}", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _build(name: str, path: Path) -> None:
    import tempfile

    begin, settings = time.monotonic(), _settings(name)
    why = f": {packaged()}" if name == REDISTRIBUTION else ""
    print(
        f"dace-redist: building the library of {LIBRARIES[name]} for {mpi_name(mpi_in_use().version)}, once for this "
        f"MPI and processor (up to a minute){why}",
        file=sys.stderr,
    )
    with tempfile.TemporaryDirectory(prefix="build-", dir=path.parent) as folder:
        _run(["cmake", "-S", str(PACKAGE_DIRECTORY), "-B", folder, *settings])
        _run(["cmake", "--build", folder, "--target", name, "--parallel", str(len(os.sched_getaffinity(0)))])
        path.with_suffix(".seconds").write_text(f"{time.monotonic() - begin:.0f}")
        os.replace(Path(folder, path.name), path)  # at once: whoever sees the library sees all of it
    if name == CUDA:
        path.with_suffix(".key").write_text(cuda_key())


def build_time() -> str:
    """Return `` in 30 s``, the time that building the library of redistribution took, or ``""`` if it is not known."""
    try:
        return f" in {library_path().with_suffix('.seconds').read_text()} s"
    except OSError:
        return ""


def _settings(name: str) -> list[str]:
    settings = [f"-DDACE_REDIST_VERSION={__version__}", *(f"-D{key}={value}" for key, value in mpi_settings().items())]
    settings += [f"-DDACE_REDIST_ARCHITECTURE={level}" for level in processor_levels()[-1:]]
    if name == CUDA:
        nvcc = cuda_compiler()
        if nvcc is None:
            raise BuildError(
                "there is no nvcc; install the CUDA toolkit, and put its folder bin on PATH, or name its folder by the "
                "variable CUDA_HOME"
            )
        settings += ["-DDACE_REDIST_CUDA=ON", f"-DCMAKE_CUDA_COMPILER={nvcc}"]
    elif name != REDISTRIBUTION:
        settings.append(f"-DDACE_REDIST_LIBRARY={ensure_library()}")
    if name == EINSUM:
        from dace_redist.native.blas import find_blas

        blas = find_blas()
        definitions = ";".join(definition.removeprefix("-D") for definition in blas.definitions)
        settings += [
            f"-DDACE_REDIST_BLAS_LIBRARY={blas.library}",
            f"-DDACE_REDIST_BLAS_INCLUDES={';'.join(blas.include_directories)}",
            f"-DDACE_REDIST_BLAS_DEFINITIONS={definitions}",
        ]
    return settings


def _run(command: list[str]) -> None:
    import subprocess

    try:
        done = subprocess.run(command, capture_output=True, text=True, env=build_environment())
    except FileNotFoundError as error:
        raise BuildError("cmake is not there; get it with pip install cmake") from error
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise BuildError(first_error(done.stdout + done.stderr))


def first_error(output: str) -> str:
    """Return the line of CMake's or the compiler's output that says what is wrong, or a remedy where one is known."""
    lines = output.splitlines()
    if "No space left on device" in output:
        return f"the disk of the cache folder is full; free some space, or set {CACHE_VARIABLE} to another folder"
    if re.search(r"No CMAKE_\w+_COMPILER could be found|The CMAKE_\w+_COMPILER:\s+\S+\s+is not a full path", output):
        return NO_COMPILER
    gone = re.search(r'includes non-existent path\s+"([^"]+)"|(mpi\.h): No such file', output)
    if gone or "Could NOT find MPI" in output:
        what = f"{gone[1] or gone[2]} is missing" if gone else "CMake cannot compile with it"
        return (
            f"{mpi_compiler()} is broken: {what}; install the MPI's headers (apt-get install libopenmpi-dev, or "
            f"libmpich-dev), or that MPI again; check it with `{mpi_compiler()} -show`"
        )
    wrong = [i for i, line in enumerate(lines) if re.search(r"\berror\b|CMake Error", line, re.IGNORECASE)]
    return " ".join(" ".join(lines[wrong[0] : wrong[0] + 3]).split()) if wrong else " ".join(output[-500:].split())
