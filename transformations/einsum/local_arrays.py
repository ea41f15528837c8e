"""The arrays of a distributed program, which hold this rank's parts of tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import dace
import numpy as np
from dace import SDFG, Memlet, symbolic

from dace_redist.distribution import Distribution
from dace_redist.einsum.placement import Placement
from dace_redist.einsum.plan import EinsumPlan
from dace_redist.einsum.traffic import same_place
from dace_redist.transformations.einsum.reading import logical_shape
from dace_redist.transformations.einsum.sizes import in_numbers

#: Which part of a tensor each rank holds, and the tensor's global shape, which may have symbols.
PlacedShape = tuple[Placement, tuple[Any, ...]]


class Diagonal(NamedTuple):
    """
    The elements of a diagonal that a rank holds.

    :param placement: How the axes that have one index are split.
    :param shape: Their extents, all the same; may be symbols.
    :param axis: None: how many elements; else where the first one is in the rank's block, along this axis.
    """

    placement: Placement
    shape: tuple[Any, ...]
    axis: int | None

    def value(self, sizes: Mapping[str, int], rank: int | None) -> int:
        """The number on a rank; None: the largest."""
        low, high = self.placement.bounds(in_numbers(self.shape, sizes))
        first = low.max(axis=0)
        values = np.maximum(high.min(axis=0) - first, 0)
        if self.axis is not None:
            values = np.where(values > 0, first - low[self.axis], 0)
        held = [v for v, r in zip(values.tolist(), self.placement.ranks, strict=True) if rank in (None, r)]
        return max(held, default=0)


class LocalArrays:
    """
    An array for each tensor and placement, made when it is first asked for.

    :param sdfg: Gets the arrays, and a symbol for each extent that is not the same on all ranks.
    :param source: The program whose tensors these are.
    :param plan: Its plan; each argument of ``source`` gets an array under the placement that the plan has for it.
    :param sizes: Values of the program's symbols: they decide which placements are the same.
    """

    def __init__(self, sdfg: SDFG, source: SDFG, plan: EinsumPlan, sizes: Mapping[str, int]) -> None:
        self._sdfg, self.ranks, self.sizes = sdfg, plan.ranks, sizes
        self.shapes = {name: logical_shape(array) for name, array in source.arrays.items()}
        self.types = {name: array.dtype for name, array in source.arrays.items()}
        loops = source.all_control_flow_regions()
        self._taken = {*source.arrays, *source.symbols, *(getattr(loop, "loop_variable", "") for loop in loops)}
        self._made: dict[tuple[str, Placement], str] = {}
        self._same: dict[tuple[Placement, Placement, tuple[Any, ...]], bool] = {}
        #: For each symbol that is an extent: the split axis it belongs to, or the diagonal of which it says something.
        self.extents: dict[str, PlacedShape | Diagonal] = {}
        #: For each symbol that is the first index of a part: the split axis it belongs to.
        self.starts: dict[str, PlacedShape] = {}
        self.arguments = tuple(n for n, array in source.arrays.items() if not array.transient and n in plan.homes)
        for name in self.arguments:
            self._made[name, plan.homes[name]] = self.new(name, name, plan.homes[name], transient=False)

    @property
    def same(self) -> tuple[tuple[Placement, Placement, tuple[Any, ...]], ...]:
        """Pairs of placements that have one array, with the tensor's shape."""
        return tuple(pair for pair, same in self._same.items() if same)

    def of(self, tensor: str, placement: Placement) -> str:
        """The one array for this rank's part of a tensor under a placement."""
        key = (tensor, self.known(tensor, placement))
        if key not in self._made:
            self._made[key] = self.new(tensor, tensor, placement)
        return self._made[key]

    def known(self, tensor: str, placement: Placement) -> Placement:
        """The placement under which the tensor has an array already, if every rank holds the same under both."""
        for name, known in self._made:
            if name == tensor and self._are_same(known, placement, self.shapes[tensor]):
                return known
        return placement

    def _are_same(self, first: Placement, second: Placement, shape: tuple[Any, ...]) -> bool:
        if first == second:
            return True
        pair = (first, second, shape)
        if pair not in self._same:
            self._same[pair] = same_place(first, second, in_numbers(shape, self.sizes))
        return self._same[pair]

    def new(self, name: str, tensor: str, placement: Placement, transient: bool = True) -> str:
        """
        A further array for this rank's part of a tensor.

        :param name: What it is called, or nearly so if the name is taken.
        """
        shape, dtype = self._local_shape(tensor, placement), self.types[tensor]
        if transient:
            return self.add_transient(name, shape, dtype)
        return str(self._sdfg.add_array(name, shape, dtype)[0])

    def add_transient(self, name: str, shape: Sequence[Any], dtype: Any) -> str:
        """An array that is called so, or nearly so if the name is taken."""
        name = re.sub(r"^__return", "result", name)  # which DaCe takes for what is returned
        return str(self._sdfg.add_transient(name, shape, dtype, find_new_name=True)[0])

    def _local_shape(self, tensor: str, placement: Placement) -> list[Any]:
        shape = self.shapes[tensor]
        everywhere = len(placement.ranks) == self.ranks
        return [
            extent if everywhere and placement.parts[axis] == 1 else self.local_extent(placement, axis, extent)
            for axis, extent in enumerate(shape)
        ] or [1]

    def local_extent(self, placement: Placement, axis: int, extent: Any) -> dace.symbol:
        """The symbol for one extent of this rank's part: the same one for all axes that are split alike."""
        return self._symbol((_axis(placement, axis), (extent,)), self.extents, "n")

    def start(self, placement: Placement, axis: int, tensor: str) -> Any:
        """The first index of this rank's part along an axis: 0 or a symbol."""
        if placement.parts[axis] == 1:
            return dace.symbolic.pystr_to_symbolic("0")
        return self._symbol((_axis(placement, axis), (self.shapes[tensor][axis],)), self.starts, "first")

    def scalar_extent(self, placement: Placement) -> dace.symbol:
        """The symbol that is 1 on ranks that hold a scalar, and 0 on others."""
        return self._symbol((placement, ()), self.extents, "n")

    def diagonal(self, tensor: str, placement: Placement, axes: Sequence[int]) -> tuple[dace.symbol, list[dace.symbol]]:
        """
        Which elements this rank's part of a tensor has of a diagonal.

        :param axes: The axes of the tensor that have one index.
        :return: Symbols for how many, and for where the first of them is along each of these axes.
        """
        dims, multiples = ([values[axis] for axis in axes] for values in (placement.dims, placement.multiples))
        alone = Placement(placement.grid, tuple(dims), tuple(multiples), placement.ranks)
        shape = tuple(self.shapes[tensor][axis] for axis in axes)
        return self._symbol(Diagonal(alone, shape, None), self.extents, "n"), [
            self._symbol(Diagonal(alone, shape, axis), self.extents, "n") for axis in range(len(axes))
        ]

    def _symbol(self, axis: PlacedShape | Diagonal, found: dict[str, Any], stem: str) -> dace.symbol:
        name = next((symbol for symbol, known in found.items() if known == axis), None)
        if name is None:
            name = next(f"{stem}{n}" for n in count() if f"{stem}{n}" not in (*self._taken, *found))
            found[name] = axis
            self._sdfg.add_symbol(name, dace.int64)
        return dace.symbol(name, dace.int64)

    def distribution(self, placement: Placement, tensor: str) -> Distribution:
        """The distribution of a tensor, whose sizes may be symbols."""
        return placement.distribution(self.shapes[tensor], symbolic.int_ceil)

    def whole(self, array: str) -> Memlet:
        """The memlet of an array as a whole."""
        return Memlet.from_array(array, self._sdfg.arrays[array])


def _axis(placement: Placement, axis: int) -> Placement:
    """How one axis of a tensor lies on the ranks."""
    return Placement(placement.grid, (placement.dims[axis],), (placement.multiples[axis],), placement.ranks)
