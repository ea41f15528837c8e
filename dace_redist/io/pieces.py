"""Cutting of a file's array into pieces for the ranks that read or write it. Start reading at: rounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.distribution import AnyDistribution, Distribution
from dace_redist.integers import AnyInt
from dace_redist.io.stored import Layout, Slices, StoredArray, run_axis

#: Bytes that a rank reads or writes at a time, if memory is not bounded.
PIECE_BYTES = _core.piece_bytes

#: Minimum bytes of the share of a rank that is chosen to read or write.
_MIN_SHARE_BYTES = _core.min_share_bytes

#: Largest minimum of the bytes of contiguous runs of a part that its rank reads or writes without an exchange.
_MIN_RUN_BYTES = _core.max_run_bytes


@dataclasses.dataclass(frozen=True)
class Selection:
    """
    Part of a file's array that an index selects.

    :param layout: Layout of the file's array.
    :param ranges: Indices along each of its axes, in the order of storage.
    :param kept: Axes of the selected array, in the order of storage: an integer in the index drops one.
    """

    layout: Layout
    ranges: tuple[range, ...]
    kept: tuple[int, ...]

    @classmethod
    def of(cls, layout: Layout, index: Any = None) -> Selection:
        """
        Return the selection of an index as of NumPy, made of slices with positive steps, integers and an Ellipsis.

        :raises TypeError: If it has other entries.
        :raises ValueError: If it has too many entries, or one that is out of range.
        """
        extents = layout.shape[layout.order]
        entries = [... if index is None else index] if not isinstance(index, tuple) else list(index)
        entries += [] if any(entry is ... for entry in entries) else [...]
        at = next(i for i, entry in enumerate(entries) if entry is ...)
        entries[at : at + 1] = [slice(None)] * (len(extents) + 1 - len(entries))
        if len(entries) != len(extents):
            raise ValueError(f"index must have at most one entry per axis of the file's array {extents}, got {index}")
        ranges = [_indices(entry, extent) for entry, extent in zip(entries, extents, strict=True)]
        kept = (axis for axis, entry in enumerate(entries[layout.order]) if isinstance(entry, slice))
        return cls(layout, tuple(ranges[layout.order]), tuple(kept))

    @property
    def selected(self) -> Layout:
        """Layout of the selected array; its chunks are those of the file up to an offset, see :attr:`lead`."""
        shape = tuple(len(self.ranges[axis]) for axis in self.kept)
        unit = tuple(max(1, self.layout.unit[axis] // self.ranges[axis].step) for axis in self.kept)
        return dataclasses.replace(self.layout, shape=shape, unit=unit)

    @property
    def lead(self) -> tuple[int, ...]:
        """Number of indices along each axis of the selected array before the first boundary of chunks."""
        return tuple(-self.ranges[a].start % self.layout.unit[a] // self.ranges[a].step for a in self.kept)

    def box(self, part: Slices) -> Slices:
        """Return the box of the file's array for a box of the selected one."""
        parts = dict(zip(self.kept, part, strict=True))
        ranges = (one[parts.get(axis, slice(None))] for axis, one in enumerate(self.ranges))
        return tuple(slice(one.start, one.stop, one.step) for one in ranges)

    def transfer(self, stored: StoredArray, part: Slices, array: npt.NDArray[Any]) -> None:
        """Read or write a box of the selected array, if it has elements."""
        if array.size:
            lengths = dict(zip(self.kept, array.shape, strict=True))
            stored.transfer(self.box(part), array.reshape([lengths.get(a, 1) for a in range(len(self.ranges))]))

    def own_box(self, distribution: AnyDistribution, rank: int) -> Slices | None:
        """Return the box that is a rank's part, if it is made of whole chunks or long runs of the file's array."""
        if not isinstance(distribution, Distribution) or (self.layout.reversed and len(self.kept) > 1):
            return None
        try:
            part = distribution.slices(rank)
        except ValueError:  # several blocks
            return None
        box, layout, lengths = self.box(part), self.layout, tuple(one.stop - one.start for one in part)
        if lengths != distribution.local_shape(rank):  # the local array has margins
            return None
        size = layout.dtype.itemsize * math.prod(lengths)
        for one, unit, extent in zip(box, layout.unit, layout.shape, strict=True):
            if size and (one.step > 1 or one.start % unit or (one.stop % unit and one.stop < extent)):
                return None
        run = layout.dtype.itemsize * math.prod(one.stop - one.start for one in box[run_axis(layout.shape, box) :])
        return part if run >= min(_MIN_RUN_BYTES, layout.min_run, size) or max(layout.unit) > 1 else None


def _indices(entry: Any, extent: int) -> range:
    if isinstance(entry, slice):
        chosen = range(*entry.indices(extent))
        if chosen.step < 1:
            raise ValueError(f"index must have steps of at least 1, got {entry}")
        return chosen if len(chosen) else range(0)
    if isinstance(entry, bool) or not isinstance(entry, int | np.integer):
        raise TypeError(f"index must be made of slices, integers and an Ellipsis, got {entry!r}")
    if not -extent <= entry < extent:
        raise ValueError(f"index {entry} is out of range for an axis of extent {extent} of the file's array")
    return range(int(entry) % extent, int(entry) % extent + 1)


def box_of(lower: tuple[int, ...], distribution: Distribution, rank: int) -> Slices:
    """Return the indices in an array that a rank reads or writes in a round, see :func:`rounds`."""
    parts = zip(lower, distribution.slices(rank), strict=True)
    return tuple(slice(low + part.start, low + part.stop) for low, part in parts)


def rounds(
    layout: Layout, lead: Sequence[int], ranks: Sequence[int], memory_bytes: AnyInt | None = None
) -> Iterator[tuple[tuple[int, ...], Distribution]]:
    """
    Cut an array into rounds, in each of which ranks read or write consecutive pieces.

    A piece is contiguous in a file without chunks; else it ends where chunks end. A round is its first index, in the
    order of storage, and its distribution over the ranks.

    :param lead: Number of indices along each axis before the first boundary of chunks.
    :param ranks: Ranks that read or write.
    :param memory_bytes: Maximum bytes of buffers, of which a piece takes a quarter, or a chunk; None: not bounded.
    """
    max_bytes = PIECE_BYTES if memory_bytes is None else int(memory_bytes) // 4
    limits = len(ranks), max_bytes, _MIN_SHARE_BYTES
    for lower, extents, axis, block in _core.file_rounds(
        layout.shape, layout.unit, lead, layout.dtype.itemsize, *limits
    ):
        if not extents:
            yield (), Distribution.on_rank((), ranks[0])
            continue
        dims, blocks = ([one if i == axis else None for i in range(len(extents))] for one in (0, block))
        yield tuple(lower), Distribution(extents, (len(ranks),), dims=dims, block=blocks, ranks=ranks)


def chosen_ranks(size: int, ranks: int | tuple[int, ...] | None, nbytes: int) -> tuple[int, ...]:
    """Return the ranks that access a file, at equal distances: some, or a number, or one for each 4 MiB."""
    if isinstance(ranks, tuple):
        return ranks
    count = max(1, min(size, nbytes // _MIN_SHARE_BYTES)) if ranks is None else ranks
    return tuple(number * size // count for number in range(count))


def checked_ranks(what: str, ranks: Any, size: int) -> int | tuple[int, ...] | None:
    """Return a number of ranks, or a tuple of ranks of a communicator, checked; None is None."""
    if ranks is None:
        return None
    several = isinstance(ranks, Sequence | np.ndarray)
    numbers = list(ranks) if several else [ranks]
    if not all(isinstance(one, int | np.integer) and not isinstance(one, bool) for one in numbers):
        raise TypeError(f"{what} must be a number of ranks or a list of ranks, got {ranks!r}")
    least = 0 if several else 1
    if not numbers or len(set(numbers)) < len(numbers) or not all(least <= one < size + least for one in numbers):
        raise ValueError(f"{what} must be a number from 1 to {size}, or different ranks below {size}, got {ranks!r}")
    return tuple(map(int, numbers)) if several else int(ranks)
