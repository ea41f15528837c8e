"""Local arrays of a distributed program, and the current placement of each tensor."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

import dace
import numpy as np
import sympy
from dace import SDFG, Memlet, symbolic

from dace_redist.distribution import AnyDistribution
from dace_redist.einsum.placement import Given, Home, Placement
from dace_redist.einsum.plan import EinsumPlan
from dace_redist.transformations.distribute.ir import Body, bounds_of, in_numbers, logical_shape


@dataclass(frozen=True)
class DistributedTensor:
    """
    Input or output of a distributed program.

    :param shape: Global shape; empty for a tensor of one element that the program declares as ``[1]``.
    :param is_vector: True if the program declares it as ``[1]``; the gathered tensor is then a vector.
    """

    name: str
    placement: Home
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_vector: bool = False

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """Shape of the whole tensor as the program declares it."""
        return self.shape or (1,) * self.is_vector

    @cached_property
    def distribution(self) -> AnyDistribution:
        """Ownership of the elements. A scalar is a vector of one element."""
        return self.placement.distribution(self.shape)


class LocalNumber(NamedTuple):
    """
    Local number of a tensor's part: its length along axes of one index, or its start.

    :param placement: Placement of these axes: one axis, or those of a diagonal.
    :param shape: Their extents, all equal; may be symbols.
    :param start: None: the number of elements; ``""``: the global index of the first one; an axis: its position in the
        rank's block along this axis.
    """

    placement: Placement
    shape: tuple[Any, ...]
    start: int | str | None = None

    def value(self, sizes: Mapping[str, int], rank: int | None) -> int:
        """Return the number on a rank; None: the largest."""
        low, high = self.placement.bounds(in_numbers(self.shape, sizes))
        first = low.max(axis=0)
        values = np.maximum(high.min(axis=0) - first, 0)
        if self.start is not None:
            values = np.where(values > 0, first if isinstance(self.start, str) else first - low[self.start], 0)
        held = [v for v, r in zip(values.tolist(), self.placement.ranks, strict=True) if rank in (None, r)]
        return max(held, default=0)


class GivenExtent(NamedTuple):
    """Extent of a rank's part of a tensor under the user's distribution."""

    home: Given
    axis: int

    def value(self, sizes: Mapping[str, int], rank: int | None) -> int:
        """Return the number on a rank; None: the largest."""
        whole = self.home.whole
        held = [rank] if rank is not None else range(whole.ranks_needed)
        return max(whole.local_shape(one)[self.axis] for one in held)


@dataclass(frozen=True)
class LocalSymbols:
    """
    Symbols and assumptions of the SDFG of a rank, in addition to the sizes.

    :param known: Local number of each symbol that is not a size.
    :param same: By pair of placements and tensor shape, True if both share an array: for these sizes every rank holds
        the same elements under both.
    """

    known: dict[str, LocalNumber | GivenExtent] = field(default_factory=dict)
    same: dict[tuple[Home, Home, tuple[Any, ...]], bool] = field(default_factory=dict)

    def values(self, sizes: Mapping[str, int], rank: int | None) -> dict[str, int]:
        """Return the values of all symbols on a rank; None: the largest of each."""
        return {**sizes, **{name: number.value(sizes, rank) for name, number in self.known.items()}}

    def allow(self, sizes: Mapping[str, int]) -> bool:
        """Return True if the SDFG is valid for other sizes."""
        pairs = [pair for pair, same in self.same.items() if same]
        return all(first.is_equivalent_to(second, in_numbers(shape, sizes)) for first, second, shape in pairs)


class LocalArrays:
    """
    Array for each tensor and placement, created on first use.

    :param sdfg: SDFG to which arrays are added, with a symbol for each extent that differs between ranks.
    :param plan: Its plan; each argument of ``source`` gets an array under its placement in the plan.
    :param sizes: Values of the program's symbols: they determine which placements are equivalent.
    """

    def __init__(self, sdfg: SDFG, source: SDFG, body: Body, plan: EinsumPlan, sizes: Mapping[str, int]) -> None:
        self.sdfg, self.ranks, self.sizes, self.homes = sdfg, plan.ranks, sizes, plan.homes
        self.shapes = {name: logical_shape(array) for name, array in source.arrays.items()}
        #: Shapes with an upper bound for each extent that changes while the program runs: those of allocated arrays.
        self.bounds = bounds_of(source, body)
        self._used: dict[str, list[Any]] = {}
        self.types = {name: array.dtype for name, array in source.arrays.items()}
        loops = source.all_control_flow_regions()
        self._taken = {*source.arrays, *source.symbols, *(getattr(loop, "loop_variable", "") for loop in loops)}
        self._made: dict[tuple[str, Home], str] = {}
        self.symbols = LocalSymbols()
        self.arguments = tuple(n for n, array in source.arrays.items() if not array.transient and n in plan.homes)
        for name in self.arguments:
            shape = self._local_shape(name, plan.homes[name])
            self._made[name, plan.homes[name]] = str(sdfg.add_array(name, shape, self.types[name])[0])

    # Arrays

    def of(self, tensor: str, placement: Home) -> str:
        """Return the array for this rank's part of a tensor under a placement."""
        key = (tensor, self.known(tensor, placement))
        if key not in self._made:
            self._made[key] = self.new(tensor, tensor, placement)
        return self._made[key]

    def known(self, tensor: str, placement: Home) -> Home:
        """Return an equivalent placement under which the tensor has an array already."""
        shape, same = self.bounds[tensor], self.symbols.same
        for name, known in self._made:
            pair = (known, placement, shape)
            if name == tensor and known != placement and pair not in same:
                same[pair] = known.is_equivalent_to(placement, in_numbers(shape, self.sizes))
            if name == tensor and (known == placement or same[pair]):
                return known
        return placement

    def new(self, name: str, tensor: str, placement: Home) -> str:
        """Add an array for this rank's part of a tensor, under this name or a similar one."""
        array = self.add_transient(name, self._local_shape(tensor, placement), self.types[tensor])
        if self.shapes[tensor] != self.bounds[tensor]:
            ends = zip(self.shapes[tensor], self.bounds[tensor], self.sdfg.arrays[array].shape, strict=True)
            self._used[array] = [n if held == bound else sympy.Min(n, held) for n, bound, held in ends]
        return array

    def add_transient(self, name: str, shape: Sequence[Any], dtype: Any) -> str:
        """Add an array under this name or a similar one."""
        name = re.sub(r"^__return", "result", name)  # DaCe treats such names as return values
        return str(self.sdfg.add_transient(name, shape, dtype, find_new_name=True)[0])

    def extents(self, array: str) -> Sequence[Any]:
        """Return the extents of the part of a tensor that an array holds, which may be larger."""
        return self._used.get(array) or self.sdfg.arrays[array].shape

    def whole(self, array: str) -> Memlet:
        """Return the memlet of the part of a tensor that an array holds."""
        if array not in self._used:
            return Memlet.from_array(array, self.sdfg.arrays[array])
        return Memlet(f"{array}[{', '.join(f'0:{symbolic.symstr(extent)}' for extent in self._used[array])}]")

    def derive(self, name: str, like: str, shape: Sequence[Any], bound: Sequence[Any]) -> None:
        """Add a tensor of elements as those of another one; ``bound`` is its shape with bounds."""
        self.shapes[name], self.bounds[name], self.types[name] = tuple(shape), tuple(bound), self.types[like]

    def distribution(self, placement: Home, tensor: str) -> AnyDistribution:
        """Return the distribution of a tensor, whose sizes may be symbols."""
        return placement.distribution(self.shapes[tensor], symbolic.int_ceil)

    # Symbols

    def _local_shape(self, tensor: str, placement: Home) -> list[Any]:
        if isinstance(placement, Given):
            return [self._symbol(GivenExtent(placement, axis)) for axis in range(len(placement.whole.local_shape(0)))]
        everywhere = len(placement.ranks) == self.ranks
        return [
            extent if everywhere and placement.parts[axis] == 1 else self.local_extent(placement, axis, extent)
            for axis, extent in enumerate(self.bounds[tensor])
        ] or [1]

    def local_extent(self, placement: Placement, axis: int, extent: Any) -> dace.symbol:
        """Return the symbol for one extent of this rank's part; axes that are split alike share it."""
        return self._symbol(LocalNumber(_axes(placement, [axis]), (extent,)))

    def scalar_extent(self, placement: Placement) -> dace.symbol:
        """Return the symbol that is 1 on ranks that hold a scalar, and 0 on others."""
        return self._symbol(LocalNumber(Placement(placement.grid, (None,), (1,), placement.ranks), (1,)))

    def start(self, placement: Placement, axis: int, tensor: str) -> Any:
        """Return the first index of this rank's part along an axis: 0 or a symbol."""
        if placement.parts[axis] == 1:
            return dace.symbolic.pystr_to_symbolic("0")
        return self._symbol(LocalNumber(_axes(placement, [axis]), (self.shapes[tensor][axis],), ""), "first")

    def diagonal(self, tensor: str, placement: Placement, axes: Sequence[int]) -> tuple[dace.symbol, list[dace.symbol]]:
        """Return symbols for the elements of a diagonal in this rank's part: their number, their start on each axis."""
        alone, shape = _axes(placement, axes), tuple(self.shapes[tensor][axis] for axis in axes)
        starts = [self._symbol(LocalNumber(alone, shape, axis)) for axis in range(len(axes))]
        return self._symbol(LocalNumber(alone, shape)), starts

    def _symbol(self, number: LocalNumber | GivenExtent, stem: str = "n") -> dace.symbol:
        known = self.symbols.known
        name = next((symbol for symbol, other in known.items() if other == number), None)
        if name is None:
            name = next(f"{stem}{n}" for n in count() if f"{stem}{n}" not in (*self._taken, *known))
            known[name] = number
            self.sdfg.add_symbol(name, dace.int64)
        return dace.symbol(name, dace.int64)

    def home(self, tensor: str) -> Home:
        """Return the placement of a tensor after each write."""
        return self.known(tensor, self.homes[tensor])

    def home_array(self, tensor: str) -> str:
        """Return the array that holds a tensor at home."""
        return self.of(tensor, self.home(tensor))


def _axes(placement: Placement, axes: Sequence[int]) -> Placement:
    dims, multiples = (tuple(values[axis] for axis in axes) for values in (placement.dims, placement.multiples))
    return Placement(placement.grid, dims, multiples, placement.ranks)
