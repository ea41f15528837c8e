"""MPI library that programs use: the one that mpi4py has loaded, or loads in a program that mpiexec starts."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from dace_redist.errors import GET_MPI, BuildError
from dace_redist.mpi.launch import (
    answer_of,
    launched_rank,
    mpi_environment,
    mpiexec_command,
    outside_environment,
    path_from_here,
    search_paths,
)
from dace_redist.native.variants import MPI_LIBRARIES

#: ``MPI_COMM_WORLD`` of binary interfaces in which it is a constant; in Open MPI's it is an address.
_WORLDS = {0x101: "mpiabi", 0x44000000: "mpich"}

_SECONDS_TO_ASK = 30


@dataclass(frozen=True)
class LoadedMpi:
    """
    MPI library.

    :param version: Result of ``MPI_Get_library_version``.
    :param interface: Key of :data:`dace_redist.native.variants.MPI_LIBRARIES`; ``""``: another one.
    :param path: Its file; ``""`` if unknown.
    """

    version: str
    interface: str
    path: str

    @property
    def compiler(self) -> str | None:
        """Path of its ``mpicxx``: near the library, else beside this Python, else on ``PATH``; None without one."""
        near = [str(folder / "bin") for folder in Path(self.path).parents[:-1]]
        name = "mpicxx_abi" if self.interface == "mpiabi" else "mpicxx"
        return shutil.which(name, path=os.pathsep.join([*near, path_from_here()]))


def mpi_in_use() -> LoadedMpi:
    """
    Return the MPI library that mpi4py has loaded; before that, the one that it loads in programs under mpiexec.

    :raises BuildError: If mpi4py cannot load any.
    """
    return _loaded() if "mpi4py.MPI" in sys.modules else _asked()


def _loaded() -> LoadedMpi:
    from mpi4py import MPI

    version, interface = MPI.Get_library_version(), loaded_interface()
    maps = Path("/proc/self/maps")
    found = re.findall(r"/.*/libmpi(?:ch|_abi)?\.so.*", maps.read_text()) if maps.exists() else []
    name = MPI_LIBRARIES[interface]
    found.sort(key=lambda path: name not in path)  # a process may have loaded another MPI, too
    return LoadedMpi(version, interface if _is_loaded(name) else "", found[0] if found else "")


def loaded_interface() -> str:
    """Return the binary interface of the MPI that mpi4py has loaded, a key of ``MPI_LIBRARIES``."""
    from mpi4py import MPI

    return _WORLDS.get(MPI._handleof(MPI.COMM_WORLD), "openmpi")


def _is_loaded(name: str) -> bool:
    try:
        ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    return True


@functools.cache
def _asked() -> LoadedMpi:
    """
    Ask another process: mpi4py.MPI initialises MPI, which a build does not need, and one that does not, stays so.

    It is started by mpiexec, which may make mpi4py load another library, unless this process is itself or that fails.
    """
    import json  # loads slowly, and programs with MPI do not need it

    ask, said = [sys.executable, "-c", _PRINT_LOADED], ""
    ways = [(ask, dict(os.environ))]
    if launched_rank() is None and shutil.which("mpiexec", path=path_from_here()):
        ways.insert(0, (mpiexec_command(1, ask), outside_environment() | mpi_environment(1)))
    for command, environment in ways:
        try:
            answer, printed, code = answer_of(command, environment | search_paths(), _SECONDS_TO_ASK)
        except OSError as error:
            said = f"{command[0]}: {error}"
            continue
        if answer is not None:
            return LoadedMpi(**json.loads(answer))
        said = printed.strip() or f"the process that tried it ended with {code}"
    raise BuildError(f"mpi4py cannot load an MPI library: {said.splitlines()[-1]}; {GET_MPI}")


def print_loaded() -> None:
    """Print the MPI library that mpi4py loads, for :func:`mpi_in_use` in another process."""
    import json

    print("MPI:", json.dumps(asdict(_loaded())))


_PRINT_LOADED = """
import mpi4py
mpi4py.rc.initialize = False
from dace_redist.native.loaded_mpi import print_loaded
print_loaded()
"""
