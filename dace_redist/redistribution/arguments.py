"""What is asked for when NumPy arrays are redistributed: checked on each rank, and agreed upon by all."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution, Distribution, TiledDistribution
from dace_redist.element_operation import ElementOperation, element_operation, element_type
from dace_redist.index_map import IndexMap
from dace_redist.mpi.launch import check_launcher
from dace_redist.redistribution.device_arrays import DEVICES, ArrayView, array_view, is_foreign
from dace_redist.redistribution.shared_arrays import is_shared
from dace_redist.schedule import Schedule, checked_index_map
from dace_redist.selection.problem_key import gpu_memory_name, memory_name
from dace_redist.strategies import AUTO, DEFAULT_STRATEGY, check_options, check_places, find_strategy, options_within

#: Element types of the sources of a call, in their order; None: not known.
SourceTypes = tuple[np.dtype[Any] | None, ...]


class UnknownTypeError(TypeError):
    """
    Nothing on this rank tells the element type of a source, for which it passes None; other ranks may.

    :param text: What is wrong if none does.
    :param source_types: What this rank knows.
    """

    def __init__(self, text: str, source_types: SourceTypes) -> None:
        super().__init__(text)
        self.source_types = source_types


@dataclasses.dataclass(frozen=True)
class PlanArguments:
    """What all ranks must agree on."""

    strategy: str
    options: tuple[tuple[str, int | float], ...]
    dtype: np.dtype[Any]
    operation: ElementOperation
    source: AnyDistribution
    target: AnyDistribution
    index_map: IndexMap
    #: Where the arrays lie, for strategy ``"Auto"``: the kinds of memory that a choice may be for, the first one first;
    #: none if the arrays are not all in C order, for which nothing is measured.
    memories: tuple[str, ...] = ()
    #: Where source and target lie, each one of ``DEVICES``.
    device: tuple[str, str] = ("cpu", "cpu")

    def __hash__(self) -> int:
        """Computed once: each call looks its arguments up."""
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash(
            (
                *(self.strategy, self.options, self.operation, self.source, self.target, self.index_map),
                *(self.memories, self.device),
            )
        )

    @property
    def source_types(self) -> SourceTypes:
        """Element type of the source."""
        return (self.dtype,)

    @property
    def schedule(self) -> Schedule:
        """Who sends what to whom."""
        operation = None if self.operation.is_copy else self.operation
        return Schedule(self.source, self.target, self.dtype, self.index_map, operation)

    def digest(self) -> int:
        """A number that other arguments hardly share, the same on every rank; of 56 bits."""
        text = repr(
            (self.strategy, self.options, self.operation, self.dtype.itemsize, self.memories, self.device)
        ).encode()
        state = hashlib.blake2b(text, digest_size=7)
        for part in (self.source, self.target, self.index_map):
            state.update(part.encoded_array.tobytes())
        return int.from_bytes(state.digest(), "little")


#: Arguments of ``redistribute`` and ``plan``, which take the options of a strategy beside them.
_ARGUMENTS = (
    "comm",
    "out",
    "dtype",
    "target_dtype",
    "strategy",
    "device",
    "axes",
    "region",
    "alpha",
    "beta",
    "conj",
    "op",
    "memory_bytes",
)


def checked_arguments(
    array: Any,
    source: Any,
    target: Any,
    comm: MPI.Intracomm,
    out: Any,
    strategy: str,
    options: dict[str, Any],
    axes: Any = None,
    region: Any = None,
    dtype: Any = None,
    alpha: Any = 1,
    beta: Any = 0,
    conj: Any = False,
    op: Any = None,
    memory_bytes: int | None = None,
    planned: bool = False,
    told: SourceTypes = (),
) -> PlanArguments:
    """
    What this rank asks for, checked; parameters and errors as of :func:`dace_redist.redistribute`.

    :param planned: Whether the arrays come later: ``array`` has the source's type, and no shape.
    :param told: The source's type as other ranks know it, for a rank that passes None.
    :raises UnknownTypeError: If this rank does not know it, and was not told.
    """
    for name, distribution in (("source", source), ("target", target)):
        if not isinstance(distribution, Distribution | TiledDistribution):
            raise TypeError(f"{name} must be a Distribution or TiledDistribution, got {distribution!r}")
        if distribution.ranks_needed > comm.size:
            check_launcher(MPI.COMM_WORLD)  # else every rank is alone
            raise ValueError(
                f"the {name} distribution names ranks up to {distribution.ranks_needed - 1}, "
                f"but the communicator has {comm.size} ranks; start the program with "
                f"mpiexec -n {distribution.ranks_needed}, or pass a larger communicator"
            )
    index_map = checked_index_map(source, target, axes, region)
    chosen = AUTO if strategy == AUTO.name else find_strategy(strategy)
    if chosen.name == "MPI":
        raise ValueError("strategy MPI (stock DaCe) exists in DaCe programs only; take Datatype")
    checked = check_options(chosen, options, _ARGUMENTS)
    element = _checked_type(array, out, dtype, told)
    operation = element_operation(element, None if dtype is None else element_type(dtype), alpha, beta, conj, op)
    if out is not None and out.dtype != operation.target:
        hint = "" if dtype is not None else f"; dtype=numpy.{out.dtype} converts on the way"
        raise TypeError(f"array and out need one element type, got {operation.target} and {out.dtype}{hint}")
    if not planned:
        _check_arrays(array, source, target, out, comm.rank)
        if out is None:
            check_covered(index_map, operation, target)
    if memory_bytes is not None:
        moved = Schedule(source, target, element, index_map, None if operation.is_copy else operation)
        name = DEFAULT_STRATEGY if chosen is AUTO else chosen.name
        chosen, checked = find_strategy(name), options_within(moved, name, memory_bytes, checked)
    return PlanArguments(chosen.name, tuple(sorted(checked.items())), element, operation, source, target, index_map)


def check_covered(index_map: IndexMap, operation: ElementOperation, target: AnyDistribution) -> None:
    """
    Makes sure that a redistribution gives all elements of a new array a value.

    :raises ValueError: If it does not.
    """
    if operation.beta != 0:
        raise ValueError("beta needs the array whose elements it scales: pass it as out")
    if not index_map.covers(target.shape):
        raise ValueError("region leaves a part of the target as it is: pass the array that has it as out")


def _checked_type(array: Any, out: Any, dtype: Any, told: SourceTypes) -> np.dtype[Any]:
    for name, given in (("array", array), ("out", out)):
        if given is not None and not isinstance(given, np.ndarray | ArrayView):
            raise TypeError(f"{name} must be a NumPy array, got {type(given).__name__}")
    return source_types(["array"], [array], [out], [dtype], told)[0]


def source_types(
    names: Sequence[str], arrays: Sequence[Any], out: Sequence[Any], dtypes: Sequence[Any], told: SourceTypes
) -> list[np.dtype[Any]]:
    """
    Element types of sources. One that is None here has that of its target, unless elements are converted on the way:
    then it is what other ranks tell.

    :param names: What errors call the sources.
    :param arrays: Sources, each an array or None.
    :param out: Their targets; None: they are to be made.
    :param dtypes: Types that elements are converted to; None: they are not.
    :param told: The types as other ranks know them; empty: these were not asked.
    :raises TypeError: If source and target are None, or elements have no fixed size.
    :raises UnknownTypeError: If neither this rank nor those that were asked know a type.
    """
    known: list[np.dtype[Any] | None] = []
    for number, (name, array, result, dtype) in enumerate(zip(names, arrays, out, dtypes, strict=True)):
        if array is None and result is None:
            raise TypeError(f"{name} is None: pass an empty array of the element type, or out")
        typed = array if array is not None or dtype is not None else result
        theirs = told[number] if number < len(told) else None
        known.append(typed.dtype if isinstance(typed, np.ndarray | ArrayView) else theirs)
    types = [element for element in known if element is not None]
    unknown = [name for name, element in zip(names, known, strict=True) if element is None]
    if unknown:
        raise UnknownTypeError(
            f"{unknown[0]} is None on every rank, and out has the type that elements are converted to: "
            "pass an empty array of the source's element type",
            tuple(known),
        )
    for element in types:
        if element.hasobject or element.itemsize == 0:
            raise TypeError(f"cannot move elements of type {element}: they have no fixed size without Python objects")
    return types


def check_part(name: str, given: Any, shape: tuple[int, ...], dtype: np.dtype[Any], rank: int) -> None:
    """
    Makes sure that an array is a rank's part of a tensor; where the rank owns nothing, None is one, too.

    :param name: What errors call the array.
    :raises ValueError: If it has another shape.
    :raises TypeError: If it is no array, or of another type.
    """
    if given is not None and not isinstance(given, np.ndarray | ArrayView):
        hint = '; arrays on a GPU need a plan with device="gpu"' if is_foreign(given) else ""
        raise TypeError(f"{name} must be a NumPy array, got {type(given).__name__}{hint}")
    empty = 0 in shape and (given is None or given.size == 0)
    if not empty and (given is None or given.shape != shape):
        what = "None" if given is None else f"shape {given.shape}"
        raise ValueError(f"{name} must have the shape {shape} that rank {rank} owns of the tensor, got {what}")
    if given is not None and given.dtype != dtype:
        raise TypeError(f"{name} must hold {dtype}, got {given.dtype}")


def _check_arrays(array: Any, source: AnyDistribution, target: AnyDistribution, out: Any, rank: int) -> None:
    for name, given, distribution in (("array", array, source), ("out", out, target)):
        if name == "array" or given is not None:
            dtype = given.dtype if given is not None else np.dtype(bool)
            check_part(name, given, distribution.local_shape(rank), dtype, rank)
    check_target(array, out)


def check_target(array: Any, out: Any) -> None:
    """
    Makes sure that a target array can be written, and does not overlap the source.

    :raises ValueError: If not.
    """
    if out is None:
        return
    if not is_writeable(out):
        raise ValueError("out is read-only")
    if overlap(array, out):
        raise ValueError("array and out overlap; a tensor cannot be redistributed in place")


def is_writeable(array: npt.NDArray[Any] | ArrayView) -> bool:
    """Whether an array can be written."""
    return array.writeable if isinstance(array, ArrayView) else bool(array.flags.writeable)


def overlap(array: Any, other: Any) -> bool:
    """Whether two arrays may have memory in common; what is no array has none."""
    if isinstance(array, np.ndarray) and isinstance(other, np.ndarray):
        return np.may_share_memory(array, other)
    one, another = (array_view("array", part) if isinstance(part, np.ndarray) else part for part in (array, other))
    return isinstance(one, ArrayView) and isinstance(another, ArrayView) and one.overlaps(another)


@dataclasses.dataclass(frozen=True)
class JointArguments:
    """What all ranks must agree on for several tensors in one exchange."""

    strategy: str
    tensors: tuple[PlanArguments, ...]

    @property
    def device(self) -> tuple[str, str]:
        """Where all sources and all targets lie, each one of ``DEVICES``."""
        return self.tensors[0].device

    @property
    def source_types(self) -> SourceTypes:
        """Element type of each source."""
        return tuple(tensor.dtype for tensor in self.tensors)

    def digest(self) -> int:
        """As :meth:`PlanArguments.digest`."""
        digests = (self.strategy, *(tensor.digest() for tensor in self.tensors))
        return int.from_bytes(hashlib.blake2b(repr(digests).encode(), digest_size=7).digest(), "little")


Agreed = TypeVar("Agreed", PlanArguments, JointArguments)


def _agreed(
    comm: MPI.Intracomm, checked: Callable[..., Agreed], *anywhere: bool, told: SourceTypes = ()
) -> tuple[Agreed, list[bool]]:
    """
    What all ranks ask for; raises on every rank if one cannot take part, or if they differ. Collective, over ranks that
    all give as many facts.

    :param checked: What this rank asks for; raises ``ValueError`` or ``TypeError`` if it cannot take part. If it raises
        ``UnknownTypeError``, the ranks tell each other the types, and it is called again with them.
    :param anywhere: Facts of this rank's.
    :param told: The types of the sources as other ranks know them, the second time.
    :return: What all ask for, and for each fact whether it holds on any rank.
    """
    arguments: Agreed | None = None
    failure: Exception | None = None
    types: SourceTypes = ()
    try:
        arguments = checked(told) if told else checked()
        types = arguments.source_types
    except (ValueError, TypeError) as error:
        if isinstance(error, UnknownTypeError) and not told:
            types = error.source_types
        else:
            failure = error
    digest = arguments.digest() if arguments is not None else 0
    unknown = any(element is None for element in types)  # not "None in": float64 == None, says NumPy
    mine = np.array([failure is not None, digest, -digest, unknown, *anywhere], dtype=np.int64)
    most = np.empty_like(mine)
    comm.Allreduce(mine, most, MPI.MAX)
    if most[0]:
        failures = comm.allgather(None if failure is None else (isinstance(failure, TypeError), str(failure)))
        if failure is not None:
            raise failure
        rank, (of_type, text) = next((r, f) for r, f in enumerate(failures) if f is not None)
        raise (TypeError if of_type else ValueError)(f"on rank {rank}: {text}")
    if most[3]:
        return _agreed(comm, checked, *anywhere, told=_merged(comm.allgather(types)))
    if most[1] != -most[2]:
        raise ValueError(_difference(comm.allgather(arguments)))
    assert arguments is not None
    return arguments, [bool(fact) for fact in most[4:]]


def _merged(ranks: Sequence[SourceTypes]) -> SourceTypes:
    """The type of each source that the first rank tells which knows it."""
    columns = itertools.zip_longest(*ranks)  # not all ranks need to ask for as many tensors: that is said later
    return tuple(next((element for element in column if element is not None), None) for column in columns)


def agreed_joint_arguments(
    comm: MPI.Intracomm, arrays: Sequence[Any], out: Sequence[Any], checked: Callable[[], JointArguments]
) -> JointArguments:
    """As :func:`agreed_arguments`, for several tensors. Collective, also with ranks that ask for one tensor."""
    arguments, facts = _agreed(comm, checked, *([False] * 4), *_sides(arrays, out))
    if not _on_gpu(facts[4:]):
        return arguments
    device = _agreed_device(facts[4:], hint=", or in other parts of the list: these take a call each")
    return dataclasses.replace(
        arguments, tensors=tuple(dataclasses.replace(one, device=device) for one in arguments.tensors)
    )


def agreed_arguments(comm: MPI.Intracomm, array: Any, out: Any, checked: Callable[[], PlanArguments]) -> PlanArguments:
    """What all ranks ask for; raises on every rank if one cannot take part, or if they differ. Collective."""
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
        return dataclasses.replace(arguments, memories=(gpu_memory_name(source_on_gpu, target_on_gpu),))
    # A result that redistribute() makes itself is in shared memory where that helps, but need not be.
    kinds = (not private_target,) if given_target else (True, False)
    return dataclasses.replace(arguments, memories=tuple(memory_name(not private_source, kind) for kind in kinds))


def _in_c_order(array: Any) -> bool:
    """Whether an array's elements lie in C order; what is no array has none."""
    if isinstance(array, ArrayView):
        return array.in_c_order
    return not isinstance(array, np.ndarray) or array.flags.c_contiguous


def _lies_on(array: Any, device: str) -> bool:
    """Whether an array has elements, and they lie on a device; what is no array has none."""
    if isinstance(array, ArrayView):
        return array.size > 0 and array.device == device
    return isinstance(array, np.ndarray) and array.size > 0 and device == "cpu"


def _sides(arrays: Sequence[Any], out: Sequence[Any]) -> list[bool]:
    """
    Of the sources, then of the targets: whether any of them lies in main memory, whether any lies on the GPU, and
    whether any has strides that do not count elements forward.
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
    """Whether a source or a target lies on the GPU, on any rank."""
    return sides[1] or sides[4]


def _agreed_device(sides: Sequence[bool], hint: str = "") -> tuple[str, str]:
    """
    Where source and target lie, of which one is on the GPU; a target that no rank has lies with the source.

    :param sides: What :func:`_sides` says, on any rank.
    :param hint: For the error that some lie elsewhere than others.
    :raises ValueError: If some lie elsewhere than others, or in a way that only arrays in main memory may.
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
    """Whether the strategies that know nodes cannot reach an array's elements; without any, it does not matter."""
    return array is not None and array.size > 0 and not (is_shared(array) and is_plain(array))


def _difference(arguments: list[Any]) -> str:
    """Names the first thing in which a rank differs from rank 0."""
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
                return (
                    f"the ranks ask for different redistributions: {field.name} is {_shown(a)} on rank 0 "
                    f"and {_shown(b)} on rank {rank}"
                )
    return "the ranks ask for different redistributions"


def _shown(value: Any) -> str:
    return ", ".join(f"{k}={v}" for k, v in value) or "none" if isinstance(value, tuple) else str(value) or "none"


def is_plain(array: npt.NDArray[Any]) -> bool:
    """Whether an array's strides count elements forward."""
    return all(stride >= 0 and stride % array.itemsize == 0 for stride in array.strides)
