"""Agreement of all ranks on the arguments of a redistribution. Start reading at: agreed_arguments."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.mpi.collective import encoded_failure, raise_first
from dace_redist.redistribution.arguments import JointArguments, PlanArguments, SourceTypes, UnknownTypeError, is_plain
from dace_redist.redistribution.device_arrays import DEVICES, ArrayView, array_view
from dace_redist.redistribution.shared_arrays import is_shared
from dace_redist.strategies import AUTO, check_places, find_strategy
from dace_redist.tuning.problem import memory_name

Agreed = TypeVar("Agreed", PlanArguments, JointArguments)


def _agreed(
    comm: MPI.Intracomm, checked: Callable[..., Agreed], *anywhere: bool, told: SourceTypes = ()
) -> tuple[Agreed, list[bool]]:
    """
    Return the arguments that all ranks agree on. Collective; all ranks pass equally many flags.

    An error on one rank, or a difference between ranks, is raised on every rank.

    :param checked: Returns this rank's arguments; raises ``ValueError`` or ``TypeError`` if they are invalid. If it
        raises ``UnknownTypeError``, the ranks exchange the element types, and it is called again with them.
    :param anywhere: Local booleans.
    :param told: Element types of the sources, gathered from all ranks; empty on the first attempt.
    :return: The arguments, and the logical OR of each boolean over all ranks.
    """
    arguments: Agreed | None = None
    failure: Exception | None = None
    types: SourceTypes = ()
    try:
        arguments = checked(told) if told else checked()
        types = arguments.source_types
    except (ValueError, TypeError, RuntimeError) as error:
        if isinstance(error, UnknownTypeError) and not told:
            types = error.source_types
        else:
            failure = error
    digest = arguments.digest() if arguments is not None else 0
    unknown = any(element is None for element in types)  # not "None in": float64 == None is True in NumPy
    mine = np.array([failure is not None, digest, -digest, unknown, *anywhere], dtype=np.int64)
    most = np.empty_like(mine)
    comm.Allreduce(mine, most, MPI.MAX)
    if most[0]:
        raise_first(failure, comm.allgather(encoded_failure(failure)))
    if most[3]:
        return _agreed(comm, checked, *anywhere, told=_merged(comm.allgather(types)))
    if most[1] != -most[2]:
        raise ValueError(_difference(comm.allgather(arguments)))
    assert arguments is not None
    return arguments, [bool(fact) for fact in most[4:]]


def _merged(ranks: Sequence[SourceTypes]) -> SourceTypes:
    """Return the type of each source from the first rank that knows it."""
    columns = itertools.zip_longest(*ranks)  # a different number of tensors is an error later
    return tuple(next((element for element in column if element is not None), None) for column in columns)


def agreed_joint_arguments(
    comm: MPI.Intracomm, arrays: Sequence[Any], out: Sequence[Any], checked: Callable[[], JointArguments]
) -> JointArguments:
    """Return the agreed arguments of several tensors, see :func:`agreed_arguments`. Collective."""
    arguments, facts = _agreed(comm, checked, *([False] * 4), *_sides(arrays, out))
    if _on_gpu(facts[4:]):
        device = _agreed_device(facts[4:], hint=", or in other parts of the list: these take a call each")
        tensors = tuple(dataclasses.replace(one, device=device) for one in arguments.tensors)
        arguments = dataclasses.replace(arguments, tensors=tensors)
    check_places(find_strategy(arguments.strategy), *(side == "gpu" for side in arguments.device))
    return arguments


def agreed_arguments(comm: MPI.Intracomm, array: Any, out: Any, checked: Callable[[], PlanArguments]) -> PlanArguments:
    """Return the arguments that all ranks agree on; raise any error or difference on every rank. Collective."""
    private = [isinstance(part, np.ndarray) and _is_private(part) for part in (array, out)]
    ordered = all(_in_c_order(part) for part in (array, out))
    arguments, facts = _agreed(comm, checked, *private, out is not None, not ordered, *_sides([array], [out]))
    private_source, private_target, given_target, unordered = facts[:4]
    if _on_gpu(facts[4:]):
        arguments = dataclasses.replace(arguments, device=_agreed_device(facts[4:]))
    check_places(find_strategy(arguments.strategy), *(side == "gpu" for side in arguments.device))
    if arguments.strategy != AUTO.name or unordered:
        return arguments
    if "gpu" in arguments.device:
        source_on_gpu, target_on_gpu = (side == "gpu" for side in arguments.device)
        return dataclasses.replace(arguments, memories=(memory_name(source_on_gpu, target_on_gpu, "gpu"),))
    # A result allocated by redistribute() may lie in node-shared or in ordinary memory.
    kinds = (not private_target,) if given_target else (True, False)
    return dataclasses.replace(arguments, memories=tuple(memory_name(not private_source, kind) for kind in kinds))


def _in_c_order(array: Any) -> bool:
    """True if an array is in C order, or the argument is not an array."""
    if isinstance(array, ArrayView):
        return array.in_c_order
    return not isinstance(array, np.ndarray) or array.flags.c_contiguous


def _lies_on(array: Any, device: str) -> bool:
    """True for a non-empty array on this device."""
    if isinstance(array, ArrayView):
        return array.size > 0 and array.device == device
    return isinstance(array, np.ndarray) and array.size > 0 and device == "cpu"


def _sides(arrays: Sequence[Any], out: Sequence[Any]) -> list[bool]:
    """
    Return three flags for the sources, then for the targets: any in main memory, any on the GPU, any with irregular
    strides (negative, or not a multiple of the element size).
    """
    return [
        fact
        for parts in (arrays, out)
        for fact in (
            *(any(_lies_on(part, device) for part in parts) for device in DEVICES),
            any(_counts_backward(part) for part in parts),
        )
    ]


def _counts_backward(array: Any) -> bool:
    if isinstance(array, np.ndarray):
        return not is_plain(array) and not array_view("array", array).is_plain
    return isinstance(array, ArrayView) and not array.is_plain


def _on_gpu(sides: Sequence[bool]) -> bool:
    """True if a source or a target lies on the GPU of any rank."""
    return sides[1] or sides[4]


def _agreed_device(sides: Sequence[bool], hint: str = "") -> tuple[str, str]:
    """
    Return the devices of source and target, at least one of which is the GPU.

    Without a target on any rank, it is placed on the device of the source.

    :param sides: Logical OR over all ranks of the flags of :func:`_sides`.
    :param hint: Remedy in the error that devices differ.
    :raises ValueError: If the devices of one side differ, or strides are irregular.
    """
    source_cpu, source_gpu, source_backward, target_cpu, target_gpu, target_backward = sides
    for name, cpu, gpu, backward in (
        ("array", source_cpu, source_gpu, source_backward),
        ("out", target_cpu, target_gpu, target_backward),
    ):
        if cpu and gpu:
            raise ValueError(f"{name} lies on the GPU on some ranks, and in main memory on others{hint}")
        if backward:
            raise ValueError(
                f"{name} has strides that do not count elements forward, on some rank, and source or target is on the "
                "GPU: copy it first"
            )
    source = "gpu" if source_gpu else "cpu"
    return source, "gpu" if target_gpu else "cpu" if target_cpu else source


def _is_private(array: npt.NDArray[Any] | None) -> bool:
    """True if node-aware strategies cannot access the array directly; False for an empty array."""
    return array is not None and array.size > 0 and not (is_shared(array) and is_plain(array))


#: Names of arguments in a call, where a field has another name.
_ASKED_FOR = {"index_map": "axes or region", "operation": "op, alpha, beta, conj or dtype"}


def _difference(arguments: list[Any]) -> str:
    """Describe the first argument in which a rank differs from rank 0."""
    first = arguments[0]
    lists = [isinstance(other, JointArguments) for other in arguments]
    if any(lists) and not all(lists):
        return f"rank {lists.index(True)} gives lists of tensors, and rank {lists.index(False)} one tensor"
    if isinstance(first, JointArguments):
        counts = [len(other.tensors) for other in arguments]
        rank = next((rank for rank, count in enumerate(counts) if count != counts[0]), None)
        if rank is not None:
            return f"the ranks differ in the number of tensors: {counts[0]} on rank 0 and {counts[rank]} on rank {rank}"
        columns = list(zip(*(other.tensors for other in arguments), strict=True))
        at = next(n for n, column in enumerate(columns) if any(other != column[0] for other in column))
        return f"tensor {at}: {_difference(list(columns[at]))}"
    for rank, other in enumerate(arguments):
        for field in dataclasses.fields(PlanArguments):
            a, b = getattr(first, field.name), getattr(other, field.name)
            if a != b:
                name = _ASKED_FOR.get(field.name, field.name)
                return (
                    f"the ranks ask for different redistributions: {name} is {_shown(a)} on rank 0 "
                    f"and {_shown(b)} on rank {rank}"
                )
    return "the ranks ask for different redistributions"


def _shown(value: Any) -> str:
    return ", ".join(f"{k}={v}" for k, v in value) or "none" if isinstance(value, tuple) else str(value) or "none"
