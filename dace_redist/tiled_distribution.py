"""Distributions in tiles: :class:`TiledDistribution`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.planned_distribution import TILED, PlannedDistribution, integers


@dataclasses.dataclass(frozen=True, eq=False)
class TiledDistribution(PlannedDistribution):
    """
    Tensor cut into tiles, each with an owner of its own: any irregular placement.

    A rank's local array is one-dimensional: its tiles in row-major tile order, each tile in C order. There is no tile
    where an extent is 0, and one tile, with ``owner=np.array(rank)``, in a tensor of shape ().

    :param shape: Global shape.
    :param tile: Shape of a tile; tiles at the end may be smaller.
    :param owner: Rank of each tile, shape ``ceil(shape / tile)``.
    :param halo: See :class:`Distribution`.
    :param periodic: See :class:`Distribution`.
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
        shape: Sequence[int],
        tile: Sequence[int],
        owner: npt.ArrayLike,
        *,
        halo: Sequence[int] | int = 0,
        periodic: Sequence[bool] | bool = False,
    ) -> None:
        object.__setattr__(self, "shape", integers("shape", shape))
        object.__setattr__(self, "tile", integers("tile", tile))
        if not all(isinstance(n, int) for n in (*self.shape, *self.tile)):
            raise TypeError(f"TiledDistribution: sizes must be numbers, got {self.shape} in tiles of {self.tile}")
        owners = np.array(owner)
        if owners.size and not np.issubdtype(owners.dtype, np.integer):  # of nothing, NumPy makes floats
            raise TypeError(f"TiledDistribution: owner must hold integers, got {owners.dtype}")
        tiles = tuple(_core.tile_grid(self.shape, self.tile, type(self).__name__))
        if owners.shape != tiles:
            raise ValueError(f"TiledDistribution: owner needs one rank per tile, shape {tiles}, got {owners.shape}")
        owners = owners.astype(np.int64)
        owners.setflags(write=False)  # the decoded distribution would not follow
        object.__setattr__(self, "owner_of_tile", owners)
        self._set_margins(halo, periodic)
        _ = self.core

    @cached_property
    def _encoded_owned(self) -> tuple[int, ...]:
        return (TILED, len(self.shape), *self.shape, *self.tile, *self.owner_of_tile.ravel().tolist())

    def local(self, array: npt.NDArray[Any], rank: int) -> npt.NDArray[Any]:
        """
        Return a rank's part of the whole tensor, as a new one-dimensional array, tile after tile.

        :raises ValueError: If ``array`` has another shape.
        """
        self._check_global(array)
        boxes = [tuple(map(slice, bounds[::2], bounds[1::2])) for bounds in self.core.tile_ranges(rank)]
        parts = [self._part(array, box).ravel() for box in boxes]
        return np.concatenate(parts) if parts else np.empty(0, array.dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TiledDistribution) and self.encoded == other.encoded

    def __hash__(self) -> int:
        return hash(self.encoded)
