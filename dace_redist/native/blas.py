"""BLAS of the programs that contract tensors: MKL, a system's OpenBLAS, or OpenBLAS from PyPI."""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: Environment variable that selects one: a key of :data:`FINDERS`.
VARIABLE = "DACE_REDIST_BLAS"


@dataclass(frozen=True)
class Blas:
    """
    BLAS, as a compiler needs to know it.

    :param name: Key of :data:`FINDERS`.
    :param include_directories: Folders of ``cblas.h`` or ``mkl_cblas.h`` that the compiler does not search anyway.
    :param definitions: Macros, as arguments of the compiler.
    """

    name: str
    library: str
    include_directories: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name that no other one has, in letters that a folder may have."""
        return f"{self.name}-{hashlib.blake2b(repr(self).encode(), digest_size=5).hexdigest()}"


def _find_mkl() -> Blas | None:
    """Find MKL below ``MKLROOT``, a Conda environment, or this Python, where ``pip install mkl-devel`` puts it."""
    for root in (os.environ.get("MKLROOT"), os.environ.get("CONDA_PREFIX"), sys.prefix):
        if root is None or not Path(root, "include", "mkl_cblas.h").is_file():
            continue
        for folder in (Path(root, "lib"), Path(root, "lib", "intel64")):
            for library in sorted(folder.glob("libmkl_rt.so*")):  # with a version only, from PyPI
                return Blas("mkl", str(library), (str(Path(root, "include")),), ("-DDACE_REDIST_MKL",))
    return None


def _find_openblas() -> Blas | None:
    """Find OpenBLAS as pkg-config has it, else where the compiler finds its library and ``cblas.h`` by itself."""
    paths = _answer(["pkg-config", "--variable=libdir", "openblas"]).split()
    if paths and Path(paths[0], "libopenblas.so").is_file():
        flags = _answer(["pkg-config", "--cflags", "openblas"]).split()  # beside a variable pkgconf says none
        folders = tuple(flag[2:] for flag in flags if flag.startswith("-I"))
        return Blas("openblas", str(Path(paths[0], "libopenblas.so")), folders)
    compiler = os.environ.get("CXX", "c++").split()
    library = _answer([*compiler, "-print-file-name=libopenblas.so"]).strip()
    if not os.path.isabs(library):  # the compiler does not find it; a file of that name in this folder is another one
        return None
    header = _answer([*compiler, "-E", "-x", "c++", "-include", "cblas.h", os.devnull])
    return Blas("openblas", library) if os.path.isfile(library) and "cblas_dgemm" in header else None


def pypi_openblas() -> str | None:
    """Return the library of the package ``scipy-openblas32``; None if that is not installed."""
    try:
        package = importlib.import_module("scipy_openblas32")
    except ImportError:
        return None
    return str(Path(package.get_lib_dir(), package.get_library(fullname=True)))


def blas_wanted() -> str:
    """Return the BLAS that ``DACE_REDIST_BLAS`` names; empty for any."""
    return os.environ.get(VARIABLE, "")


def _find_pypi() -> Blas | None:
    """Find the package ``scipy-openblas32``, whose prefixed names can meet another BLAS in one process."""
    library = pypi_openblas()
    if library is None:
        return None
    include = importlib.import_module("scipy_openblas32").get_include_dir()
    return Blas("pypi", library, (include,), ("-DBLAS_SYMBOL_PREFIX=scipy_",))


#: In order of preference.
FINDERS: dict[str, Callable[[], Blas | None]] = {"mkl": _find_mkl, "openblas": _find_openblas, "pypi": _find_pypi}


def find_blas() -> Blas:
    """
    Return the BLAS that ``DACE_REDIST_BLAS`` names, else the first that is there.

    :raises ValueError: If the variable names an unknown one.
    :raises RuntimeError: If there is none; says how to get one.
    """
    wanted = blas_wanted()
    if wanted and wanted not in FINDERS:
        raise ValueError(f'{VARIABLE} must be one of {", ".join(FINDERS)}, got "{wanted}"')
    return _find(wanted)


@functools.cache
def _find(wanted: str) -> Blas:
    for name, find in FINDERS.items():
        found = find() if wanted in ("", name) else None
        if found is not None:
            return found
    raise RuntimeError(
        f"no BLAS to compile with{f', as {VARIABLE}={wanted}' if wanted else ''}; get one with "
        "pip install scipy-openblas32 (or mkl-devel), or apt-get install libopenblas-dev"
    )


def _answer(command: list[str]) -> str:
    """Return the output of a command; nothing if it fails or is not there."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
