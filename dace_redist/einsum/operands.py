"""Operands of an einsum of distributed arrays, checked and as the planner takes them. Start reading at: EinsumCall."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dace_redist.distribution import AnyDistribution, Distribution, check_distribution
from dace_redist.einsum.expression import Einsum
from dace_redist.einsum.placement import Given, Home, home_of
from dace_redist.integers import checked_memory_bytes
from dace_redist.native.contraction import ELEMENT_TYPES
from dace_redist.redistribution.distributed_array import DistributedArray
from dace_redist.redistribution.problem import check_ranks
from dace_redist.report.units import count
from dace_redist.strategies import checked_strategy
from dace_redist.transform import PRECISION, checked_precision

Array = npt.NDArray[Any]

#: Name of the result in plans; operands are called A, B, ...
RESULT = "result"
#: Types that are computed in another one.
_COMPUTED_IN = {"bool": "int64", "float16": "float32"}


def is_number(operand: Any) -> bool:
    """Return True for a number of Python or NumPy, or an array of one without dimensions."""
    return isinstance(operand, Number | np.generic) or (isinstance(operand, np.ndarray) and operand.ndim == 0)


#: Arguments of ``numpy.einsum`` and of ``redistribute`` that ``einsum`` does not take, and what does the same.
_INSTEAD = {
    **dict.fromkeys(("dtype", "casting", "target_dtype"), "convert operands by their redistribute(..., target_dtype=)"),
    **dict.fromkeys(("axes", "region", "reshape", "conj", "beta"), "redistribute() operand or result with it"),
    "order": "parts of the result are in C order",
    "alpha": "a number is an operand, as in einsum(',ij->ij', alpha, A)",
    "op": "DistributedArray(..., op=) says that replicas of an operand are partial results",
    "comm": "it is that of the operands",
}


class Settings(NamedTuple):
    """Arguments of an einsum besides operands and communicator."""

    expression: Any
    target: AnyDistribution | None
    out: Any
    optimize: Any
    memory_bytes: Any
    overrides: Mapping[str, Any] | None
    strategy: Any
    options: Mapping[str, Any]

    def checked(self) -> Settings:
        """Return them with a checked expression, strategy, options and limit of memory."""
        if not isinstance(self.expression, str):
            raise TypeError(
                "einsum: the subscripts must be a string such as 'ij,jk->ik', which comes first, or a list of axes "
                f"after each operand, as in einsum(A, [0, 1], B, [1, 2]); got {self.expression!r}"
            )
        for name in self.options:
            if name in _INSTEAD:
                raise TypeError(f"einsum takes no {name!r}: {_INSTEAD[name]}")
        precision = {name: value for name, value in self.options.items() if name in PRECISION}
        moving = {name: value for name, value in self.options.items() if name not in PRECISION}
        strategy, options = checked_strategy(self.strategy, moving, (*self._fields, *PRECISION))
        options |= checked_precision(**precision)
        memory_bytes = checked_memory_bytes(self.memory_bytes)
        return self._replace(strategy=strategy, options=options, memory_bytes=memory_bytes)


@dataclasses.dataclass(frozen=True)
class Operand:
    """
    Properties of a distributed operand, equal on all ranks.

    :param op: Reduction of replicas that are partial results.
    """

    distribution: AnyDistribution
    dtype: np.dtype[Any]
    op: str | None = None

    @classmethod
    def of(cls, array: DistributedArray) -> Operand:
        """Return those of an array."""
        return cls(array.distribution, array.dtype, array.op)

    def check(self, name: str, array: Any, rank: int) -> None:
        """Check that an array, or this rank's part of it, is as planned; a TypeError if it has another type."""
        local = getattr(array, "local", array)
        if not isinstance(local, np.ndarray):
            kind = type(array).__name__
            raise TypeError(f"{name} on rank {rank} must be a DistributedArray or a NumPy array, got {kind}")
        if local.dtype != self.dtype:
            raise TypeError(f"{name} must be as planned, of type {self.dtype}, got {local.dtype}")
        if isinstance(array, DistributedArray):
            if array.op != self.op or not array.distribution.is_equivalent_to(self.distribution):
                raise ValueError(f"{name} must be as planned, {self}, got {Operand.of(array)}")
        shape = self.distribution.local_shape(rank)
        if local.shape != shape:
            raise ValueError(f"{name} on rank {rank} must have shape {shape}, got {local.shape}")


@dataclasses.dataclass(frozen=True)
class EinsumCall:
    """
    Checked arguments of an einsum, as the planner takes them.

    Numbers are factors of the result. Axes of one element that are broadcast are dropped.

    :param where: The einsum as the user wrote it, for error messages.
    :param operands: Distributed operands.
    :param numbers: Positions of the numbers among all arguments.
    :param names: Name of each distributed operand; equal names for one array with the same axes.
    :param einsum: Einsum of the distributed operands, without dropped axes.
    :param axes: Axes of each that are kept.
    :param dtype: Element type of the computation.
    :param result_dtype: Element type of the result.
    :param optimize: ``"auto"``, or a path of opt_einsum of the distributed operands.
    :param overrides: Number of parts by index.
    """

    where: str
    operands: tuple[Operand, ...]
    numbers: tuple[int, ...]
    names: tuple[str, ...]
    einsum: Einsum
    axes: tuple[tuple[int, ...], ...]
    dtype: np.dtype[Any]
    result_dtype: np.dtype[Any]
    target: AnyDistribution | None
    optimize: Any
    memory_bytes: int | None
    overrides: tuple[tuple[str, int], ...]

    @property
    def dtypes(self) -> tuple[np.dtype[Any], ...]:
        """Element types of the distributed operands."""
        return tuple(operand.dtype for operand in self.operands)

    @cached_property
    def one(self) -> Array:
        """The number 1, an array of one element."""
        return np.ones(1, self.dtype)

    def homes(self) -> dict[str, Home]:
        """
        Return the home of each operand, and of the result if it is given.

        An einsum does not depend on the order of an index: those that are dealt out alike are renumbered, so that the
        elements of a rank are consecutive.
        """
        tensors = [
            _Tensor(name, one.distribution, term, axes, one.op)
            for name, one, term, axes in zip(self.names, self.operands, self.einsum.operands, self.axes, strict=True)
        ]
        if self.target is not None:
            axes = tuple(range(len(self.target.shape)))
            tensors.append(_Tensor(RESULT, self.target, self.einsum.result, axes, None))
        alike = _dealt_alike(tensors, self.einsum.result if self.target is None else "")
        homes = dict[str, Home]()
        for name, whole, term, axes, op in tensors:
            if dealt := [axis for index, axis in zip(term, axes, strict=True) if index in alike]:
                whole = _consecutive(whole, dealt)
            homes[name] = home_of(whole, op) if 0 < len(axes) == len(whole.shape) else Given(whole, axes, op)
        return homes

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each operand, without dropped axes."""
        wholes = zip(self.names, self.operands, self.axes, strict=True)
        return {name: tuple(one.distribution.shape[axis] for axis in axes) for name, one, axes in wholes}

    def factor(self, arguments: Sequence[Any]) -> Array:
        """Return the product of the numbers, an array of one element."""
        alpha: Array = self.one.copy()
        for number in self.numbers:
            alpha *= np.asarray(arguments[number]).astype(self.dtype)
        return alpha

    def check_operands(self, arguments: Sequence[Any], rank: int) -> None:
        """Check that arguments are as planned: arrays of the distributions and types, and numbers."""
        if len(arguments) != len(self.operands) + len(self.numbers):
            wanted = count(len(self.operands) + len(self.numbers), "operand")
            raise ValueError(f"{self.where}: the plan takes {wanted}, got {len(arguments)}")
        operands = iter(self.operands)
        for number, given in enumerate(arguments):
            if number in self.numbers:
                if not is_number(given):
                    raise TypeError(f"{self.where}: operand {number} must be a number, got {type(given).__name__}")
            else:
                next(operands).check(f"{self.where}: operand {number}", given, rank)


def described(
    how: Settings, operands: Sequence[Operand | np.dtype[Any]], same: Sequence[int], ranks: int
) -> EinsumCall:
    """
    Return the checked arguments of an einsum.

    :param how: Arguments of :meth:`Settings.checked`, with ``"auto"`` or a path.
    :param operands: Distributed operands, and the types of numbers.
    :param same: For each operand the first one that is the same array.
    :raises ValueError: If an argument is invalid; names the einsum, the operand and the index.
    :raises TypeError: If it has the wrong type.
    """
    where, target, overrides, optimize = f"einsum '{how.expression}'", how.target, how.overrides, how.optimize
    arrays = [(n, one) for n, one in enumerate(operands) if isinstance(one, Operand)]
    if not arrays:
        raise TypeError(f"{where}: needs a distributed operand, got {count(len(operands), 'number')}")
    wholes = [one.distribution for _, one in arrays]
    for (number, _), whole in zip(arrays, wholes, strict=True):
        check_ranks(f"of operand {number}", whole, ranks)
        if getattr(whole, "is_symbolic", False):
            raise ValueError(f"{where}: operand {number} needs a distribution of sizes in numbers, got {whole}")
    shapes = [tuple(one.distribution.shape) if isinstance(one, Operand) else () for one in operands]
    parsed = Einsum.parse(how.expression, [len(shape) for shape in shapes])
    extents = _broadcast(parsed, shapes)
    terms, kept = [], []
    for number, _ in arrays:
        term, shape = parsed.operands[number], shapes[number]
        axes = [axis for axis, index in enumerate(term) if shape[axis] == extents[index]]
        terms.append("".join(term[axis] for axis in axes))
        kept.append(tuple(axes))
    types = [one.dtype if isinstance(one, Operand) else one for one in operands]
    odd = [one for one in types if one.kind not in "biufc"]  # some have no common type
    result_dtype = odd[0] if odd else np.result_type(*types)
    dtype = np.dtype(_COMPUTED_IN.get(result_dtype.name, result_dtype))
    if dtype.name not in ELEMENT_TYPES:
        raise TypeError(f"{where}: cannot compute with {result_dtype}; possible: {', '.join(sorted(ELEMENT_TYPES))}")
    if overrides is not None and not isinstance(overrides, Mapping):
        raise TypeError(f"overrides must be a dict of numbers of parts by index, got {overrides!r}")
    shape = tuple(extents[index] for index in parsed.result)
    if target is None and not shape:
        target = Distribution((), (ranks,))
    if target is not None:
        check_distribution("target", target)
        check_ranks("target", target, ranks)
        if tuple(target.shape) != shape:
            raise ValueError(f"{where}: the result has shape {shape}, its target {tuple(target.shape)}")
    numbers = tuple(n for n, one in enumerate(operands) if not isinstance(one, Operand))
    tensors = [(same[n], axes) for (n, _), axes in zip(arrays, kept, strict=True)]
    letters = dict(zip(dict.fromkeys(tensors), _names(), strict=False))
    return EinsumCall(
        where,
        tuple(one for _, one in arrays),
        numbers,
        tuple(letters[tensor] for tensor in tensors),
        Einsum(tuple(terms), parsed.result),
        tuple(kept),
        dtype,
        result_dtype,
        target,
        without(optimize, len(operands), numbers) if isinstance(optimize, tuple) else optimize,
        how.memory_bytes,
        tuple(dict(overrides or {}).items()),
    )


def path_of(expression: str, operands: Sequence[Any], optimize: Any) -> tuple[tuple[int, ...], ...] | str:
    """Return ``"auto"``, or the path that ``optimize`` is or finds, for operands as of :func:`described`."""
    given, limit = optimize, None
    if isinstance(given, list) and [isinstance(one, str) and one != "einsum_path" for one in given] == [True, False]:
        optimize, limit = given  # as in NumPy
    if optimize is True or (optimize, limit) == ("auto", None):
        return "auto"
    if optimize is False:
        return (tuple(range(len(operands))),)
    if isinstance(optimize, list) and all(isinstance(step, Sequence) for step in optimize):
        return tuple(tuple(int(number) for number in step) for step in optimize if step != "einsum_path")
    if not isinstance(optimize, str) and not callable(optimize) or not isinstance(limit, int | float | None):
        known = "a name, a path, an optimizer, False, or a name and a maximum of elements"
        raise TypeError(f"optimize must be {known}, got {given!r}")
    import opt_einsum  # loads slowly

    most = None if limit is None else int(limit)

    shapes = [tuple(one.distribution.shape) if isinstance(one, Operand) else () for one in operands]
    parsed = Einsum.parse(expression, [len(shape) for shape in shapes])
    extents = _broadcast(parsed, shapes)
    full = [tuple(extents[index] for index in term) for term in parsed.operands]
    try:
        if isinstance(optimize, str):  # which is not looked at for two operands
            opt_einsum.paths.get_path_fn(optimize)
        path, _ = opt_einsum.contract_path(str(parsed), *full, shapes=True, optimize=optimize, memory_limit=most)
    except KeyError as error:
        raise ValueError(f"optimize: {error.args[0]}") from error
    return tuple(map(tuple, path))


class _Tensor(NamedTuple):
    """Operand, or result, with an index for each axis that is kept."""

    name: str
    whole: AnyDistribution
    term: str
    axes: tuple[int, ...]
    op: str | None


def _dealt_alike(tensors: Sequence[_Tensor], others: str) -> set[str]:
    """Return the indices, but for others, that all tensors have in the same block-cyclic parts of equal lengths."""
    parts: dict[str, set[Any]] = {index: {None} for index in others}
    of_axis: dict[tuple[str, int], set[str]] = {}  # one array may have several indices
    for one in tensors:
        for index, axis in zip(one.term, one.axes, strict=True):
            parts.setdefault(index, set()).add(_cyclic_parts(one.whole, axis))
            of_axis.setdefault((one.name, axis), set()).add(index)
    alike = {index for index, found in parts.items() if len(found) == 1 and found != {None}}
    while mixed := {index for indices in of_axis.values() if not indices <= alike for index in indices & alike}:
        alike -= mixed
    return alike


def _cyclic_parts(whole: Any, axis: int) -> tuple[int, int] | None:
    """Return number and length of block-cyclic parts along an axis of which each rank has equally many; else None."""
    special = not isinstance(whole, Distribution) or whole.is_symbolic or any(whole.halo)
    if special or any(pin is not None for pin in whole.pins):
        return None
    dim, block, extent = whole.dims[axis], whole.core.uniform_block(axis), whole.shape[axis]
    parts = 1 if dim is None else whole.grid[dim]
    return (parts, block) if 0 < block * parts < extent and extent % (block * parts) == 0 else None


def _consecutive(whole: Any, axes: Sequence[int]) -> Distribution:
    """Return a distribution with consecutive indices of each rank along axes of which each has equally many."""
    block = list(whole.block)
    for axis in axes:
        block[axis] = whole.shape[axis] // whole.grid[whole.dims[axis]]
    return Distribution(whole.shape, whole.grid, dims=whole.dims, block=block, ranks=whole.ranks)


def _names() -> Iterable[str]:
    yield from "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    yield from (f"A{number}" for number in range(1, 1 << 20))


def _broadcast(einsum: Einsum, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """Return the size of every index, where axes of one element are broadcast; a ValueError if sizes differ."""
    largest: dict[str, int] = {}
    for number, (term, shape) in enumerate(zip(einsum.operands, shapes, strict=True)):
        own: dict[str, int] = {}
        for index, size in zip(term, shape, strict=True):
            if own.setdefault(index, size) != size:
                raise ValueError(
                    f"einsum '{einsum}': index {index!r} has sizes {own[index]} and {size} in operand {number} "
                    f"({term!r})"
                )
            largest[index] = size if largest.get(index, 1) == 1 else largest[index]
    einsum.extents(
        [
            tuple(largest[index] if size == 1 else size for index, size in zip(term, shape, strict=True))
            for term, shape in zip(einsum.operands, shapes, strict=True)
        ]
    )
    return largest


def without(path: Sequence[Sequence[int]], operands: int, dropped: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """
    Return a path of opt_einsum for fewer operands.

    :raises ValueError: If it is not a path of that many operands.
    """
    there: list[int | None] = [None if number in dropped else number for number in range(operands)]
    left, made = [number for number in there if number is not None], []
    for step, positions in enumerate(path):
        if not positions or len(set(positions)) < len(positions) or not all(0 <= p < len(there) for p in positions):
            raise ValueError(
                f"optimize: step {step} of the path takes operands {tuple(positions)} of {len(there)}: {path}"
            )
        taken = [there[position] for position in positions]
        there = [one for position, one in enumerate(there) if position not in positions]
        real = [one for one in taken if one is not None]
        new = real[0] if len(real) == 1 else None if not real else operands + step
        if len(real) > 1:
            made.append(tuple(sorted(left.index(one) for one in real)))
            left = [*(one for one in left if one not in real), operands + step]
        there.append(new)
    if len(there) != 1:
        raise ValueError(f"optimize: the path leaves {len(there)} operands, expected one: {path}")
    return tuple(made)
