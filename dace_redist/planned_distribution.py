"""Numbers of a distribution, and what the planner in C++ answers from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist import _core

#: An extent or grid size: a number, or a symbol of a DaCe program (known when the program runs).
Size = Any


def integers(name: str, values: Any, optional: bool = False) -> tuple[Size, ...]:
    """Return ``values`` as a tuple of integers or symbols, and Nones if ``optional``."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence | np.ndarray):
        raise TypeError(f"{name} must be a sequence of integers{' and None' if optional else ''}, got {values!r}")
    if set(map(type, values)) == {int} and -(2**63) <= min(values) and max(values) < 2**63:  # as lists of many ranks
        return tuple(values)
    return tuple(None if optional and v is None else size(f"{name}[{i}]", v) for i, v in enumerate(values))


def size(name: str, value: Any) -> Size:
    """Return ``value`` as an integer of 64 bits, or as a symbol."""
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if isinstance(value, int | np.integer):
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{name} must fit 64 bits, got {value}")
        return int(value)
    if hasattr(value, "free_symbols"):  # SymPy, and with it DaCe's symbols, without importing either
        return int(value) if value.is_Integer else value
    raise TypeError(f"{name} must be an integer, got {value!r}")


class PlannedDistribution:
    """Part that all kinds of distribution have: what the planner in C++ answers from :attr:`encoded`."""

    shape: tuple[Size, ...]

    @cached_property
    def encoded(self) -> tuple[Size, ...]:
        """Numbers that describe the distribution, as C++ takes them (``distribution.hpp``)."""
        raise NotImplementedError

    @property
    def is_symbolic(self) -> bool:
        """True if a size is a symbol, so that only the running program can check and use the distribution."""
        return not all(issubclass(kind, int) for kind in set(map(type, self.encoded)))

    @cached_property
    def core(self) -> _core.Distribution:
        """Planner's object; a ValueError if the numbers describe no distribution, or one of them is a symbol."""
        if self.is_symbolic:
            symbols = sorted({str(number) for number in self.encoded if not isinstance(number, int)})
            raise ValueError(f"{type(self).__name__}: {', '.join(symbols)} must be numbers here, not symbols")
        return _core.Distribution(self.encoded_array, type(self).__name__)

    @cached_property
    def encoded_array(self) -> npt.NDArray[np.int64]:
        """:attr:`encoded` as an array, for C++ to read."""
        return np.array(self.encoded, dtype=np.int64)

    @property
    def ranks_needed(self) -> int:
        """Smallest size of a communicator that holds every rank named."""
        return int(self.core.ranks_needed)

    @property
    def replicas(self) -> Size:
        """Number of ranks that hold each element; a ValueError if it differs between elements."""
        return 1

    def local_shape(self, rank: int) -> tuple[int, ...]:
        """
        Return the shape of a rank's local array, in elements; one-dimensional for tiles and several boxes.

        It is all zeros for a rank outside the distribution, but ``(0,)`` of a tensor of 0 dimensions, as ``()`` is the
        shape of one element.
        """
        return tuple(self.core.local_shape(size("rank", rank)))

    def owner(self, index: Sequence[int]) -> int:
        """
        Return the rank that owns the element of a global index; of several replicas the first.

        :raises ValueError: If the index lies outside the tensor, or in no box.
        """
        owner = int(self.core.owner(list(integers("index", index))))
        if owner < 0:
            raise ValueError(f"{type(self).__name__}: index {tuple(index)} lies in no box")
        return owner

    def is_equivalent_to(self, other: PlannedDistribution) -> bool:
        """
        Return True if every rank's local array has one shape and the same elements in the same places in both.

        If boxes of one rank overlap, it may be False although they are.

        :param other: Distribution of a tensor, also one of another kind.
        """
        ranks = range(max(self.ranks_needed, other.ranks_needed))
        return self == other or (self.shape == other.shape and all(_is_held_alike(self, other, rank) for rank in ranks))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the planner's object, which another process makes again."""
        return {name: value for name, value in self.__dict__.items() if name != "core"}

    def _check_global(self, array: npt.NDArray[Any]) -> None:
        if array.shape != self.shape:
            raise ValueError(f"{type(self).__name__}: the whole tensor has shape {self.shape}, got {array.shape}")


def _is_held_alike(one: PlannedDistribution, other: PlannedDistribution, rank: int) -> bool:
    """Return True if moving the tensor between the distributions moves nothing on this rank."""
    if one.local_shape(rank) != other.local_shape(rank):
        return False
    try:
        _, (received, *_), kept = _core.rank_schedule(one.core, other.core, rank)
    except _core.Error:  # boxes that do not hold all elements of the other
        return False
    *_, sources, targets, _, before, after = kept
    return not len(received) and np.array_equal(sources, targets) and np.array_equal(before, after)
