"""Compiled libraries that come with the package: one per MPI and level of processors, and the choice among them."""

from __future__ import annotations

import ctypes
import itertools
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: Binary interfaces of MPI, with the library that has one, as the dynamic linker names it. A program for one MPI of an
#: interface runs with the others: that of MPICH is also Intel MPI's, Cray MPICH's, MVAPICH's and ParaStation MPI's.
MPI_LIBRARIES = {"openmpi": "libmpi.so.40", "mpich": "libmpi.so.12", "mpiabi": "libmpi_abi.so.1"}

#: Libraries of redistribution, and for preloading beside it, with the version of their binary interface.
LIBRARY_FILE = "libdace_redist.so.0"
SCALAPACK_FILE = "libdace_redist_scalapack.so.0"
#: Library of contractions, linked with OpenBLAS of PyPI; one for each level.
EINSUM_FILE = "libdace_redist_einsum.so"

#: ``<interface>/<lowest level>/<LIBRARY_FILE>``; those for higher levels lie below it, where the dynamic linker
#: finds them for C programs. ``setup.py`` fills it.
FOLDER = Path(__file__).parents[1] / "libraries"
HIGHER_LEVELS = "glibc-hwcaps"
OPENMP = "libgomp.so.1"

#: By machine: levels of its processors as compilers and the dynamic linker name them, lowest first, with the flags in
#: ``/proc/cpuinfo`` that each adds.
LEVELS_BY_MACHINE = {
    "x86_64": {
        "x86-64-v2": "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3",
        "x86-64-v3": "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave",
        "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
    },
    "aarch64": {"armv8-a": ""},
}
#: Those of this machine; none of others, for which code is compiled as the compiler does by default.
LEVELS = LEVELS_BY_MACHINE.get(platform.machine(), {})


def levels(flags: str) -> list[str]:
    """Return the levels of a processor of this machine, lowest first."""
    found = set(flags.split())
    return list(itertools.takewhile(lambda level: found.issuperset(LEVELS[level].split()), LEVELS))


def packaged_library(interface: str, levels: Sequence[str], folder: Path = FOLDER) -> Path | str:
    """
    Return the library to link programs with for an MPI, or the reason why the package has none.

    :param interface: Key of :data:`MPI_LIBRARIES`, or ``""``.
    :param levels: Levels of this processor.
    """
    there = sorted(folder.glob(f"*/*/{LIBRARY_FILE}"))
    if not there:
        return "this installation brings none"
    fitting = [path for path in there if path.parts[-3] == interface]
    if not fitting:
        names = ", ".join(path.parts[-3] for path in there)
        return f"those that this installation brings, for {names}, are for other MPIs"
    needed = fitting[0].parent.name
    return fitting[0] if needed in levels else f"this processor is below {needed}, which the one here needs"


def best_build(library: Path, levels: Sequence[str]) -> Path:
    """Return a library's build for the highest level of this processor, which the dynamic linker takes for C."""
    higher = [library.parent / HIGHER_LEVELS / level / library.name for level in reversed(levels)]
    return next((path for path in higher if path.exists()), library)


def load(library: Path, levels: Sequence[str]) -> Any:
    """
    Load the :func:`best_build` of a library.

    Its OpenMP is the system's, or else that of the package: systems without a compiler may have none.
    """
    path = best_build(library, levels)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        if OPENMP not in str(error) or not (FOLDER / OPENMP).exists():
            raise
        ctypes.CDLL(str(FOLDER / OPENMP))
        return ctypes.CDLL(str(path))
