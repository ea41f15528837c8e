"""Distributed programs, compiled and loaded; each communicator keeps its own."""

from __future__ import annotations

import atexit
import copy
import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from dace import SDFG, Memlet, dtypes
from mpi4py import MPI

from dace_redist.errors import RedistributionError
from dace_redist.library_nodes import LinearSolve, Redistribute, SumReplicas
from dace_redist.mpi.barrier import wait_politely
from dace_redist.mpi.collective_errors import together
from dace_redist.native import program as programs
from dace_redist.native.device import allocate, free
from dace_redist.redistribution.device_arrays import ArrayView

if TYPE_CHECKING:
    from dace_redist.transformations.einsum.distributed_program import DistributedProgram


class Loaded:
    """
    A distributed program, compiled and loaded for a communicator. Making it is collective.

    :param program: The program.
    :param comm: mpi4py communicator with the ranks planned for.
    :raises RuntimeError: On every rank, if the program cannot be compiled.
    """

    def __init__(self, program: DistributedProgram, comm: Any) -> None:
        sdfg, self._values = copy.deepcopy(program.sdfg), program.local_extents(comm.rank)  # building changes it
        name, _ = program.identity
        if comm != MPI.COMM_WORLD:  # in the world, plans are made when the program starts
            self._values[_take_communicator(sdfg)] = MPI._handleof(comm)
            name += "-communicator"
        failure: Exception | None = None
        with together(comm):
            path = programs.named_path(name)
        if comm.rank == 0:
            try:
                programs.ensure_built_at(path, lambda: sdfg)
            except Exception as error:
                failure = error
        wait_politely(comm, 0.05)  # the compiler needs the cores
        with together(comm):
            if failure is not None:
                raise failure
        with together(comm):
            self._program = programs.Program(path)
            self._gpu_error: Any = None
            self._set_streams: Any = None
            if program.device == "gpu":
                free(allocate(0))  # an error if there is no GPU; the program itself would only say so on its output
                functions = ctypes.CDLL(str(path))
                self._gpu_error = functions["__dace_gpu_last_error"]
                self._gpu_error.argtypes = [ctypes.c_void_p]
                if program.gpu_arguments:
                    self._set_streams = functions["__dace_gpu_set_all_streams"]
                    self._set_streams.argtypes, self._set_streams.restype = [ctypes.c_void_p] * 2, None
        self._state: Any = None

    def run(self, arrays: Mapping[str, ArrayView]) -> None:
        """
        Runs it; the first run starts it. Where arguments lie on the GPU, it runs in the order of the stream that the
        first of them names that names one, else of the default stream.

        :raises RedistributionError: If a step fails.
        """
        if self._state is None:
            self._state = self._program.start(self._values)
        if self._set_streams is not None:
            streams = (array.stream for array in arrays.values() if array.device == "gpu")
            self._set_streams(self._state, next((stream for stream in streams if stream is not None), 0))
        self._program.run(self._state, {name: array.address for name, array in arrays.items()} | self._values)
        if self._gpu_error is not None and (number := self._gpu_error(self._state)) != 0:
            raise RedistributionError(f"the program's part on the GPU failed: CUDA error {number}")

    def stop(self) -> None:
        """Frees its plans and transients. Collective."""
        if self._state is not None:
            self._program.stop(self._state)
            self._state = None


def _take_communicator(sdfg: SDFG) -> str:
    """
    Gives a program an argument for the ``MPI_Comm`` of its nodes, a 64-bit integer; returns its name.

    The nodes then make their plans at the first run, not when the program starts.
    """
    name, _ = sdfg.add_scalar("communicator", dtypes.int64, find_new_name=True)
    for state in sdfg.states():
        for node in state.nodes():
            if isinstance(node, Redistribute | SumReplicas | LinearSolve):
                node.add_in_connector("_comm")
                state.add_edge(state.add_read(name), None, node, "_comm", Memlet(f"{name}[0]"))
    return str(name)


def _stop_all(loaded: dict[object, Loaded]) -> None:
    while loaded:
        loaded.pop(next(iter(loaded))).stop()  # in the order in which they were loaded


#: Communicators carry their programs as an attribute, so that freeing one frees what they hold.
_programs_of = MPI.Comm.Create_keyval(delete_fn=lambda comm, keyval, loaded: _stop_all(loaded), nopython=False)


def load(program: DistributedProgram, comm: Any) -> Loaded:
    """The compiled program, kept until the communicator is freed or the process ends. Collective."""
    loaded: Any = comm.Get_attr(_programs_of)
    if loaded is None:
        loaded = {}
        comm.Set_attr(_programs_of, loaded)
        atexit.register(_stop_all, loaded)  # before MPI is finalized
    key = repr(program.identity)
    if key not in loaded:
        loaded[key] = Loaded(program, comm)
    return cast(Loaded, loaded[key])
