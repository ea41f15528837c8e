"""Process grid of a distribution, and ScaLAPACK's description of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dace_redist.planned_distribution import PlannedDistribution, Size, integers

Kind = TypeVar("Kind", bound="GridDistribution")

#: ScaLAPACK's type of the descriptor of a dense matrix, and the context of a process outside of the grid.
_DENSE, _NO_CONTEXT = 1, -1
_NAMES = ("dtype", "ctxt", "m", "n", "mb", "nb", "rsrc", "csrc", "lld")


class GridDistribution(PlannedDistribution):
    """Part that distributions over a process grid have."""

    grid: tuple[Size, ...]
    dims: tuple[int | None, ...]
    block: tuple[Any, ...]
    ranks: tuple[int, ...] | None
    pins: tuple[Size | None, ...]

    def __init__(self, shape: Sequence[Size], grid: Sequence[Size], **how: Any) -> None:
        raise NotImplementedError

    def rank_grid(self) -> npt.NDArray[np.int64]:
        """Return the ranks that hold the parts: an axis for the parts of each tensor axis, and one for replicas."""
        ranks = np.arange(np.prod(self.grid, dtype=np.int64)) if self.ranks is None else np.array(self.ranks)
        ranks = ranks.reshape(self.grid)[
            tuple(slice(None) if pin is None else slice(pin, pin + 1) for pin in self.pins)
        ]
        split = [dim for dim in self.dims if dim is not None]
        ranks = ranks.transpose(*split, *(dim for dim in range(len(self.grid)) if dim not in split))
        parts = [1 if dim is None else self.grid[dim] for dim in self.dims]
        return np.asarray(ranks.reshape(*parts, -1), np.int64)

    @classmethod
    def from_scalapack(cls: type[Kind], descriptor: Sequence[int], grid: npt.ArrayLike) -> Kind:
        """
        Return the distribution of a matrix that ScaLAPACK describes. Its local arrays are Fortran-ordered.

        :param descriptor: Nine integers: dtype, ctxt, m, n, mb, nb, rsrc, csrc, lld.
        :param grid: Process grid: its rows and columns, with row-major ranks; or a matrix of its ranks, which
            :func:`dace_redist.interop.scalapack.grid_ranks` reads from a BLACS context.
        :raises ValueError: If the numbers describe no dense matrix on the grid; says which one is wrong.
        """
        numbers = integers("descriptor", descriptor)
        if len(numbers) != len(_NAMES):
            raise ValueError(f"descriptor must be the nine integers {', '.join(_NAMES)}, got {len(numbers)}")
        ranks = np.array(grid)
        if ranks.shape == (2,):
            ranks = np.arange(np.prod(ranks)).reshape(ranks)
        if ranks.ndim != 2 or not np.issubdtype(ranks.dtype, np.integer):
            raise ValueError(f"grid must be (rows, columns), or a matrix of ranks, got {grid!r}")
        kind, _, m, n, mb, nb, *first, _ = numbers
        if kind != _DENSE:
            raise ValueError(f"descriptor: dtype must be {_DENSE}, of a dense matrix, got {kind}")
        for name, value, extent in zip(("rsrc", "csrc"), first, ranks.shape, strict=True):
            if not 0 <= value < extent:
                raise ValueError(
                    f"descriptor: {name} must be from 0 to {extent - 1} on a grid {ranks.shape}, got {value}"
                )
        ranks = np.roll(ranks, [-row_or_column for row_or_column in first], (0, 1))
        return cls((m, n), ranks.shape, block=(mb, nb), ranks=ranks.ravel().tolist())

    def scalapack_descriptor(self, rank: int, context: int = 0) -> npt.NDArray[np.intc]:
        """
        Return ScaLAPACK's nine integers for a rank. Its local array is Fortran-ordered, its leading dimension minimal.

        :param context: BLACS context of a process grid of the ranks ``rank_grid()[..., 0]``.
        :raises ValueError: If ScaLAPACK cannot describe the distribution.
        """
        ranks = self.rank_grid()
        if len(self.shape) != 2 or ranks.shape[-1] > 1:
            raise ValueError(f"ScaLAPACK has matrices without replicas, got {self}")
        sizes = []
        for extent, block, parts in zip(self.shape, self.block, ranks.shape, strict=False):
            longest = max(1, -(-extent // parts))
            if not isinstance(block, int) and block != "ceil" and extent % parts and parts > 1:
                raise ValueError(f'ScaLAPACK has blocks of one size: take block={longest} or "ceil", got {self}')
            sizes.append(block if isinstance(block, int) else longest)
        if rank not in ranks:
            context = _NO_CONTEXT
        lld = max(1, self.local_shape(rank)[0])
        return np.array([_DENSE, context, *self.shape, *sizes, 0, 0, lld], np.intc)
