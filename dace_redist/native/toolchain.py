"""Keys of compiled code (MPI, compiler, processor, sources) and the folders where it is kept."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import stat
from pathlib import Path

from dace_redist._version import __version__
from dace_redist.errors import GET_MPI, BuildError
from dace_redist.mpi.launch import path_from_here, wrapper_environment
from dace_redist.mpi.topology import processor_facts
from dace_redist.native.loaded_mpi import mpi_in_use
from dace_redist.native.variants import LIBRARY_FILE, SCALAPACK_FILE, levels, packaged_library

#: Folder of the CMake project, with a folder for each library.
PACKAGE_DIRECTORY = Path(__file__).parents[1]
#: Folders of the C interface's headers, of the sources of redistribution, and of the headers of contractions.
INCLUDE_DIRECTORY = PACKAGE_DIRECTORY / "runtime" / "include"
SOURCE_DIRECTORY = PACKAGE_DIRECTORY / "runtime" / "src"
EINSUM_INCLUDE_DIRECTORY = PACKAGE_DIRECTORY / "contraction" / "include"

REDISTRIBUTION, EINSUM = "dace_redist", "dace_redist_einsum"
CUDA, SCALAPACK = "dace_redist_cuda", "dace_redist_scalapack"
#: The libraries, and what is in each.
LIBRARIES = {
    REDISTRIBUTION: "redistribution",
    EINSUM: "contractions",
    CUDA: "copies on GPUs",
    SCALAPACK: "ScaLAPACK's routines",
}

_CUDA_SETTINGS = ("CUDAARCHS", "CUDAFLAGS", "CUDAHOSTCXX", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS")

#: Ends of the names of sources, but for those that CUDA's compiler takes.
_SOURCES = (".cpp", ".hpp", ".h", "CMakeLists.txt")

#: Environment variable that names the cache folder of all compiled code; default: the user's.
CACHE_VARIABLE = "DACE_REDIST_CACHE"


def cache_directory() -> Path:
    """Return the cache folder: a variable, or this package's below the user's by the specification of XDG."""
    base = os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(os.environ.get(CACHE_VARIABLE) or os.path.join(base, "dace-redist"))


def mpi_compiler() -> str:
    """
    Return the path of the ``mpicxx`` of the MPI that mpi4py loads.

    :raises BuildError: If there is none; says how to get one.
    """
    found = mpi_in_use().compiler
    if found is None:
        raise BuildError(
            f"no MPI to compile with: there is no mpicxx beside {mpi_in_use().path or 'the MPI library'}, beside this "
            f"Python, or on PATH; {GET_MPI}"
        )
    return found


def mpi_settings() -> dict[str, str]:
    """
    Return CMake's variables for the C and C++ compilers of one MPI; left to itself, CMake may mix two.

    :raises BuildError: If there is no C++ compiler, or no ``mpicxx``; says how to get one.
    """
    check_compiler()
    compiler = mpi_compiler()
    os.environ.update(wrapper_environment())  # for CMake, which DaCe runs, too
    of_c = os.path.join(os.path.dirname(compiler), os.path.basename(compiler).replace("cxx", "cc"))
    return {"MPI_CXX_COMPILER": compiler} | ({"MPI_C_COMPILER": of_c} if os.access(of_c, os.X_OK) else {})


def cuda_compiler() -> str | None:
    """Return the path of nvcc by ``CUDACXX``, ``CUDA_HOME``, ``CUDA_PATH`` or ``PATH``; None if there is none."""
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    named = [os.environ.get("CUDACXX"), *(os.path.join(home, "bin", "nvcc") for home in homes if home), "nvcc"]
    return next((found for name in named if name and (found := shutil.which(name))), None)


def build_environment() -> dict[str, str]:
    """Return the environment for a build, in which programs beside this Python, such as CMake, come first."""
    return os.environ | {"PATH": path_from_here()}


@functools.cache
def build_key() -> str:
    """
    Return a key of all that compiled code depends on: sources, MPI, settings of the compiler, level of the processor.

    The compiler itself is no part of it: nodes without one use what was compiled on another node.
    """
    settings = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name.startswith(("CXX", "OMPI_CXX", "MPICH_CXX"))
    ]
    mpi = mpi_in_use()
    facts = [__version__, mpi.version, mpi.interface, *settings]
    facts += [platform.machine(), *processor_levels()[-1:], source_digest(PACKAGE_DIRECTORY, _SOURCES)]
    return hashlib.blake2b("\0".join(facts).encode(), digest_size=10).hexdigest()


def source_digest(folder: Path, endings: tuple[str, ...]) -> str:
    """
    Return a digest of the package's sources below ``folder`` whose names end with one of ``endings``.

    An installed package has the installer's list of digests: one file, which counts where thousands of ranks start from
    a shared file system. The sources of an editable installation are read.
    """
    digest = hashlib.blake2b(digest_size=10)
    for name, value in sorted(_recorded(folder, endings) or _hashed(folder, endings)):
        digest.update(f"{name}={value}\0".encode())
    return digest.hexdigest()


def _recorded(folder: Path, endings: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return names and digests of the installed files below a folder of the package; nothing if it is not installed."""
    site = PACKAGE_DIRECTORY.parent
    records = list(site.glob("dace_redist-*.dist-info/RECORD"))
    if len(records) != 1 or not folder.is_relative_to(site):  # or also one that an earlier version left
        return []
    rows = [line.split(",") for line in records[0].read_text().splitlines()]
    start = f"{folder.relative_to(site).as_posix()}/"
    rows = [row for row in rows if row[0].startswith(start) and row[0].endswith(endings) and row[1]]
    return [(row[0].removeprefix(start), row[1]) for row in rows]


def _hashed(folder: Path, endings: tuple[str, ...]) -> list[tuple[str, str]]:
    walked = os.walk(folder, followlinks=True)  # an installation may link to the folders of a checkout
    paths = [os.path.join(root, name) for root, _, names in walked for name in names if name.endswith(endings)]
    return [(path[len(f"{folder}/") :], hashlib.blake2b(Path(path).read_bytes()).hexdigest()) for path in paths]


#: Compilers that CMake looks for where ``CXX`` names none.
_COMPILERS = ("c++", "g++", "clang++", "icpx")
#: Programs one of which CMake starts the compiler by, unless the variable ``CMAKE_GENERATOR`` names another way.
_MAKES = ("gmake", "make", "smake")


def check_compiler() -> None:
    """
    Check that there are a C++ compiler and make.

    :raises BuildError: If one is missing, or ``CXX``, which may have options, names a compiler that is not there.
    """
    given, path = os.environ.get("CXX", "").strip(), path_from_here()
    if given and not any(shutil.which(program, path=path) for program in (given, given.split()[0])):
        raise BuildError(
            f"the variable CXX names the C++ compiler {given!r}, which is not there or cannot be run: "
            "name another, such as g++, or unset it"
        )
    if not given and not any(shutil.which(program, path=path) for program in _COMPILERS):
        raise BuildError(NO_COMPILER)
    if not os.environ.get("CMAKE_GENERATOR") and not any(shutil.which(program, path=path) for program in _MAKES):
        raise BuildError("no make, which CMake compiles with: get it with apt-get install make")


#: Remedy where there is no compiler.
NO_COMPILER = "no C++17 compiler: get one with apt-get install g++, or name one by the variable CXX"


def _identity(program: str) -> list[str]:
    """Return facts that tell a version of a program from another, without running it."""
    path = os.path.realpath(program)
    try:
        facts = os.stat(path)
    except OSError:
        return [path]
    return [program, path, str(facts.st_size), str(facts.st_mtime_ns)]


@functools.cache
def processor_levels() -> list[str]:
    """Return the levels of this processor, lowest first: code is compiled for the highest; else none."""
    return levels(processor_facts().get("flags", ""))


def build_directory(*below: str) -> Path:
    """
    Return the folder of everything that is compiled for this MPI and level of processors, in the cache folder.

    :param below: Names of folders in it, and of a file, whose path is returned.
    :raises PermissionError: If another user than root owns one of them, or all users may write to it: whoever can write
        there can run programs as this user. Names the folder and the remedy.
    """
    path = cache_directory()
    for name in ("", build_key(), *below):
        path /= name
        facts = path.stat() if path.exists() else None
        # in a sticky folder, as /tmp, others can only add what is refused below
        is_open = facts and facts.st_mode & stat.S_IWOTH and not facts.st_mode & stat.S_ISVTX
        if facts and (facts.st_uid not in (0, os.geteuid()) or is_open):
            raise PermissionError(
                f"{path}, in the cache of compiled code, belongs to user {facts.st_uid} and has the mode "
                f"{stat.filemode(facts.st_mode)}: another user could run programs as you; delete it, or set "
                f"{CACHE_VARIABLE} to another folder"
            )
    return path


@functools.cache
def packaged() -> Path | str:
    """Return the library of redistribution that came with the package for this MPI, or the reason why there is none."""
    return packaged_library(mpi_in_use().interface, processor_levels())


def library_path(name: str = REDISTRIBUTION) -> Path:
    """Return where one of :data:`LIBRARIES` is, or will be, on disk."""
    if name == REDISTRIBUTION and isinstance(found := packaged(), Path):
        return found
    if name == SCALAPACK:
        return library_path().parent / SCALAPACK_FILE
    if name == REDISTRIBUTION:
        return build_directory(LIBRARY_FILE)
    if name == CUDA:
        return build_directory(f"lib{name}.so")
    from dace_redist.native.blas import find_blas  # contractions only

    return build_directory(find_blas().key, f"lib{name}.so")


def is_built(name: str) -> bool:
    """Check for a library, that for GPUs from these sources and this nvcc; without nvcc, any will do."""
    path = library_path(name)
    if name != CUDA or cuda_compiler() is None or not path.exists():
        return path.exists()
    try:
        return path.with_suffix(".key").read_text() == cuda_key()
    except OSError:
        return False


def cuda_key() -> str:
    """
    Return a key of all that the library for GPUs depends on besides :func:`build_key`: nvcc, its settings, its sources.

    It is kept beside the library, and no part of the folder's name: programs may run where nvcc is not on ``PATH``.
    """
    settings = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name in _CUDA_SETTINGS]
    facts = [*_identity(cuda_compiler() or ""), *settings, source_digest(PACKAGE_DIRECTORY, (".cu",))]
    return hashlib.blake2b("\0".join(facts).encode(), digest_size=10).hexdigest()
