"""Execution of a distributed program: compilation, local parts, and transfer of whole tensors in and out."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from mpi4py import MPI

from dace_redist.distribution import Distribution
from dace_redist.errors import RedistributionError
from dace_redist.mpi.collective import check_same, checked_communicator, together
from dace_redist.mpi.launch import check_launcher
from dace_redist.redistribution.arrays import ArrayView, array_view, is_foreign, sample_of
from dace_redist.redistribution.arrays.new import DeviceArray, new_array
from dace_redist.redistribution.plan import plan
from dace_redist.redistribution.whole_tensors import gather as gather_tensor
from dace_redist.redistribution.whole_tensors import scatter as scatter_tensor
from dace_redist.report.units import count
from dace_redist.transformations.distribute.emit.arrays import DistributedTensor
from dace_redist.transformations.distribute.runtime.facts import (
    Array,
    ProgramFacts,
    check_apart,
    check_in_place,
    shared_values,
)
from dace_redist.transformations.distribute.runtime.loaded import Loaded, load
from dace_redist.transformations.patterns import changed

_RETURN = "__return"
_PROGRAM = "the distributed program and its sizes"


def compile_program(program: ProgramFacts, comm: Any) -> None:
    """Compile and load a program; see :meth:`DistributedProgram.compile`."""
    changed.add(program.built)
    with _all_ranks(program, comm, {_PROGRAM: program.identity}) as comm:
        pass
    load(program, comm)


def run(program: ProgramFacts, local: Mapping[str, Any], comm: Any) -> Any:
    """Run once; see :meth:`DistributedProgram.run`."""
    return _returned(_outputs(program, local, comm))


def call(program: ProgramFacts, arrays: Sequence[Any], named: Mapping[str, Any], comm: Any) -> Any:
    """Scatter, run and gather; see :meth:`DistributedProgram.__call__`."""
    with _all_ranks(program, comm) as comm:
        given = _by_name(program, arrays, named)
        written = [name for name in given.keys() & program.outputs.keys() if given[name] is not None]
        if comm.rank == 0:
            for name in sorted(written):
                check_in_place(program.tensor(name), given[name])
            whole = {name: array_view(name, array) for name, array in given.items() if isinstance(array, np.ndarray)}
            check_apart(whole, written)
    outputs = _outputs(program, scatter(program, arrays, named, comm), comm)
    wholes = {name: gather(program, name, part, comm) for name, part in outputs.items()}
    if comm.rank != 0:
        return None
    for name in wholes.keys() & {*written}:
        given[name][...] = wholes[name]
    return _returned(wholes)


def _outputs(program: ProgramFacts, local: Mapping[str, Any], comm: Any) -> dict[str, Any]:
    """Run once; return this rank's parts of all outputs."""
    with _all_ranks(program, comm, {_PROGRAM: program.identity, **shared_values(program, local)}) as comm:
        program.recipe.captured.check()
        arrays = _arrays(program, local, comm.rank)
        views = {name: array_view(name, array) for name, array in arrays.items()}
        check_apart(views, program.outputs)
    _run_on_all(load(program, comm), views, comm)
    return {name: arrays[name] for name in program.outputs}


def _returned(outputs: dict[str, Any]) -> Any:
    if _RETURN in outputs:
        return outputs[_RETURN]
    several = [f"{_RETURN}_{number}" for number in range(len(outputs))]
    return tuple(outputs[name] for name in several if name in outputs) or outputs


def _run_on_all(loaded: Loaded, arrays: Mapping[str, ArrayView], comm: Any) -> None:
    """Run once, and raise an error of one rank on all; after a failing step the remaining steps still run."""
    loaded.start()
    failure: Exception | None = None
    try:
        loaded.run(arrays)
    except RedistributionError as error:
        failure = error
    failed = np.array([failure is not None], np.int32)
    comm.Allreduce(MPI.IN_PLACE, failed, MPI.MAX)  # far cheaper than the exchange of together()
    if failed[0]:
        with together(comm):
            if failure is not None:
                raise failure


@contextlib.contextmanager
def _all_ranks(program: ProgramFacts, comm: Any, values: Mapping[str, object] | None = None) -> Iterator[Any]:
    """
    Check the communicator, and raise an error of the block on one rank on all. Collective over it, or over the world if
    the program uses all its ranks, so that none waits if another passes a different communicator. Yields the
    communicator to use: the world, if it has the same ranks in the same order.
    """
    found, failure = _communicator(program, comm)
    world = MPI.COMM_WORLD
    same = failure is None and (found == world or MPI.Comm.Compare(found, world) != MPI.UNEQUAL)
    everywhere = world.size == program.ranks and (failure is not None or same)
    if failure is not None and not everywhere:  # ranks that pass the same communicator fail, too
        raise failure
    with together(world if everywhere else found, values):
        if failure is not None:
            raise failure
        yield found


def _communicator(program: ProgramFacts, comm: Any) -> tuple[Any, Exception | None]:
    """Return the communicator to use, and the error if it is invalid."""
    world = MPI.COMM_WORLD
    try:
        found = checked_communicator(comm)
    except TypeError as error:
        return comm, error
    if found.size == program.ranks:
        same = found != world and MPI.Comm.Compare(found, world) == MPI.CONGRUENT
        return world if same else found, None
    try:
        check_launcher(world)
    except RuntimeError as error:  # each process is a world of its own
        return found, error
    which = "the world has" if comm is None else "the communicator has"
    ranks = count(program.ranks, "rank")
    return found, ValueError(
        f"the program is distributed over {ranks}, but {which} {found.size}: start it with mpiexec -n {program.ranks}, "
        f"pass comm= with {ranks}, or call distribute(..., ranks={found.size})"
    )


def _arrays(program: ProgramFacts, local: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """Return all arrays of a run: the given ones, checked, and new ones for the other outputs."""
    known = {**program.inputs, **program.outputs}
    unknown = sorted(set(local) - set(known) - program.unused)
    missing = sorted(set(program.inputs) - set(local))
    if unknown:
        raise ValueError(f"run: the program has no tensor {', '.join(unknown)}; it has {', '.join(known)}")
    if missing:
        raise ValueError(f"run: the part of {', '.join(missing)} is missing; it takes {', '.join(program.inputs)}")
    arrays: dict[str, Any] = {**program.closure_parts(rank)}
    for name, tensor in known.items():
        there = name in program.gpu_arguments
        if name in local:
            arrays[name] = _checked(local[name], tensor, rank, name in program.outputs, there)
        elif there:
            like = next((array for array in local.values() if _lies_on_gpu(array)), None)
            arrays[name] = new_array(like, tensor.distribution.local_shape(rank), tensor.dtype, "gpu")
        else:
            shape = tensor.distribution.local_shape(rank) if tensor.shape else (1,)
            arrays[name] = new_array(None, shape, tensor.dtype, "cpu", shared=True)
    return arrays


def _lies_on_gpu(array: Any) -> bool:
    return is_foreign(array) and array_view("array", array).device == "gpu"


def _checked(array: Any, tensor: DistributedTensor, rank: int, written: bool, on_gpu: bool) -> Any:
    """Return a part as a run uses it; raise if its device, shape or type is wrong, or it is read-only."""
    name, given = tensor.name, array_view(f"run: {tensor.name}", array) if on_gpu else None
    if given is not None and given.device != "gpu" and given.size:
        raise ValueError(
            f"run: {name} lies in main memory on rank {rank}, but the program was distributed with "
            'arguments="gpu": pass what scatter returns, or an array of CuPy or PyTorch'
        )
    if given is None and _lies_on_gpu(array):
        hint = 'distribute it with arguments="gpu"' if tensor.shape else "scalars are always there"
        raise ValueError(f"run: {name} lies on the GPU, but the program takes it in main memory: {hint}")
    if given is None:
        given = np.asarray(array) if tensor.shape or written else _converted("run", tensor, array)
    if given.dtype != tensor.dtype:
        raise ValueError(f"run: {name} must hold {tensor.dtype}, got {given.dtype} on rank {rank}")
    if not tensor.shape and given.size < 2:  # a rank may hold none of a scalar
        given = given if given.size else np.zeros(1, tensor.dtype)
    elif given.shape != (shape := tensor.distribution.local_shape(rank) if tensor.shape else (1,)):
        raise ValueError(f"run: rank {rank} holds {shape} of {name}, shape {tensor.shape}; got {given.shape}")
    if isinstance(given, ArrayView):
        if not given.in_c_order or (written and not given.writeable):
            wanted = "in C order and writeable" if written else "in C order"
            raise ValueError(f"run: {name} lies on the GPU, where its part must be {wanted}, on rank {rank} too")
        return array
    if written and not (isinstance(array, np.ndarray) and given.flags.c_contiguous and given.flags.writeable):
        raise ValueError(
            f"run: {name} is written in place, so its part must be a C-contiguous, writeable NumPy array, on rank "
            f"{rank} too"
        )
    return np.ascontiguousarray(given)


def scatter(program: ProgramFacts, arrays: Sequence[Any], named: Mapping[str, Any], comm: Any) -> dict[str, Any]:
    """Cut this rank's parts out of whole tensors; see :meth:`DistributedProgram.scatter`."""
    tensors: dict[str, DistributedTensor] = {}
    with _all_ranks(program, comm) as comm:
        wholes = _by_name(program, arrays, named)
        tensors = {name: program.tensor(name) for name in sorted(wholes)}
        given = {name: _whole(tensors[name], whole) for name, whole in wholes.items() if whole is not None}
    digest = hashlib.blake2b(repr(list(tensors.values())).encode(), digest_size=8)  # placements name all ranks
    check_same(comm, {"the tensors to scatter": (list(tensors), digest.hexdigest())})
    samples = comm.allgather({name: sample_of(whole) for name, whole in given.items()})
    parts: dict[str, Any] = {}
    for name, tensor in tensors.items():
        holders = [rank for rank, sample in enumerate(samples) if name in sample]
        if not holders:
            raise ValueError(f"scatter: no rank has {name}")
        for rank in holders:
            if samples[rank][name] != samples[holders[0]][name]:
                raise ValueError(
                    f"{name} differs between ranks {holders[0]} and {rank}: every rank passes the same whole tensor, "
                    "or None; parts of it go to run"
                )
        if len(holders) < comm.size:
            parts[name] = scatter_tensor(given.get(name), tensor.distribution, comm, holders[0])
    with together(comm):
        for name in tensors.keys() - parts.keys():  # which every rank has
            part = tensors[name].distribution.local(given[name], comm.rank)
            parts[name] = new_array(None, part.shape, part.dtype, "cpu", shared=True)
            parts[name][...] = part
        for name in program.gpu_arguments & parts.keys():
            parts[name] = DeviceArray.from_numpy(parts[name])
    return parts


def _by_name(program: ProgramFacts, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    inputs, parameters = [*program.inputs], program.recipe.source.arg_names
    if len(arrays) + len(named) == len(parameters):  # all of them, also those that the program only writes or ignores
        inputs = parameters
    if len(arrays) > len(inputs):
        raise ValueError(f"the program has {len(inputs)} inputs, {', '.join(inputs)}; got {len(arrays)}")
    given = dict(zip(inputs, arrays, strict=False))
    twice = sorted(set(given) & set(named))
    if twice:
        raise ValueError(f"{', '.join(twice)} is given twice, by position and by name")
    return {name: array for name, array in {**given, **named}.items() if name not in program.unused}


def _whole(tensor: DistributedTensor, whole: Any) -> Array:
    array = _converted("scatter", tensor, whole)
    if array.shape != tensor.shape and (tensor.shape or array.size != 1):
        raise ValueError(f"scatter: {tensor.name} must have shape {tensor.shape}, got {array.shape}")
    return array.reshape(tensor.shape or (1,))


def _converted(where: str, tensor: DistributedTensor, given: Any) -> Array:
    """
    Return an array of the tensor's element type; Python numbers need only be of the same kind (integer, real, complex).

    :raises ValueError: If that type cannot represent all values of the given type, or this number.
    """
    array = np.asarray(given)
    rule: Literal["safe", "same_kind"] = "safe" if hasattr(given, "dtype") else "same_kind"
    integers = rule == "same_kind" and array.dtype.kind in "iu" and tensor.dtype.kind in "iu"
    if array.size and not integers and not np.can_cast(array.dtype, tensor.dtype, rule):
        raise ValueError(
            f"{where}: {tensor.name} must hold {tensor.dtype}, got {array.dtype}, of which that may lose a part: "
            f"convert it first, as in {tensor.name}.astype(np.{tensor.dtype})"
        )
    try:
        return np.asarray(given, tensor.dtype)
    except OverflowError as error:
        raise ValueError(f"{where}: {tensor.name} must hold {tensor.dtype}: {error}") from error


def gather(program: ProgramFacts, name: str | None, local: Any, comm: Any = None) -> Array | None:
    """Return the whole of a tensor on rank 0; see :meth:`DistributedProgram.gather`."""
    with _all_ranks(program, comm, {"the tensor to gather": name}) as comm:
        tensor = program.tensor(name)
        part = np.ascontiguousarray(_converted("gather", tensor, _in_main_memory(local)))
        shape = tensor.distribution.local_shape(comm.rank)
        if part.shape != shape and (tensor.shape or part.size != 1):
            raise ValueError(f"gather: rank {comm.rank} holds {shape} of {tensor.name}, got {part.shape}")
    if not tensor.shape:
        part = part.reshape(-1)[: shape[0]]  # a rank that holds none of a scalar may have passed one
    whole = gather_tensor(part, tensor.distribution, comm)
    return whole.reshape(tensor.whole_shape) if comm.rank == 0 else None


def _in_main_memory(array: Any) -> Any:
    """Copy an array on the GPU to main memory, after the work enqueued on its stream; return others unchanged."""
    if not _lies_on_gpu(array):
        return array
    view = array_view("array", array)
    everything = Distribution(view.shape, (1,))
    with plan(everything, everything, view.dtype, comm=MPI.COMM_SELF, device=("gpu", "cpu")) as copying:
        return np.asarray(copying(array))
