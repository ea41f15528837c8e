"""Checked arguments of one rank for a redistribution. Start reading at: checked_arguments."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution, Distribution, TiledDistribution
from dace_redist.element_operation import ElementOperation, element_operation, element_type
from dace_redist.index_map import IndexMap
from dace_redist.mpi.launch import check_launcher
from dace_redist.redistribution.device_arrays import ArrayView, array_view, is_foreign
from dace_redist.schedule import Schedule, checked_index_map
from dace_redist.strategies import AUTO, DEFAULT_STRATEGY, check_options, find_strategy
from dace_redist.strategy_memory import options_within

#: Element types of the sources of a call, in order; None: unknown.
SourceTypes = tuple[np.dtype[Any] | None, ...]


class UnknownTypeError(TypeError):
    """
    Element type of a source unknown: this rank passes None and cannot infer it, but other ranks may know it.

    :param text: Error message if no rank knows it.
    :param source_types: The types that this rank knows.
    """

    def __init__(self, text: str, source_types: SourceTypes) -> None:
        super().__init__(text)
        self.source_types = source_types


@dataclasses.dataclass(frozen=True)
class PlanArguments:
    """Arguments that all ranks must agree on."""

    strategy: str
    options: tuple[tuple[str, int | float], ...]
    dtype: np.dtype[Any]
    operation: ElementOperation
    source: AnyDistribution
    target: AnyDistribution
    index_map: IndexMap
    #: Kinds of memory for strategy ``"Auto"``, in order of preference; empty if an array is not in C order, for which
    #: there are no measurements.
    memories: tuple[str, ...] = ()
    #: Devices of source and target, each one of ``DEVICES``.
    device: tuple[str, str] = ("cpu", "cpu")

    def __hash__(self) -> int:
        """Return the hash, computed once: each call looks its arguments up."""
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
        """Messages of the redistribution."""
        operation = None if self.operation.is_copy else self.operation
        return Schedule(self.source, self.target, self.dtype, self.index_map, operation)

    def digest(self) -> int:
        """Return a 56-bit hash of the arguments, equal on all ranks."""
        text = repr(
            (self.strategy, self.options, self.operation, self.dtype.itemsize, self.memories, self.device)
        ).encode()
        state = hashlib.blake2b(text, digest_size=7)
        for part in (self.source, self.target, self.index_map):
            state.update(part.encoded_array.tobytes())
        return int.from_bytes(state.digest(), "little")


#: Arguments of ``redistribute`` and ``plan`` that are not options of a strategy.
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
    Check this rank's arguments. Parameters and errors as of :func:`dace_redist.redistribute`.

    :param planned: True for a plan: ``array`` has the element type of the source, and no shape.
    :param told: Element type of the source from other ranks, for a rank that passes None.
    :raises UnknownTypeError: If this rank cannot infer the type and ``told`` is empty.
    """
    for name, distribution in (("source", source), ("target", target)):
        if not isinstance(distribution, Distribution | TiledDistribution):
            raise TypeError(f"{name} must be a Distribution or TiledDistribution, got {distribution!r}")
        if distribution.ranks_needed > comm.size:
            check_launcher(MPI.COMM_WORLD)  # else each process is a world of its own
            raise ValueError(
                f"the {name} distribution names ranks up to {distribution.ranks_needed - 1}, "
                f"but the communicator has {comm.size} ranks; start the program with "
                f"mpiexec -n {distribution.ranks_needed}, or pass a larger communicator"
            )
    index_map = checked_index_map(source, target, axes, region)
    chosen = AUTO if strategy == AUTO.name else find_strategy(strategy)
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
    Check that a redistribution defines all elements of a new array.

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
    Return the element types of sources.

    A None source has the type of its target or, if elements are converted, the type that other ranks report.

    :param names: Names of the sources in error messages.
    :param arrays: Sources, each an array or None.
    :param out: Their targets, each an array or None.
    :param dtypes: Types that elements are converted to; None: no conversion.
    :param told: Element types from other ranks; empty on the first attempt.
    :raises TypeError: If source and target are None, or elements have no fixed size.
    :raises UnknownTypeError: If a type is unknown on this rank and in ``told``.
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
    Check that an array is a rank's part of a tensor. None is accepted if the rank owns nothing.

    :param name: Name of the array in error messages.
    :raises ValueError: If the shape differs.
    :raises TypeError: If it is not an array, or the element type differs.
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
    Check that a target array is writeable and does not overlap the source.

    :raises ValueError: If it is read-only or overlaps.
    """
    if out is None:
        return
    if not is_writeable(out):
        raise ValueError("out is read-only")
    if overlap(array, out):
        raise ValueError("array and out overlap; a tensor cannot be redistributed in place")


def is_writeable(array: npt.NDArray[Any] | ArrayView) -> bool:
    """True if an array is writeable."""
    return array.writeable if isinstance(array, ArrayView) else bool(array.flags.writeable)


def overlap(array: Any, other: Any) -> bool:
    """True if two arrays may share memory; False if one argument is not an array."""
    if isinstance(array, np.ndarray) and isinstance(other, np.ndarray):
        return np.may_share_memory(array, other)
    one, another = (array_view("array", part) if isinstance(part, np.ndarray) else part for part in (array, other))
    return isinstance(one, ArrayView) and isinstance(another, ArrayView) and one.overlaps(another)


@dataclasses.dataclass(frozen=True)
class JointArguments:
    """Arguments that all ranks must agree on for several tensors in one exchange."""

    strategy: str
    tensors: tuple[PlanArguments, ...]

    @property
    def device(self) -> tuple[str, str]:
        """Devices of all sources and of all targets, each one of ``DEVICES``."""
        return self.tensors[0].device

    @property
    def source_types(self) -> SourceTypes:
        """Element type of each source."""
        return tuple(tensor.dtype for tensor in self.tensors)

    def digest(self) -> int:
        """Return a hash, as :meth:`PlanArguments.digest`."""
        digests = (self.strategy, *(tensor.digest() for tensor in self.tensors))
        return int.from_bytes(hashlib.blake2b(repr(digests).encode(), digest_size=7).digest(), "little")


def is_plain(array: npt.NDArray[Any]) -> bool:
    """True if all strides are non-negative multiples of the element size."""
    size = max(array.itemsize, 1)
    return all(stride >= 0 and stride % size == 0 for stride in array.strides)
