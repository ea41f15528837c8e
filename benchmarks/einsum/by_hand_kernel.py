"""Einsum distributed by hand: program, process grids, and ownership."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import dace
import numpy as np
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


@dataclass(frozen=True)
class Grid:
    """
    A process grid: the tensor modes it splits and, for each number of ranks, into how many parts.

    :param modes: One letter per grid axis, e.g. ``"ijk"``.
    :param parts: Number of ranks -> grid shape.
    """

    modes: str
    parts: dict[int, tuple[int, ...]]


@dataclass(frozen=True)
class Kernel:
    """
    Distributed einsum: the DaCe program and the process grids of its operands.

    The program's symbols are named after mode and grid: with ``grids[0] = Grid("ijk", ...)`` the symbols ``PI1``,
    ``PJ1``, ``PK1`` are the grid's shape and ``I1``, ``J1``, ``K1`` the local extents, ``ceil(extent / parts)``.

    :param program: The ``@dace.program``.
    :param einsum: What it computes, e.g. ``"ij,jk->ik"``.
    :param operands: Argument name -> (modes, index of its grid).
    :param result: Modes of the local result, in its order, and the index of its grid.
    :param rank_modes: Modes of length ``--rank``; all others have length ``--size``.
    """

    program: Callable
    einsum: str
    grids: tuple[Grid, ...]
    operands: dict[str, tuple[str, int]]
    result: tuple[str, int]
    rank_modes: str = ""

    @property
    def name(self) -> str:
        return self.program.f.__name__

    def extents(self, size: int, rank: int) -> dict[str, int]:
        """Global length of every mode."""
        modes = {mode for grid in self.grids for mode in grid.modes} | {c for c in self.einsum if c.isalpha()}
        return {mode: rank if mode in self.rank_modes else size for mode in sorted(modes)}

    def blocks(self, grid: int, rank: int, extents: dict[str, int]) -> dict[str, range]:
        """Global indices that ``rank`` holds of every mode of a grid, as long as the block: they may pass the end."""
        modes, parts = self.grids[grid].modes, self.grids[grid].parts[WORLD.size]
        lengths = [math.ceil(extents[mode] / p) for mode, p in zip(modes, parts, strict=True)]
        coords = np.unravel_index(rank, parts)
        return {mode: range(int(c) * n, (int(c) + 1) * n) for mode, c, n in zip(modes, coords, lengths, strict=True)}

    def symbols(self, extents: dict[str, int]) -> dict[str, int]:
        """Value of every symbol that the program may use."""
        values = {"R" if mode in self.rank_modes else "S": extent for mode, extent in extents.items()}
        for number, grid in enumerate(self.grids, start=1):
            for mode, parts in zip(grid.modes, grid.parts[WORLD.size], strict=True):
                values[f"P{mode.upper()}{number}"] = parts
                values[f"{mode.upper()}{number}"] = math.ceil(extents[mode] / parts)
        return values


def symbols(names: str) -> list[dace.symbol]:
    """64-bit DaCe symbols from their names, separated by blanks."""
    return [dace.symbol(name, dace.int64) for name in names.split()]
