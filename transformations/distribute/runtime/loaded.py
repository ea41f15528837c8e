"""Distributed programs, compiled and loaded; each communicator keeps its own."""

from __future__ import annotations

import atexit
import copy
import ctypes
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dace import SDFG, Memlet, dtypes
from mpi4py import MPI

from dace_redist.errors import RedistributionError
from dace_redist.library_nodes import JointRedistribute, LinearSolve, Redistribute
from dace_redist.mpi.collective import sleeping_barrier, together
from dace_redist.native import program as programs
from dace_redist.native.device import allocate, free
from dace_redist.redistribution.arrays import ArrayView
from dace_redist.transformations.distribute.runtime.facts import ProgramFacts

#: Maximum number of programs, each with its sizes, per communicator; the least recently used one is freed first.
MAX_LOADED = 32


class Loaded:
    """
    Distributed program, compiled and loaded for a communicator. Construction is collective.

    :param comm: mpi4py communicator with the planned number of ranks.
    :raises RuntimeError: On every rank, if the program cannot be compiled.
    """

    def __init__(self, program: ProgramFacts, comm: Any) -> None:
        self._comm, self._values = comm, program.local_extents(comm.rank)
        self._state: int | None = None
        name, sdfg = program.identity[0], program.built
        if comm != MPI.COMM_WORLD:  # in the world, plans are made when the program starts
            sdfg = copy.deepcopy(sdfg)
            self._values[_take_communicator(sdfg)] = MPI._handleof(comm)
            name += "-communicator"
        path = _built(name, sdfg, comm)
        with together(comm):
            self._program = programs.Program(path)
            self._gpu_error: Any = None
            self._set_streams: Any = None
            if program.recipe.device == "gpu":
                free(allocate(0))  # raises without a GPU; the program itself would only print a message
                functions = ctypes.CDLL(str(path))
                self._gpu_error = functions["__dace_gpu_last_error"]
                self._gpu_error.argtypes = [ctypes.c_void_p]
                if program.gpu_arguments:
                    self._set_streams = functions["__dace_gpu_set_all_streams"]
                    self._set_streams.argtypes, self._set_streams.restype = [ctypes.c_void_p] * 2, None

    def start(self) -> None:
        """Make plans and transients unless they exist; raise an error of one rank on all. Collective."""
        if self._state is not None:
            return
        try:
            with together(self._comm):
                self._state = self._program.start(self._values)
        except Exception:
            self.stop()
            raise

    def run(self, arrays: Mapping[str, ArrayView]) -> None:
        """
        Run the program, after :meth:`start`. Collective; a failing step raises on this rank only.

        With arguments on the GPU it is ordered on the first stream that one of them names.
        """
        if self._set_streams is not None:
            streams = (array.stream for array in arrays.values() if array.device == "gpu")
            self._set_streams(self._state, next((stream for stream in streams if stream is not None), 0))
        addresses = {name: array.address for name, array in arrays.items()}
        self._program.run(self._state, addresses | self._values)
        if self._gpu_error is not None and (number := self._gpu_error(self._state)) != 0:
            raise RedistributionError(f"the program's part on the GPU failed: CUDA error {number}")

    def stop(self) -> None:
        """Free plans and transients. Collective."""
        if self._state is not None:
            self._program.stop(self._state)
            self._state = None


def _built(name: str, sdfg: SDFG, comm: Any) -> Path:
    """Compile a program on rank 0, with its configuration, unless it is on disk; return its path."""
    path: Path | None = None
    failure: Exception | None = None
    if comm.rank == 0:
        try:
            path = programs.ensure_built_at(programs.named_path(name), lambda: copy.deepcopy(sdfg))
        except Exception as error:
            failure = error
    sleeping_barrier(comm)  # the compiler needs the cores
    with together(comm):
        if failure is not None:
            raise failure
    built: Path = comm.bcast(path)
    return built


def _take_communicator(sdfg: SDFG) -> str:
    """Add an argument for the nodes' ``MPI_Comm``, an int64; returns its name. Plans are then made at the first run."""
    name, _ = sdfg.add_scalar("communicator", dtypes.int64, find_new_name=True)
    for state in sdfg.states():
        for node in state.nodes():
            if isinstance(node, Redistribute | JointRedistribute | LinearSolve):
                node.add_in_connector("_comm")
                state.add_edge(state.add_read(name), None, node, "_comm", Memlet(f"{name}[0]"))
    return str(name)


def _stop_all(loaded: dict[object, Loaded], process: int) -> None:
    if process == os.getpid():  # a forked child must not free resources of its parent
        while loaded:
            loaded.pop(next(iter(loaded))).stop()  # in the same order on all ranks


#: Communicators carry their programs as an attribute, so that freeing a communicator frees their resources.
_programs_of = MPI.Comm.Create_keyval(
    delete_fn=lambda comm, keyval, stop: (stop(), atexit.unregister(stop)), nopython=False
)


def load(program: ProgramFacts, comm: Any) -> Loaded:
    """Return the compiled program, cached until others replace it or the communicator is freed. Collective."""
    stop: Any = comm.Get_attr(_programs_of)
    if stop is None:
        stop = functools.partial(_stop_all, {}, os.getpid())
        comm.Set_attr(_programs_of, stop)
        atexit.register(stop)  # before MPI is finalized
    key, loaded = repr(program.identity), stop.args[0]
    found: Loaded = loaded.pop(key, None) or Loaded(program, comm)
    while len(loaded) >= MAX_LOADED:
        loaded.pop(next(iter(loaded))).stop()
    loaded[key] = found
    return found
