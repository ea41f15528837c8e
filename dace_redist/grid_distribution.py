"""Part that distributions over a process grid have: their ranks, and those of MPI's topologies and of ScaLAPACK."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from dace_redist.integers import AnyInt, AnyInts, Size, Sizes, integers
from dace_redist.planned_distribution import PlannedDistribution

if TYPE_CHECKING:
    from mpi4py import MPI

Kind = TypeVar("Kind", bound="GridDistribution")

#: ScaLAPACK's type of the descriptor of a dense matrix, and the context of a process outside of the grid.
_DENSE, _NO_CONTEXT = 1, -1
#: Names of the integers of a descriptor.
DESCRIPTOR = ("dtype", "ctxt", "m", "n", "mb", "nb", "rsrc", "csrc", "lld")


class GridDistribution(PlannedDistribution):
    """Part that distributions over a process grid have."""

    grid: tuple[Size, ...]
    dims: tuple[int | None, ...]
    block: tuple[Any, ...]
    ranks: tuple[int, ...] | None
    pins: tuple[Size | None, ...]

    def __init__(self, shape: Sizes, grid: Sizes, **how: Any) -> None:
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
    def from_cart(cls: type[Kind], cart: MPI.Cartcomm, shape: Sizes, **how: Any) -> Kind:
        """
        Return the distribution over the process grid of a Cartesian communicator, which is to be passed as ``comm``.

        :param cart: Communicator of ``Create_cart`` or ``Cartcomm.Sub``. With a ``halo``, axes are periodic as it says.
        :param shape: Global shape, in elements.
        :param how: Further arguments, such as ``dims`` and ``halo``.
        :raises TypeError: If it is no Cartesian communicator, or MPI_COMM_NULL, as on ranks beyond the grid.
        """
        if not hasattr(cart, "Get_topo") or not hasattr(cart, "Get_cart_rank") or not cart:
            raise TypeError(f"cart must be a Cartesian communicator of mpi4py, as of Create_cart, got {cart!r}")
        grid, wraps, _ = cart.Get_topo()
        if np.any(how.get("halo", 0)) and "periodic" not in how:
            dims = how.get("dims") or [*range(len(grid)), *[None] * len(shape)][: len(shape)]
            how["periodic"] = [dim is not None and bool(wraps[dim]) for dim in dims]
        return cls(shape, grid, **how)

    def with_shape(self: Kind, shape: Sizes) -> Kind:
        """
        Return the distribution of a tensor of another shape, split in the same way over the same ranks.

        :param shape: Global shape, in elements, of as many axes.
        :raises ValueError: If it has another number of axes, or blocks of given lengths have another sum.
        """
        return dataclasses.replace(self, shape=shape)  # type: ignore[type-var]

    def _on_ranks(self: Kind, ranks: npt.NDArray[np.int64]) -> Kind:
        old = range(math.prod(self.grid)) if self.ranks is None else self.ranks
        return dataclasses.replace(self, ranks=ranks[list(old)].tolist())  # type: ignore[type-var]

    @classmethod
    def from_scalapack(cls: type[Kind], descriptor: AnyInts, grid: npt.ArrayLike) -> Kind:
        """
        Return the distribution of a matrix that ScaLAPACK describes. Its local arrays are Fortran-ordered.

        :param descriptor: Nine integers: dtype, ctxt, m, n, mb, nb, rsrc, csrc, lld.
        :param grid: Process grid: its rows and columns, with row-major ranks; or a matrix of its ranks, which
            :func:`dace_redist.interop.scalapack.grid_ranks` reads from a BLACS context.
        :raises ValueError: If the numbers describe no dense matrix on the grid; says which one is wrong.
        """
        numbers = integers("descriptor", descriptor)
        if len(numbers) != len(DESCRIPTOR):
            raise ValueError(f"descriptor must be the nine integers {', '.join(DESCRIPTOR)}, got {len(numbers)}")
        ranks = np.array(grid)
        if ranks.shape == (2,) and ranks.dtype.kind in "iu" and ranks.min() > 0:
            ranks = np.arange(np.prod(ranks)).reshape(ranks)
        if ranks.ndim != 2 or ranks.dtype.kind not in "iu":
            raise ValueError(f"grid must be (rows, columns), or a matrix of ranks, got {grid!r}")
        kind, _, m, n, mb, nb, *first, lld = numbers
        if kind != _DENSE:
            raise ValueError(f"descriptor: dtype must be {_DENSE}, of a dense matrix, got {kind}")
        if lld < 1:
            raise ValueError(f"descriptor: lld must be at least 1, got {lld}")
        for name, value, extent in zip(("rsrc", "csrc"), first, ranks.shape, strict=True):
            if not 0 <= value < extent:
                raise ValueError(
                    f"descriptor: {name} must be from 0 to {extent - 1} on a grid {ranks.shape}, got {value}"
                )
        ranks = np.roll(ranks, [-row_or_column for row_or_column in first], (0, 1))
        return cls((m, n), ranks.shape, block=(mb, nb), ranks=ranks.ravel().tolist())

    def scalapack_descriptor(self, rank: AnyInt, context: AnyInt = 0) -> npt.NDArray[np.intc]:
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
            uneven = isinstance(block, tuple) and len(set(block)) > 1
            if uneven or (block == "balanced" and extent % parts):
                raise ValueError(f'ScaLAPACK has blocks of one size: take block={longest} or "ceil", got {self}')
            sizes.append(block if isinstance(block, int) else longest)
        if rank not in ranks:
            context = _NO_CONTEXT
        numbers = [_DENSE, context, *self.shape, *sizes, 0, 0, max(1, self.local_shape(rank)[0])]
        if max(numbers) > np.iinfo(np.intc).max:
            raise ValueError(f"ScaLAPACK has integers of 32 bits: take smaller sizes and blocks, got {self}")
        return np.array(numbers, np.intc)
