"""Distributions of a tensor over ranks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.box_distribution import BoxDistribution as BoxDistribution
from dace_redist.box_distribution import TiledDistribution as TiledDistribution
from dace_redist.integers import AnyInt, AnyInts, Size, Sizes, at_least, integers, size
from dace_redist.planned_distribution import BLOCKED, BOXED, MARGINS, TILED, PlannedDistribution

if TYPE_CHECKING:
    from mpi4py import MPI

_BLOCK_CODES = {"ceil": 0, "balanced": -1}
_LENGTHS = -2
_NONE = -1
#: ScaLAPACK's type of the descriptor of a dense matrix, and the context of a process outside of the grid.
_DENSE, _NO_CONTEXT = 1, -1
#: Names of the integers of a descriptor.
DESCRIPTOR = ("dtype", "ctxt", "m", "n", "mb", "nb", "rsrc", "csrc", "lld")


@dataclasses.dataclass(frozen=True, eq=True)
class Distribution(PlannedDistribution):
    """
    Tensor split over a process grid in blocks: balanced, equal, block-cyclic, or of given lengths.

    Tensor axis i is cut into blocks as ``block[i]`` says; block j belongs to coordinate ``j mod p`` of the grid
    axis ``dims[i]`` with its ``p`` coordinates. Grid axes that no tensor axis names hold replicas. Of an axis of extent
    0 every rank owns 0 elements; a tensor of shape () has one element. Margins (``halo``) of a source are ignored;
    those of a target become copies of the elements that they mirror.

    :param shape: Global shape. DaCe symbols are allowed here, in ``grid`` and ``block``.
    :param grid: Shape of the process grid; its ranks are row-major. ``()``: one rank holds the whole tensor.
    :param dims: Grid axis that splits each tensor axis, None: not split. Default: grid axis i splits axis i.
        Required if a further grid axis has replicas: more than one part, and no pin.
    :param block: Blocks of each tensor axis, or one word for all. ``"balanced"`` (also None): lengths differ by at most
        1, longer blocks first. ``"ceil"``: ceil(extent / parts) elements, as in DaCe and PyTorch; the last blocks may
        be short or empty. An integer: elements per block, block-cyclic. A sequence: the length of each part.
    :param ranks: Rank of each grid position, row-major, each once; default: ascending from 0.
    :param pins: Coordinate of a sub-grid along each grid axis, or None for all coordinates.
    :param halo: Width of the margins on both sides, for each axis or for all; at most the narrowest part.
    :param periodic: True for axes whose margins wrap around, for each axis or for all.
    :raises ValueError: If an argument is invalid.
    :raises TypeError: If something is no integer (or symbol).
    """

    shape: tuple[Size, ...]
    grid: tuple[Size, ...]
    dims: tuple[int | None, ...]
    block: tuple[Size | str | tuple[Size, ...], ...]
    ranks: tuple[int, ...] | None
    pins: tuple[Size | None, ...]
    halo: tuple[int, ...]
    periodic: tuple[bool, ...]

    def __init__(
        self,
        shape: Sizes,
        grid: Sizes,
        *,
        dims: Sequence[AnyInt | None] | None = None,
        block: Sequence[Size | str | Sizes | None] | str = "balanced",
        ranks: AnyInts | None = None,
        pins: Sequence[Size | None] | None = None,
        halo: AnyInts | AnyInt = 0,
        periodic: Sequence[bool] | bool = False,
    ) -> None:
        shape, grid = integers("shape", shape), integers("grid", grid)
        if dims is None:
            copies = [pin is None and parts != 1 for pin, parts in zip(pins or [None] * len(grid), grid, strict=False)]
            if shape and any(copies[len(shape) :]):
                raise ValueError(
                    f"Distribution: grid {grid} has more axes than shape {shape}: pass dims, the grid axis of each "
                    "tensor axis; those that it does not name hold replicas"
                )
            dims = [i if i < len(grid) else None for i in range(len(shape))]
        if block is None or isinstance(block, str):
            block = [block] * len(shape)
        if not isinstance(block, Sequence | np.ndarray):
            raise TypeError(f"block must be a sequence with one entry per tensor axis, got {block!r}")
        self.__dict__.update(  # the class is frozen
            shape=shape,
            grid=grid,
            dims=integers("dims", dims, optional=True),
            block=tuple(_block(f"block[{i}]", b) for i, b in enumerate(block)),
            ranks=None if ranks is None else integers("ranks", ranks),
            pins=integers("pins", [None] * len(grid) if pins is None else pins, optional=True),
        )
        self._set_margins(halo, periodic)
        self._check()

    def _check(self) -> None:
        for name, of in (("dims", "shape"), ("block", "shape"), ("pins", "grid")):
            count, expected = len(getattr(self, name)), len(getattr(self, of))
            if count != expected:
                raise ValueError(f"Distribution: {name} needs one entry per entry of {of} ({expected}), got {count}")
        for i, dim in enumerate(self.dims):
            if dim is not None and not 0 <= dim < len(self.grid):
                axes = f"axes 0 to {len(self.grid) - 1}" if self.grid else "no axes"
                raise ValueError(f"Distribution: dims[{i}] is {dim}, but the process grid has {axes} (None: not split)")
        for i, pin in enumerate(self.pins):
            if isinstance(pin, int) and pin < 0:
                raise ValueError(f"Distribution: pins[{i}] must be at least 0, or None for all coordinates, got {pin}")
        self._check_blocks()
        if self.ranks == ():
            raise ValueError("Distribution: ranks is empty; leave it out for ranks 0, 1, 2, ...")
        if not self.is_symbolic:
            _ = self.core

    def _check_blocks(self) -> None:
        for i, (block, dim) in enumerate(zip(self.block, self.dims, strict=True)):
            name = f"Distribution: block[{i}]"
            if isinstance(block, str) and block not in _BLOCK_CODES:
                raise ValueError(
                    f'{name} must be "balanced", "ceil", a number or the length of each part, got {block!r}'
                )
            if isinstance(block, int) and block < 1:
                raise ValueError(f"{name} must be at least 1 element, got {block}")
            parts = 1 if dim is None else self.grid[dim]
            if isinstance(block, tuple) and (not isinstance(parts, int) or len(block) != parts):
                raise ValueError(f"{name} must have the lengths of {parts} parts, got {len(block)}: {block}")

    @cached_property
    def _encoded_owned(self) -> tuple[Size, ...]:
        block = tuple(
            _BLOCK_CODES[b] if isinstance(b, str) else _LENGTHS if isinstance(b, tuple) else b for b in self.block
        )
        lengths = (length for b in self.block if isinstance(b, tuple) for length in b)
        dims, pins = (tuple(_NONE if v is None else v for v in values) for values in (self.dims, self.pins))
        head, ranks = (BLOCKED, len(self.shape), len(self.grid)), self.ranks or ()
        return (*head, *self.shape, *self.grid, *dims, *block, *pins, len(ranks), *ranks, *lengths)

    @classmethod
    def split(cls, shape: Sizes, axis: AnyInt, ranks: AnyInt | AnyInts) -> Distribution:
        """
        Return the distribution of one tensor axis in balanced blocks.

        :param shape: Global shape, in elements.
        :param axis: Tensor axis, from the end if negative.
        :param ranks: Number of ranks (0 to ranks - 1), or the rank of each block.
        :raises ValueError: If the tensor has no such axis, or a rank occurs twice.
        """
        shape, (axis,) = integers("shape", shape), integers("axis", [axis])
        if not -len(shape) <= axis < len(shape):
            raise ValueError(
                f"Distribution.split: axis {axis} of a tensor of {len(shape)} dimensions does not exist: choose from "
                f"{-len(shape)} to {len(shape) - 1}"
            )
        grid, named = _grid_of(ranks)
        return cls(shape, grid, dims=[0 if i == axis % len(shape) else None for i in range(len(shape))], ranks=named)

    @classmethod
    def replicated(cls, shape: Sizes, ranks: AnyInt | AnyInts) -> Distribution:
        """
        Return the distribution of a whole tensor on each rank.

        :param shape: Global shape, in elements.
        :param ranks: Number of ranks (0 to ranks - 1), or the ranks.
        """
        shape = integers("shape", shape)
        grid, named = _grid_of(ranks)
        return cls(shape, grid, dims=[None] * len(shape), ranks=named)

    @classmethod
    def block_cyclic(cls, shape: Sizes, grid: Sizes, block: Sizes | Size) -> Distribution:
        """
        Return the block-cyclic distribution that ScaLAPACK has, of any number of dimensions.

        :param shape: Global shape, in elements.
        :param grid: Shape of the process grid, one entry for each tensor axis; ranks are row-major.
        :param block: Elements per block: one number for all axes, or one for each.
        """
        shape, grid = integers("shape", shape), integers("grid", grid)
        block = block if isinstance(block, Sequence | np.ndarray) else [block] * len(shape)
        if len(grid) != len(shape):
            raise ValueError(f"Distribution.block_cyclic: a grid of {len(shape)} axes is needed, got {grid}")
        return cls(shape, grid, block=integers("block", block))

    @classmethod
    def on_rank(cls, shape: Sizes, rank: AnyInt) -> Distribution:
        """
        Return the distribution of a tensor on one rank.

        :param shape: Global shape, in elements.
        :param rank: Rank that holds the tensor.
        """
        return cls.replicated(shape, [rank])

    @property
    def replicas(self) -> Size:
        """Number of ranks that hold each element."""
        axes = enumerate(zip(self.grid, self.pins, strict=True))
        return math.prod(parts for axis, (parts, pin) in axes if pin is None and axis not in self.dims)

    def slices(self, rank: AnyInt) -> tuple[slice, ...]:
        """
        Return a rank's part of the whole tensor, as one slice per axis.

        :raises ValueError: If the rank holds several blocks of an axis that do not follow one another (block-cyclic).
        """
        found = []
        for axis, indices in enumerate(self.global_index(rank)):
            first = int(indices[0]) if len(indices) else 0
            if len(indices) and indices[-1] != first + len(indices) - 1:
                raise ValueError(
                    f"Distribution: rank {rank} holds several blocks of axis {axis}, which are no slice; "
                    "use global_index()"
                )
            found.append(slice(first, first + len(indices)))
        return tuple(found)

    def global_index(self, rank: AnyInt) -> tuple[npt.NDArray[np.int64], ...]:
        """
        Return the global indices that a rank holds, in local order, as one array per dimension.

        ``whole[np.ix_(*global_index(rank))]`` is the rank's part.
        """
        number = at_least(0, "rank", rank)
        return tuple(self.core.global_index(number, axis) for axis in range(len(self.shape)))

    def local(self, array: npt.NDArray[Any], rank: AnyInt) -> npt.NDArray[Any]:  # noqa: D102 (as of the base)
        self._check_global(array)
        if any(self.halo) and (ranges := self.core.tile_ranges(at_least(0, "rank", rank))):
            held = zip(ranges[0][::2], ranges[0][1::2], self.global_index(rank), self.halo, strict=True)
            return self._part(array, [slice(low, high) if halo else index for low, high, index, halo in held])
        if not self.shape:  # NumPy makes a scalar, or one dimension, of what has none
            return np.full(self.local_shape(rank), array)
        return np.ascontiguousarray(array[np.ix_(*self.global_index(rank))])

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
    def from_cart(cls, cart: MPI.Cartcomm, shape: Sizes, **how: Any) -> Distribution:
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

    def with_shape(self, shape: Sizes) -> Distribution:
        """
        Return the distribution of a tensor of another shape, split in the same way over the same ranks.

        :param shape: Global shape, in elements, of as many axes.
        :raises ValueError: If it has another number of axes, or blocks of given lengths have another sum.
        """
        return dataclasses.replace(self, shape=integers("shape", shape))

    def _on_ranks(self, ranks: npt.NDArray[np.int64]) -> Distribution:
        old = range(math.prod(self.grid)) if self.ranks is None else self.ranks
        return dataclasses.replace(self, ranks=ranks[list(old)].tolist())

    @classmethod
    def from_scalapack(cls, descriptor: AnyInts, grid: npt.ArrayLike) -> Distribution:
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


def _block(name: str, block: Any) -> Size | str | tuple[Size, ...]:
    """Return the blocks of an axis: a word, a number or the lengths of all parts."""
    if block is None or isinstance(block, str):
        return block or "balanced"
    listed = isinstance(block, Sequence | np.ndarray) and not isinstance(block, bytes)
    return integers(name, block) if listed else size(name, block)


def _grid_of(ranks: AnyInt | AnyInts) -> tuple[tuple[AnyInt, ...], AnyInts | None]:
    """Return the grid of one axis over ranks, and the ranks if they are named."""
    if isinstance(ranks, Sequence | np.ndarray):
        return (len(ranks),), ranks
    if hasattr(ranks, "Get_size"):
        raise TypeError(f"ranks must be a number of ranks, or a list of them, got {ranks!r}: pass its size")
    return (size("ranks", ranks),), None


#: Any kind of distribution.
AnyDistribution = Distribution | TiledDistribution | BoxDistribution


def check_distribution(name: str, value: Any) -> None:
    """Raise a TypeError if a value is not a distribution."""
    if not isinstance(value, AnyDistribution):
        raise TypeError(f"{name} must be a Distribution, TiledDistribution or BoxDistribution, got {value!r}")


def decode_distribution(encoded: Sequence[Size], **margins: Any) -> AnyDistribution:
    """
    Return the distribution that numbers or symbols describe, see :attr:`Distribution.encoded`.

    :param margins: Its halo and periodic, of an encoding without margins.
    :raises ValueError: If the list is too short or of unknown kind.
    """
    if len(encoded) > 2 and encoded[0] == MARGINS:
        ndim = int(encoded[1])
        halo, periodic, owned = encoded[2 : 2 + ndim], encoded[2 + ndim : 2 + 2 * ndim], encoded[2 + 2 * ndim :]
        return decode_distribution(owned, halo=tuple(halo), periodic=[bool(wraps) for wraps in periodic])
    if len(encoded) > 2 and encoded[0] == BOXED:
        return BoxDistribution.decoded(encoded, **margins)
    items = [size("encoded distribution", number) for number in encoded]
    if len(items) > 2 and items[0] == BLOCKED:
        cuts = np.cumsum([3, items[1], items[2], items[1], items[1], items[2]]).tolist()
        if len(items) <= cuts[-1]:
            raise ValueError(f"not an encoded distribution, which takes more than {cuts[-1]} numbers: {tuple(items)}")
        shape, grid, dims, block, pins = (items[a:b] for a, b in zip(cuts, cuts[1:], strict=False))
        after_ranks = cuts[-1] + 1 + items[cuts[-1]]
        ranks, lengths = items[cuts[-1] + 1 : after_ranks], iter(items[after_ranks:])
        names: dict[Any, Any] = {code: name for name, code in _BLOCK_CODES.items()}
        dims, pins = ([None if v == _NONE else v for v in values] for values in (dims, pins))
        for i, dim in enumerate(dims):
            if block[i] == _LENGTHS:
                block[i] = list(islice(lengths, 1 if dim is None else grid[dim]))
            elif isinstance(block[i], int):
                block[i] = names.get(block[i], block[i])
        return Distribution(shape, grid, dims=dims, block=block, pins=pins, ranks=ranks or None, **margins)
    if len(items) > 1 and items[0] == TILED:
        ndim = items[1]
        shape, tile, owners = items[2 : 2 + ndim], items[2 + ndim : 2 + 2 * ndim], items[2 + 2 * ndim :]
        tiles = _core.tile_grid(shape, tile, "encoded distribution")
        return TiledDistribution(shape, tile, np.array(owners, dtype=np.int64).reshape(tiles), **margins)
    raise ValueError(f"not an encoded distribution: {tuple(encoded)[:8]}...")
