"""Irregular distributions: :class:`TiledDistribution` and :class:`BoxDistribution`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.integers import AnyInt, AnyInts, at_least, integers
from dace_redist.planned_distribution import BOXED, TILED, PlannedDistribution


@dataclasses.dataclass(frozen=True, eq=False)
class TiledDistribution(PlannedDistribution):
    """
    Tensor cut into tiles, each with an owner of its own: any irregular placement.

    A rank's local array is one-dimensional: its tiles in row-major tile order, each tile in C order. There is no tile
    where an extent is 0, and one tile, with ``owner=np.array(rank)``, in a tensor of shape ().

    :param shape: Global shape.
    :param tile: Shape of a tile; tiles at the end may be smaller.
    :param owner: Rank of each tile, shape ``ceil(shape / tile)``.
    :param halo, periodic: See :class:`Distribution`.
    :raises ValueError: If an argument is invalid.
    :raises TypeError: If something is no integer.
    """

    shape: tuple[int, ...]
    tile: tuple[int, ...]
    owner_of_tile: npt.NDArray[np.int64]
    halo: tuple[int, ...]
    periodic: tuple[bool, ...]

    def __init__(
        self,
        shape: AnyInts,
        tile: AnyInts,
        owner: npt.ArrayLike,
        *,
        halo: AnyInts | AnyInt = 0,
        periodic: Sequence[bool] | bool = False,
    ) -> None:
        object.__setattr__(self, "shape", integers("shape", shape))
        object.__setattr__(self, "tile", integers("tile", tile))
        if not all(isinstance(n, int) for n in (*self.shape, *self.tile)):
            raise TypeError(f"TiledDistribution: sizes must be numbers, got {self.shape} in tiles of {self.tile}")
        owners = _whole_numbers("TiledDistribution: owner", owner).copy()
        tiles = tuple(_core.tile_grid(self.shape, self.tile, type(self).__name__))
        if owners.shape != tiles:
            raise ValueError(f"TiledDistribution: owner needs one rank per tile, shape {tiles}, got {owners.shape}")
        owners.setflags(write=False)  # the decoded distribution would not follow
        object.__setattr__(self, "owner_of_tile", owners)
        self._set_margins(halo, periodic)
        _ = self.core

    @cached_property
    def _encoded_owned(self) -> tuple[int, ...]:
        return (TILED, len(self.shape), *self.shape, *self.tile, *self.owner_of_tile.ravel().tolist())

    def _on_ranks(self, ranks: npt.NDArray[np.int64]) -> TiledDistribution:
        owners = ranks[self.owner_of_tile]
        return TiledDistribution(self.shape, self.tile, owners, halo=self.halo, periodic=self.periodic)

    def __repr__(self) -> str:
        margins = f", halo={self.halo}, periodic={self.periodic}" if any(self.halo) else ""
        return f"TiledDistribution(shape={self.shape}, tile={self.tile}, owner={self.owner_of_tile!r}{margins})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TiledDistribution) and self.encoded == other.encoded

    def __hash__(self) -> int:
        return hash(self.encoded)


@dataclasses.dataclass(frozen=True, eq=False)
class BoxDistribution(PlannedDistribution):
    """
    Any set of boxes of a tensor, each with an owner.

    The local array of a rank that owns one box has the shape of the box. Of a rank that owns several, it is
    one-dimensional: its boxes in the order of the list, each in C order. Elements that several boxes hold are replicas:
    of a source any of them is read, of a target all are written. Elements in no box are left out; a source must hold
    all elements that the target needs.

    :param shape: Global shape.
    :param boxes: Offset and extent of each box, shape ``(n, 2, len(shape))``, or a list of pairs.
    :param owners: Rank of each box.
    :param halo, periodic: See :class:`Distribution`.
    :raises ValueError: If an argument is invalid, as a box that lies outside the tensor.
    :raises TypeError: If something is no integer.
    """

    shape: tuple[int, ...]
    boxes: npt.NDArray[np.int64]
    owners: npt.NDArray[np.int64]
    halo: tuple[int, ...]
    periodic: tuple[bool, ...]

    def __init__(
        self,
        shape: AnyInts,
        boxes: npt.ArrayLike,
        owners: npt.ArrayLike,
        *,
        halo: AnyInts | AnyInt = 0,
        periodic: Sequence[bool] | bool = False,
    ) -> None:
        shape = integers("shape", shape)
        if not all(isinstance(extent, int) for extent in shape):
            raise TypeError(f"BoxDistribution: shape must be numbers, got {shape}")
        ndim, ranks = len(shape), _whole_numbers("BoxDistribution: owners", owners)
        if ranks.ndim != 1:
            raise ValueError(f"BoxDistribution: owners must be a list of one rank per box, got shape {ranks.shape}")
        given = _whole_numbers("BoxDistribution: boxes", boxes)
        if given.shape != (len(ranks), 2, ndim) and (given.size or len(ranks) * ndim):
            raise ValueError(
                "BoxDistribution: boxes must have offset and extent of one box per owner, shape "
                f"{(len(ranks), 2, ndim)}, got {given.shape}"
            )
        encoded = np.empty(3 + ndim + len(ranks) * (2 * ndim + 1), np.int64)
        encoded[: 3 + ndim] = BOXED, ndim, *shape, len(ranks)
        rows = encoded[3 + ndim :].reshape(len(ranks), 2 * ndim + 1)
        rows[:, 0], rows[:, 1:] = ranks, given.reshape(len(ranks), 2 * ndim)
        self._set(encoded, halo, periodic)

    def _set(self, encoded: npt.NDArray[np.int64], halo: Any, periodic: Any) -> None:
        """Set all fields; the boxes are views of the encoding, of which there may be many."""
        encoded.setflags(write=False)
        ndim, count = int(encoded[1]), int(encoded[2 + encoded[1]])
        rows = encoded[3 + ndim :].reshape(count, 2 * ndim + 1)
        fields = {"shape": tuple(encoded[2 : 2 + ndim].tolist()), "owners": rows[:, 0]}
        for name, value in {**fields, "boxes": rows[:, 1:].reshape(count, 2, ndim)}.items():
            object.__setattr__(self, name, value)  # the class is frozen
        self._set_margins(halo, periodic)
        whole = np.concatenate([self._margins, encoded]) if any(self.halo) else encoded
        object.__setattr__(self, "encoded_array", whole)
        _ = self.core

    @classmethod
    def decoded(cls, encoded: Any, halo: Any = 0, periodic: Any = False) -> BoxDistribution:
        """Return the distribution of an encoding, see ``distribution.hpp``; a ValueError if its length is wrong."""
        numbers, made = np.array(encoded, np.int64), cls.__new__(cls)
        ndim = int(numbers[1])
        if not 0 <= ndim < len(numbers) - 2 or len(numbers) != 3 + ndim + numbers[2 + ndim] * (2 * ndim + 1):
            raise ValueError(f"not an encoded distribution: {tuple(encoded[:8])}...")
        made._set(numbers, halo, periodic)
        return made

    def _on_ranks(self, ranks: npt.NDArray[np.int64]) -> BoxDistribution:
        return BoxDistribution(self.shape, self.boxes, ranks[self.owners], halo=self.halo, periodic=self.periodic)

    @cached_property
    def encoded(self) -> tuple[int, ...]:
        """Numbers that describe the distribution, as C++ takes them (``distribution.hpp``)."""
        return tuple(self.encoded_array.tolist())

    @property
    def is_symbolic(self) -> bool:
        """False: boxes are numbers."""
        return False

    @cached_property
    def in_lists(self) -> bool:
        """True if a rank owns several boxes, so that its local array is one-dimensional."""
        return len(np.unique(self.owners)) < len(self.owners)

    def __repr__(self) -> str:
        boxes = [tuple(map(tuple, box)) for box in self.boxes[:8].tolist()]
        more = f" and {len(self.boxes) - 8} more" if len(self.boxes) > 8 else ""
        margins = f", halo={self.halo}, periodic={self.periodic}" if any(self.halo) else ""
        owners = f"{self.owners[:8].tolist()}{more}"
        return f"BoxDistribution(shape={self.shape}, boxes={boxes}{more}, owners={owners}{margins})"

    @property
    def replicas(self) -> int:
        """1; a ValueError unless the boxes hold each element once."""
        held, size = int(self.boxes[:, 1].prod(axis=1).sum()), math.prod(self.shape)
        if held != size:
            raise ValueError(f"BoxDistribution: boxes must hold every element once here, got {held} elements of {size}")
        whole = BoxDistribution(self.shape, [((0,) * len(self.shape), self.shape)], [0])
        try:
            _core.rank_schedule(self.core, whole.core, 0, False)
        except ValueError as error:  # an element in no box, and so another one in several
            raise ValueError(f"BoxDistribution: boxes must hold every element once here: {error}") from None
        return 1

    @property
    def largest_local_shape(self) -> tuple[int, ...]:
        """Shape of an array that can hold any rank's part in a DaCe program, which has no arrays of 0 dimensions."""
        extents = self.boxes[:, 1] + 2 * np.array(self.halo, np.int64)
        if self.in_lists or not len(self.owners):
            return (int(np.bincount(self.owners, np.prod(extents, axis=1)).max(initial=0)),)
        return tuple(extents.max(axis=0).tolist()) or (1,)

    def boxes_of(self, rank: AnyInt) -> npt.NDArray[np.int64]:
        """Return offset and extent of a rank's boxes, in the order of its local array: shape (n, 2, dimensions)."""
        boxes: npt.NDArray[np.int64] = self.boxes[self.owners == at_least(0, "rank", rank)]
        return boxes

    def __reduce__(self) -> tuple[Any, ...]:
        return BoxDistribution.decoded, (self.encoded_array[len(self._margins) :], self.halo, self.periodic)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoxDistribution) and np.array_equal(self.encoded_array, other.encoded_array)

    @cached_property
    def _hash(self) -> int:
        return hash(self.encoded_array.tobytes())

    def __hash__(self) -> int:
        return self._hash


def _whole_numbers(name: str, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    numbers = np.asarray(values)
    if numbers.size and not np.issubdtype(numbers.dtype, np.integer):  # of nothing, NumPy makes floats
        raise TypeError(f"{name} must hold integers, got {numbers.dtype}")
    return numbers.astype(np.int64, copy=False)
