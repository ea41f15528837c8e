"""Redistributions, checked, and the strategies that carry them out. Start reading at: Problem."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dace_redist.distribution import AnyDistribution
from dace_redist.integers import checked_memory_bytes, checked_nbytes
from dace_redist.mpi.launch import check_both_ranks
from dace_redist.mpi.launch import check_ranks as check_ranks  # for distributed_array.py
from dace_redist.schedule import Schedule, schedule
from dace_redist.strategies import STRATEGIES, check_places, checked_strategy, options_on_gpu
from dace_redist.strategy_memory import options_within
from dace_redist.transform import PRECISION

#: A distribution, or one of each of several tensors; likewise an element type.
Distributions = AnyDistribution | Sequence[AnyDistribution]
Named = Mapping[str, AnyDistribution]
Types = npt.DTypeLike | Sequence[npt.DTypeLike]

#: Arguments of ``redistribute`` and ``plan`` that describe the change of each tensor on its way.
CHANGE = ("axes", "region", "target_dtype", "alpha", "beta", "conj", "op", "reshape", *PRECISION)
#: Arguments that an option may be misspelt for.
_ARGUMENTS = ("comm", "out", "strategy", "device", "memory_bytes", *CHANGE)


@dataclasses.dataclass(frozen=True)
class Problem:
    """
    Redistribution of one tensor or several, equal on all ranks.

    :param tensors: Schedule of each tensor.
    :param lists: True if calls have lists of arrays.
    :param strategy: Name of a strategy, never ``"Auto"``.
    :param options: Options of the strategy that are given.
    :param device: Devices of all sources and of all targets, each one of ``DEVICES``.
    :param names: Names of the tensors; None: they have none.
    """

    tensors: tuple[Schedule, ...]
    lists: bool
    strategy: str
    options: tuple[tuple[str, int | float], ...]
    device: tuple[str, str] = ("cpu", "cpu")
    names: tuple[str, ...] | None = None

    def __hash__(self) -> int:
        """Return the hash, computed once: each call of ``redistribute`` looks its problem up."""
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in dataclasses.fields(self)))

    @functools.cached_property
    def on_gpu(self) -> bool:
        """True if an array lies on a GPU."""
        return "gpu" in self.device

    def placed(self, device: tuple[str, str]) -> Problem:
        """Return the problem for arrays on some devices; a ValueError if the strategy does not move between them."""
        check_places(STRATEGIES[self.strategy], *(side == "gpu" for side in device))
        return self if device == self.device else dataclasses.replace(self, device=device)

    def chosen(self) -> tuple[str, dict[str, int | float]]:
        """Return the strategy, and its options that are not at the defaults for main memory."""
        options = dict(self.options)
        return self.strategy, options_on_gpu(self.strategy, options) if self.on_gpu else options

    @functools.cached_property
    def elements(self) -> str:
        """Element types in words; in brackets for lists, with the names of the tensors."""
        types = [_name_of(tensor.dtype) for tensor in self.tensors]
        if self.names is not None:
            types = [f"{name!r}: {text}" for name, text in zip(self.names, types, strict=True)]
        return f"[{', '.join(types)}]" if self.lists else types[0]

    @functools.cached_property
    def digest(self) -> int:
        """Hash of 56 bits, not 0, equal on all ranks."""
        facts = self.strategy, self.options, self.elements, self.device
        state = hashlib.blake2b(repr(facts).encode(), digest_size=7)
        for tensor in self.tensors:
            state.update(repr(tensor.transform.encoded_operation).encode())
            for part in (tensor.source, tensor.target, tensor.transform):
                state.update(part.encoded_array.tobytes())
        return int.from_bytes(state.digest(), "little") or 1

    def facts(self) -> dict[str, str]:
        """Return everything that all ranks must agree on, by name, for error messages."""
        facts = {
            "strategy": self.strategy,
            "options": ", ".join(f"{name}={value}" for name, value in self.options) or "none",
            "the number of tensors": str(len(self.tensors)),
            "the kind of arguments": "lists" if self.lists else "single",
            "device": " to ".join(self.device),
            "the list of names": ", ".join(self.names or ("none",)),
        }
        for number, tensor in enumerate(self.tensors):
            of_tensor = f" of tensor {number}" if self.lists else ""
            values = {
                "source": tensor.source,
                "target": tensor.target,
                "dtype": tensor.dtype,
                "axes, region or reshape": tensor.transform.map_text or "none",
                "op, alpha, beta, conj or target_dtype": tensor.transform.operation_text or "none",
            }
            facts |= {name + of_tensor: str(value) for name, value in values.items()}
        return facts


@functools.cache
def _name_of(dtype: np.dtype[Any]) -> str:
    return str(dtype)  # takes microseconds


class Arguments(NamedTuple):
    """
    Arguments of ``plan`` or ``redistribute`` before they are checked: single values, or lists for several tensors.

    :param change: Those of :data:`CHANGE`, by name.
    """

    source: Any
    target: Any
    change: Mapping[str, Any]
    strategy: Any
    options: Mapping[str, Any]
    memory_bytes: Any
    names: tuple[str, ...] | None = None

    def in_columns(self) -> Columns:
        """Return them with one value per tensor; a ValueError if a list has another length than ``source``."""
        ends = {"source": self.source, "target": self.target}
        lengths = [len(side) if is_list(side) else "no list" for side in ends.values()]
        values = {**ends, **self.change}
        if lengths == ["no list", "no list"]:
            return Columns(self, False, 1, {name: [value] for name, value in values.items()})
        if lengths[0] != lengths[1] or not lengths[0]:
            raise ValueError(
                f"source and target must be lists of equal length, at least 1, for several tensors: got {lengths[0]} "
                f"and {lengths[1]}"
            )
        count = len(self.source)
        return Columns(self, True, count, {name: listed(name, value, count) for name, value in values.items()})

    def checked(self, dtype: Any, ranks: int) -> Problem:
        """
        Check the arguments of this rank. Errors as of :func:`dace_redist.plan`.

        :param dtype: Element type of the sources; a list of one per tensor, or one for all.
        :param ranks: Size of the communicator.
        """
        columns = self.in_columns()
        return columns.checked(listed("dtype", dtype, columns.length) if columns.lists else [dtype], ranks)


class Columns(NamedTuple):
    """
    Arguments with one value per tensor.

    :param lists: True if there are lists of tensors.
    :param length: Number of tensors.
    :param values: Distributions, and :data:`CHANGE`, by name.
    """

    given: Arguments
    lists: bool
    length: int
    values: dict[str, list[Any]]

    def checked(self, types: Sequence[Any], ranks: int) -> Problem:
        """Return the problem for sources of some element types; see :meth:`Arguments.checked`."""
        rows = zip(*self.values.values(), strict=True)
        tensors = tuple(
            [
                schedule(dtype=of, **dict(zip(self.values, row, strict=True)))
                for of, row in zip(types, rows, strict=True)
            ]
        )
        for tensor in tensors:
            check_both_ranks(tensor, ranks)
            checked_nbytes("source", tensor.source.shape, tensor.dtype.itemsize)
            checked_nbytes("target", tensor.target.shape, tensor.target_dtype.itemsize)
        strategy, options = checked_strategy(self.given.strategy, self.given.options, _ARGUMENTS)
        limit = checked_memory_bytes(self.given.memory_bytes)
        if limit is not None:
            if self.lists:
                raise ValueError("memory_bytes is for one tensor, not for lists")
            options = options_within(tensors[0], strategy, limit, options)
        return Problem(tensors, self.lists, strategy, tuple(sorted(options.items())), names=self.given.names)


def is_list(value: Any) -> bool:
    """True for a list or tuple, as of several tensors."""
    return isinstance(value, list | tuple)


#: Nesting of one value of the arguments that are sequences themselves.
_NESTING = {"axes": 1, "reshape": 1, "region": 2}


def listed(name: str, value: Any, count: int) -> list[Any]:
    """Return one value per tensor, from a list or tuple of as many, or one value for all, such as ``axes=(1, 0)``."""
    several = isinstance(value, tuple) and (
        any(one is None for one in value) or _nesting(value) > _NESTING.get(name, 0)
    )
    if not several and not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name} must be a list of {count} values, one per tensor, got {len(value)}")
    return list(value)


def _nesting(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.ndim
    return 1 + max(map(_nesting, value), default=0) if is_list(value) else 0
