"""DaCe programs as shared libraries: built once, kept in the cache folder, called without DaCe."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dace_redist.errors import RedistributionError
from dace_redist.mpi.launch import path_from_here
from dace_redist.native.cmake_build import locked
from dace_redist.native.toolchain import build_directory, cuda_compiler, source_digest

if TYPE_CHECKING:
    import dace

_INTEGER, _REAL = "int64", "float64"
#: Start of the names of arrays in C++, where some of the user's are keywords, macros, or names that DaCe has.
_PREFIX = "array_"
_C_TYPES: dict[str, Any] = {"pointer": ctypes.c_void_p, _INTEGER: ctypes.c_int64, _REAL: ctypes.c_double}


class Program:
    """DaCe program loaded from a shared library with its signature beside it."""

    def __init__(self, library: Path) -> None:
        signature = json.loads(library.with_suffix(".json").read_text())
        functions = ctypes.CDLL(str(library))

        def function(start: str, result: Any, *arguments: Any) -> Any:
            found = functions[f"{start}_{signature['name']}"]
            found.restype, found.argtypes = result, arguments
            return found

        start, run = signature["start"], signature["run"]  # name and kind of each argument
        self._start_names, self._run_names = ([name for name, _ in arguments] for arguments in (start, run))
        self._start = function("__dace_init", ctypes.c_void_p, *(_C_TYPES[kind] for _, kind in start))
        self._run = function("__program", None, ctypes.c_void_p, *(_C_TYPES[kind] for _, kind in run))
        self._stop = function("__dace_exit", ctypes.c_int, ctypes.c_void_p)

    def start(self, values: Mapping[str, int]) -> int:
        """
        Return a new state of the program, with its plans, for values of its symbols. Collective.

        :raises RedistributionError: If the program cannot start on this rank.
        """
        state = self._start(*(values[name] for name in self._start_names))
        if state is None:
            raise RedistributionError("the program could not be started: its output has the reason")
        return int(state)

    def run(self, state: int, values: Mapping[str, Any]) -> None:
        """
        Run the program with addresses of arrays, and values of scalars and symbols, by name. Collective.

        :raises RedistributionError: If the ranks or MPI could not.
        """
        self._run(state, *(values[name] for name in self._run_names))

    def stop(self, state: int) -> None:
        """Free a state and its plans. Collective."""
        self._stop(state)


def _signature(sdfg: dace.SDFG) -> dict[str, Any]:
    """Return names and kinds of the arguments of the program's functions, in order. Changes the SDFG."""
    import dace

    def kind(descriptor: Any) -> str:
        if isinstance(descriptor, dace.data.Array):
            return "pointer"
        return _REAL if descriptor.dtype == dace.float64 else _INTEGER

    sdfg.expand_library_nodes()
    arguments, free = sdfg.arglist(), sdfg.free_symbols
    symbols = [name for name in arguments if name in free]
    return {
        "name": sdfg.name,
        "run": [[name.removeprefix(_PREFIX), kind(descriptor)] for name, descriptor in arguments.items()],
        "start": [[name, kind(arguments[name])] for name in symbols],
    }


def _generator_key() -> str:
    """Return a key of all that DaCe makes C++ of an SDFG by: DaCe, its present configuration, CUDA, library nodes."""
    from dace.config import Config

    facts = [*_installed(), json.dumps(Config.get(), sort_keys=True, default=str)]
    # The environment overrides the configuration, also where that was read before.
    facts += [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("DACE_")]
    return hashlib.blake2b("\0".join(facts).encode(), digest_size=6).hexdigest()


@functools.cache
def _installed() -> list[str]:
    dace = importlib.metadata.distribution("dace")
    facts = [dace.version]
    if '"editable": true' in (dace.read_text("direct_url.json") or "") and (found := importlib.util.find_spec("dace")):
        for folder in found.submodule_search_locations or []:  # whose sources may change without the version
            stats = [(source, source.stat()) for source in sorted(Path(folder).rglob("*.py"))]
            facts += [f"{source}:{stat.st_size}:{stat.st_mtime_ns}" for source, stat in stats]
    if (compiler := cuda_compiler()) is not None:
        facts += [compiler, str(os.stat(compiler).st_mtime_ns)]
    nodes = importlib.util.find_spec("dace_redist.library_nodes")  # found, not imported: that would load DaCe
    folders = nodes.submodule_search_locations or [] if nodes else []
    return [*facts, *(source_digest(Path(folder), (".py",)) for folder in folders)]


def named_path(name: str, suffix: str = ".so") -> Path:
    """
    Return where the program of a unique name is, or will be, on disk: another path for each DaCe configuration.

    :raises PermissionError: As :func:`build_directory`.
    """
    return build_directory("programs", _generator_key(), f"{name}{suffix}")


def ensure_built_at(path: Path, make: Callable[[], dace.SDFG]) -> Path:
    """
    Build a program of the SDFG that ``make`` returns, unless it is there; of several processes one builds. The SDFG is
    changed.

    :param path: Its place, see :func:`named_path`; its signature lies beside it. Also returned.
    :raises BuildError: If there is no MPI to compile with.
    :raises OSError: If the folder cannot be written.
    """
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path):
        if not path.exists():
            _build(make(), path)
    return path


def _rename_arrays(sdfg: dace.SDFG) -> None:
    codes = {node: copy.deepcopy(node.code) for node, _ in sdfg.all_nodes_recursive() if hasattr(node, "code")}
    arrays = [name for name in sdfg.arrays if name not in (*sdfg.process_grids, *sdfg.subarrays, *sdfg.rdistrarrays)]
    sdfg.replace_dict({name: _PREFIX + name for name in arrays}, {})
    for node, code in codes.items():  # names in tasklets, as exp, are not those of arrays
        node.code = code


def _build(sdfg: dace.SDFG, path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="build-", dir=path.parent) as folder:
        sdfg.build_folder = os.path.join(folder, sdfg.name)
        os.mkdir(sdfg.build_folder)
        Path(sdfg.build_folder, "FOLDER_MODE").write_text("production")  # DaCe writes no files for debugging
        library = os.path.join(folder, path.name)
        _rename_arrays(sdfg)
        with _tools_of_this_python():
            sdfg.compile(output_file=library, return_program_handle=False)
        path.with_suffix(".json").write_text(json.dumps(_signature(sdfg)))
        os.replace(library, path)  # at once: whoever sees the library sees all of it, and its signature


_changing_path = threading.Lock()


@contextlib.contextmanager
def _tools_of_this_python() -> Iterator[None]:
    """Put the folder of this Python first on ``PATH``, by which DaCe finds CMake; one thread at a time."""
    with _changing_path:  # else the last thread to end might restore what another one had set
        before = os.environ.get("PATH")
        os.environ["PATH"] = path_from_here()
        try:
            yield
        finally:
            os.environ.pop("PATH") if before is None else os.environ.update(PATH=before)
