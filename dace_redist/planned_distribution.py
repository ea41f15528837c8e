"""Base of distributions: facts from the planner in C++."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.integers import AnyInt, AnyInts, Size, at_least, integers

#: Kinds of distribution, with which encodings begin (``distribution.hpp``).
BLOCKED, TILED, BOXED, MARGINS = range(4)


def balanced_lengths(extent: int, parts: int) -> tuple[int, ...]:
    """Return the lengths of parts of which the first ``extent mod parts`` have one element more."""
    quotient, longer = divmod(extent, parts)
    return (quotient + 1,) * longer + (quotient,) * (parts - longer)


Planned = TypeVar("Planned", bound="PlannedDistribution")


class PlannedDistribution:
    """Part that all kinds of distribution have: what the planner in C++ answers from :attr:`encoded`."""

    shape: tuple[Size, ...]
    halo: tuple[int, ...]
    periodic: tuple[bool, ...]

    def _set_margins(self, halo: Any, periodic: Any) -> None:
        name, ndim = type(self).__name__, len(self.shape)
        lists = (v if isinstance(v, Sequence | np.ndarray) else [v] * ndim for v in (halo, periodic))
        widths, wraps = integers("halo", next(lists)), tuple(next(lists))
        if not all(isinstance(width, int) for width in widths):
            raise TypeError(f"{name}: halo must be numbers, got {halo!r}")
        if not all(isinstance(wrap, bool | np.bool_) for wrap in wraps):
            raise TypeError(f"{name}: periodic must be True or False, for all axes or for each, got {periodic!r}")
        for what, values in (("halo", widths), ("periodic", wraps)):
            if len(values) != ndim:
                raise ValueError(f"{name}: {what} needs one entry per entry of shape ({ndim}), got {len(values)}")
        object.__setattr__(self, "halo", widths)
        object.__setattr__(self, "periodic", tuple(map(bool, wraps)) if any(widths) else (False,) * ndim)

    @property
    def _margins(self) -> tuple[int, ...]:
        """Beginning of the encoding of a distribution with margins; else empty."""
        return (MARGINS, len(self.shape), *self.halo, *map(int, self.periodic)) if any(self.halo) else ()

    @cached_property
    def _encoded_owned(self) -> tuple[Size, ...]:
        raise NotImplementedError

    @cached_property
    def encoded(self) -> tuple[Size, ...]:
        """Numbers that describe the distribution, as C++ takes them (``distribution.hpp``)."""
        return (*self._margins, *self._encoded_owned)

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
        """Minimum size of a communicator."""
        return int(self.core.ranks_needed)

    @property
    def replicas(self) -> Size:
        """Number of ranks that hold each element; a ValueError if it differs between elements."""
        return 1

    def on_ranks(self: Planned, ranks: AnyInts) -> Planned:
        """
        Return the distribution of the same parts on other ranks, as those of a sub-group of a communicator.

        :param ranks: New rank of rank 0, 1, ..., each once; those beyond the ranks that hold parts are left out.
        :raises ValueError: If there are fewer than :attr:`ranks_needed`.
        """
        new = integers("ranks", ranks)
        if len(new) < self.ranks_needed or len(set(new)) < len(new):
            name = type(self).__name__
            raise ValueError(f"{name}.on_ranks: {self.ranks_needed} different ranks are needed, got {list(new)}")
        return self._on_ranks(np.array(new, np.int64))

    def _on_ranks(self: Planned, ranks: npt.NDArray[np.int64]) -> Planned:
        raise NotImplementedError

    def local_shape(self, rank: AnyInt) -> tuple[int, ...]:
        """
        Return the shape of a rank's local array, with its margins.

        It is one-dimensional for tiles and several boxes. It is all zeros for a rank outside the distribution, but
        ``(0,)`` of a tensor of 0 dimensions, as ``()`` is the shape of one element.
        """
        return tuple(self.core.local_shape(at_least(0, "rank", rank)))

    def interior(self, rank: AnyInt) -> tuple[slice, ...]:
        """
        Return the part of a rank's local array without the margins, as one slice per axis.

        :raises ValueError: If the local array holds several tiles or boxes one after another.
        """
        shape = self.local_shape(rank)
        if len(shape) != len(self.shape) or len(self.core.tile_ranges(int(rank))) > 1:
            raise ValueError(f"{type(self).__name__}: the local array of rank {rank} is a list of parts")
        return tuple(slice(halo, max(halo, n - halo)) for n, halo in zip(shape, self.halo, strict=True))

    def local(self, array: npt.NDArray[Any], rank: AnyInt) -> npt.NDArray[Any]:
        """
        Return a rank's part of the whole tensor, as a new C-order array.

        :raises ValueError: If ``array`` has another shape.
        """
        self._check_global(array)
        ranges = self.core.tile_ranges(at_least(0, "rank", rank))
        boxes = [tuple(map(slice, bounds[::2], bounds[1::2])) for bounds in ranges]
        parts = [self._part(array, box).ravel() for box in boxes]
        joined = np.concatenate([np.empty(0, array.dtype), *parts], dtype=array.dtype)  # in its byte order
        return joined.reshape(self.local_shape(rank))

    def owner(self, index: AnyInts) -> int:
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
        Return True if every rank has the same elements in the same places.

        It may be False although they are if boxes of one rank overlap, or if sizes are symbols.

        :param other: Distribution of a tensor, also one of another kind.
        :raises TypeError: If it is not a distribution.
        """
        if not isinstance(other, PlannedDistribution):
            raise TypeError(f"other must be a Distribution, TiledDistribution or BoxDistribution, got {other!r}")
        if self == other or self.is_symbolic or other.is_symbolic:
            return self == other
        ranks = range(max(self.ranks_needed, other.ranks_needed))
        alike = (self.shape, self.halo, self.periodic) == (other.shape, other.halo, other.periodic)
        one, two = (_core.Distribution(d.encoded_array[len(d._margins) :], type(d).__name__) for d in (self, other))
        return alike and all(_is_held_alike(one, two, rank) for rank in ranks)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the planner's object, which another process makes again."""
        return {name: value for name, value in self.__dict__.items() if name != "core"}

    def _part(self, array: npt.NDArray[Any], box: Sequence[slice | npt.NDArray[np.int64]]) -> npt.NDArray[Any]:
        """
        Return a copy of a box of the whole tensor with its margins; zeros across ends that are not periodic.

        :param box: A slice of each axis; along axes without margins, indices in any order.
        """
        if not any(self.halo):
            return np.array(array[tuple(box)], order="C")
        indices = [
            np.arange(cut.start - halo, cut.stop + halo) if isinstance(cut, slice) else cut
            for cut, halo in zip(box, self.halo, strict=True)
        ]
        inside = [
            np.flatnonzero(wraps | ((index >= 0) & (index < extent)))
            for index, wraps, extent in zip(indices, self.periodic, self.shape, strict=True)
        ]
        part = np.zeros([len(index) for index in indices], array.dtype)
        mirrored = (index[held] % max(n, 1) for index, held, n in zip(indices, inside, self.shape, strict=True))
        part[np.ix_(*inside)] = array[np.ix_(*mirrored)]
        return part

    def _check_global(self, array: npt.NDArray[Any]) -> None:
        shape = getattr(array, "shape", type(array).__name__)
        if shape != self.shape:
            raise ValueError(f"{type(self).__name__}: the whole tensor has shape {self.shape}, got {shape}")


def _is_held_alike(one: _core.Distribution, other: _core.Distribution, rank: int) -> bool:
    """Return True if moving the tensor between the distributions moves nothing on this rank."""
    if one.local_shape(rank) != other.local_shape(rank):
        return False
    try:
        _, (received, *_), kept = _core.rank_schedule(one, other, rank)
    except ValueError:  # boxes that do not hold all elements of the other
        return False
    *_, sources, targets, _, before, after = kept
    return not len(received) and np.array_equal(sources, targets) and np.array_equal(before, after)
