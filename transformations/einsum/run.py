"""Runs a distributed program: compiles it once, hands it this rank's parts, and moves whole tensors in and out."""

from __future__ import annotations

import atexit
import contextlib
import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.mpi.barrier import wait_politely
from dace_redist.mpi.collective_errors import check_same, together
from dace_redist.native import program as programs
from dace_redist.redistribution.shared_arrays import empty_if_shared

if TYPE_CHECKING:
    from dace_redist.transformations.einsum.distributed_program import DistributedProgram, Tensor

Array = npt.NDArray[Any]
_RETURN = "__return"
_PROGRAM = "the distributed program and its sizes"


class RunningProgram:
    """
    A distributed program, compiled and loaded; the first run starts it. Making and running it is collective.

    Its plans and transients are kept until the process ends.

    :param program: The program.
    :param comm: mpi4py communicator with the ranks of the world, in their order; None: the world.
    :raises ValueError: On every rank, if the communicator has another number of ranks than planned for.
    :raises RuntimeError: On every rank, if the program cannot be compiled.
    """

    def __init__(self, program: DistributedProgram, comm: Any = None) -> None:
        self._program = program
        identity = f"{program.sdfg.name}-{program.sdfg.hash_sdfg()[:16]}"
        self._identity = (identity, program.sizes)
        with _all_ranks(program, comm, _PROGRAM, self._identity) as comm:
            path = programs.named_path(identity)
        failure: Exception | None = None
        if comm.rank == 0:
            try:
                programs.ensure_built_at(path, lambda: copy.deepcopy(program.sdfg))  # building changes it
            except Exception as error:
                failure = error
        wait_politely(comm, 0.05)  # the compiler needs the cores
        with together(comm):
            if failure is not None:
                raise failure
        self._extents = program.local_extents(comm.rank)
        with together(comm):
            self._compiled = programs.Program(path)
        self._state: Any = None

    def _started(self) -> Any:
        if self._state is None:
            self._state = self._compiled.start(self._extents)
            atexit.register(self._compiled.stop, self._state)  # in the order of starting, before MPI is finalized
        return self._state

    def run(self, local: Mapping[str, Array], comm: Any = None) -> Any:
        """One run; see :meth:`DistributedProgram.run`."""
        with _all_ranks(self._program, comm, _PROGRAM, self._identity) as comm:
            arrays = self._arrays(local, comm.rank)
        self._compiled.run(self._started(), {name: array.ctypes.data for name, array in arrays.items()} | self._extents)
        outputs = {name: arrays[name] for name in self._program.outputs}
        if _RETURN in outputs:
            return outputs[_RETURN]
        returned = [f"{_RETURN}_{number}" for number in range(len(outputs))]
        several = tuple(outputs[name] for name in returned if name in outputs)
        return several or outputs

    def _arrays(self, local: Mapping[str, Array], rank: int) -> dict[str, Array]:
        """All arrays of a run: those given, checked, and new ones for the outputs that were not."""
        known = {**self._program.inputs, **self._program.outputs}
        unknown = sorted(set(local) - set(known))
        missing = sorted(set(self._program.inputs) - set(local))
        if unknown:
            raise ValueError(f"run: the program has no tensor {', '.join(unknown)}; it has {', '.join(known)}")
        if missing:
            raise ValueError(
                f"run: the part of {', '.join(missing)} is missing; it takes {', '.join(self._program.inputs)}"
            )
        arrays = {}
        for name, tensor in known.items():
            shape = tensor.distribution.local_shape(rank) if tensor.shape else (1,)
            if name in local:
                arrays[name] = _checked(local[name], tensor, shape, rank, name in self._program.outputs)
            else:
                arrays[name] = empty_if_shared(shape, tensor.dtype)
        _check_apart(arrays, self._program.outputs)
        return arrays


@contextlib.contextmanager
def _all_ranks(program: DistributedProgram, comm: Any, what: str = "", value: object = None) -> Iterator[Any]:
    """
    Gives the communicator to use, and raises on every rank what the block raises on one. Collective over the world,
    which the program runs on: a rank that passes another communicator must not leave the others waiting.

    :param program: The program.
    :param comm: What this rank passes; None: the world.
    :param what: As for :func:`dace_redist.mpi.collective_errors.together`, which says what else it raises;
        likewise ``value``.
    :raises ValueError: If the communicator does not have the ranks planned for.
    :raises TypeError: If it is none.
    """
    size = MPI.COMM_WORLD.size
    if size != program.ranks:  # no rank can run it, so none waits for this one
        raise ValueError(
            f"the program is distributed over {program.ranks} ranks, but {size} run it: start it with "
            f"mpirun -n {program.ranks}, or call distribute(..., ranks={size})"
        )
    with together(MPI.COMM_WORLD, what, value):
        comm = MPI.COMM_WORLD if comm is None else comm
        if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
            raise TypeError(f"comm must be an mpi4py intra-communicator of this rank, got {comm!r}")
        if MPI.Comm.Compare(comm, MPI.COMM_WORLD) not in (MPI.IDENT, MPI.CONGRUENT):
            raise ValueError(
                f"a distributed program runs on the {size} ranks of the world in their order, got another "
                f"communicator, of {comm.size} ranks"
            )
        yield comm


def _checked(array: Any, tensor: Tensor, shape: tuple[int, ...], rank: int, written: bool) -> Array:
    given = np.asarray(array)
    if given.dtype != tensor.dtype:
        raise ValueError(f"run: {tensor.name} must hold {tensor.dtype}, got {given.dtype} on rank {rank}")
    if not tensor.shape and given.size < 2:  # a rank may hold none of a scalar
        given = given if given.size else np.zeros(1, tensor.dtype)
    elif given.shape != shape:
        raise ValueError(f"run: rank {rank} holds {shape} of {tensor.name}, shape {tensor.shape}; got {given.shape}")
    if written and not (isinstance(array, np.ndarray) and given.flags.c_contiguous and given.flags.writeable):
        raise ValueError(
            f"run: {tensor.name} is written in place, so its part must be a C-contiguous, writeable NumPy array, on "
            f"rank {rank} too"
        )
    return np.ascontiguousarray(given)


def _check_apart(arrays: Mapping[str, Array], written: Collection[str]) -> None:
    for name in written:
        for other, array in arrays.items():
            if other != name and np.may_share_memory(arrays[name], array):
                raise ValueError(f"run: {name} is written in place, but shares memory with {other}; pass a copy")


def scatter(
    program: DistributedProgram, arrays: Sequence[Any], named: Mapping[str, Any], comm: Any
) -> dict[str, Array]:
    """Cut this rank's parts out of whole tensors; see :meth:`DistributedProgram.scatter`."""
    tensors: dict[str, Tensor] = {}
    with _all_ranks(program, comm) as comm:
        wholes = _by_name(program, arrays, named)
        tensors = {name: program.tensor(name) for name in sorted(wholes)}
        given = {name: _whole(tensors[name], whole) for name, whole in wholes.items() if whole is not None}
    check_same(comm, "the tensors to scatter", list(tensors.values()))
    parts = {}
    for name, tensor in tensors.items():
        holders = [rank for rank, has in enumerate(comm.allgather(name in given)) if has]
        if not holders:
            raise ValueError(f"scatter: no rank has {name}")
        if len(holders) == comm.size:
            parts[name] = _in_node_memory(tensor.distribution.local(given[name], comm.rank))
        else:
            parts[name] = _received(tensor, given.get(name), holders[0], comm)
    return parts


def _by_name(program: DistributedProgram, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    inputs = program.inputs
    if len(arrays) > len(inputs):
        raise ValueError(f"the program has {len(inputs)} inputs, {', '.join(inputs)}; got {len(arrays)}")
    given = dict(zip(inputs, arrays, strict=False))
    twice = sorted(set(given) & set(named))
    if twice:
        raise ValueError(f"{', '.join(twice)} is given twice, by position and by name")
    return {**given, **named}


def _whole(tensor: Tensor, whole: Any) -> Array:
    array = np.asarray(whole, tensor.dtype)
    if array.shape != tensor.shape:
        raise ValueError(f"scatter: {tensor.name} must have shape {tensor.shape}, got {array.shape}")
    return array.reshape(tensor.shape or (1,))


def _received(tensor: Tensor, whole: Array | None, root: int, comm: Any) -> Array:
    """Get this rank's part from the root, which sends it."""
    mine = np.empty(tensor.distribution.local_shape(comm.rank), tensor.dtype)
    if comm.rank != root:
        comm.Recv(mine, root)
        return _in_node_memory(mine)
    assert whole is not None
    for rank in range(comm.size):
        part = tensor.distribution.local(whole, rank)
        if rank == root:
            mine = part
        else:
            comm.Send(part, rank)
    return _in_node_memory(mine)


def _in_node_memory(part: Array) -> Array:
    """A copy from which other ranks of the node can read, if it is large enough to matter."""
    copied = empty_if_shared(part.shape, part.dtype)
    copied[...] = part
    return copied


def gather(program: DistributedProgram, name: str | None, local: Any, comm: Any = None) -> Array | None:
    """The whole of a tensor on rank 0; see :meth:`DistributedProgram.gather`."""
    with _all_ranks(program, comm, "the tensor to gather", name) as comm:
        tensor = program.tensor(name)
        part = np.ascontiguousarray(local, tensor.dtype)
        shape = tensor.distribution.local_shape(comm.rank)
        if part.shape != shape and (tensor.shape or part.size != 1):
            raise ValueError(f"gather: rank {comm.rank} holds {shape} of {tensor.name}, got {part.shape}")
    if comm.rank != 0:
        if 0 not in shape:
            comm.Send(part, 0)
        return None
    whole = np.empty(tensor.shape or (1,), tensor.dtype)
    for rank in range(comm.size):
        shape = tensor.distribution.local_shape(rank)
        if 0 in shape:
            continue
        piece = part.reshape(shape) if rank == 0 else np.empty(shape, tensor.dtype)
        if rank != 0:
            comm.Recv(piece, rank)
        whole[np.ix_(*tensor.distribution.global_index(rank))] = piece
    return whole.reshape(tensor.shape)
