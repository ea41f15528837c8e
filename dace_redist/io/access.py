"""Access of ranks to an array in a file. Start reading at: run_all."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution, Distribution
from dace_redist.integers import AnyInt
from dace_redist.io.pieces import Selection, box_of, chosen_ranks, rounds
from dace_redist.io.stored import NewArray, Slices, StoredArray, naming
from dace_redist.mpi.collective import together
from dace_redist.redistribution.arrays import array_view
from dace_redist.redistribution.arrays.new import new_array
from dace_redist.redistribution.plan import plan
from dace_redist.report.progress import Show, progress_bar

#: Maximum number of arrays that a rank has open.
_MAX_OPEN = 64

#: Distribution, local array, and first index of a region.
_Side = tuple[AnyDistribution, Any, tuple[int, ...]]


@dataclasses.dataclass
class Access:
    """
    Access of ranks to an array in a file, each to its own part, or to pieces that are exchanged. Collective.

    :param selection: Part of the file's array.
    :param distribution: Distribution of that part.
    :param local: This rank's local array.
    :param open_array: Opens the file; called on the ranks that access it.
    :param memory_bytes: Maximum bytes of buffers per rank; None: not bounded.
    :param strategy: Strategy of the exchanges.
    :param path: File, for errors.
    :param label: Label of the progress bar; ``""``: no bar.
    :param show: Takes the bytes done so far, in the place of a bar of its own.
    :param named: Number of ranks that access the file, or these ranks; None: any.
    :param own: True if this rank can access its own part directly.
    :param op: Reduction of the array's replicas, which are partial results; None: they are equal.
    :ivar ranks: Ranks that access the file.
    :ivar box: This rank's own part; None: pieces are exchanged.
    """

    comm: MPI.Intracomm
    selection: Selection
    distribution: AnyDistribution
    local: Any
    open_array: Callable[[], StoredArray]
    memory_bytes: AnyInt | None
    strategy: str
    path: str
    label: str
    named: dataclasses.InitVar[int | tuple[int, ...] | None]
    own: dataclasses.InitVar[bool]
    op: str | None = None
    ranks: tuple[int, ...] = ()
    box: Slices | None = None
    show: Show | None = None

    def __post_init__(self, named: int | tuple[int, ...] | None, own: bool) -> None:
        """Choose the ranks for exchanges, and this rank's own part."""
        itemsize, selected = self.selection.layout.dtype.itemsize, self.selection.selected
        nbytes, chunk = (math.prod(extents) * itemsize for extents in (selected.shape, selected.unit))
        if self.memory_bytes is not None and self.memory_bytes < 4 * chunk:
            least = f"{4 * chunk} for chunks of {selected.unit}"
            raise ValueError(f"memory_bytes must be at least {least}, got {self.memory_bytes}")
        self.ranks = chosen_ranks(self.comm.size, named, nbytes)
        if named is None and own:
            self.box = self.selection.own_box(self.distribution, self.comm.rank)

    @property
    def own_size(self) -> int | None:
        """Number of elements that this rank accesses itself; None: it does not."""
        return None if self.box is None else math.prod(self.distribution.local_shape(self.comm.rank))

    def choose(self, sizes: Sequence[int | None]) -> None:
        """Choose the way of access, from :attr:`own_size` of all ranks."""
        held = [size for size in sizes if size is not None]
        if len(held) == len(sizes) and sum(held) == math.prod(self.selection.selected.shape):  # none has replicas
            self.ranks = tuple(rank for rank, size in enumerate(held) if size)
        else:
            self.box = None

    def run(self, reading: bool) -> None:
        """Move the array between the file and the local arrays by exchanges, and close the file. Collective."""
        stored, order = None, self.selection.layout.order
        with contextlib.ExitStack() as files:
            with together(self.comm), naming(self.path):
                if self.comm.rank in self.ranks:
                    stored = files.enter_context(contextlib.closing(self.opened()))
            for lower, pieces, piece in self._rounds():
                box, extents = box_of(lower, pieces, self.comm.rank), pieces.shape
                sides = (pieces, piece, (0,) * len(lower)), (self.distribution, self.local, lower[order])
                if reading:
                    self._transfer(stored, box, piece)
                    self._move(*sides, extents)
                else:
                    self._move(sides[1], sides[0], extents[order])
                    self._transfer(stored, box, piece)
            with together(self.comm), naming(self.path):
                if stored is not None:
                    _close_all([stored])

    def run_alone(self, stored: StoredArray, reading: bool) -> None:
        """Move this rank's own part, in pieces if memory is bounded."""
        box = self.box or ()
        if self.memory_bytes is None or not self.local.size:
            return self.selection.transfer(stored, box, self.local)
        layout = dataclasses.replace(self.selection.selected, shape=self.local.shape)
        for lower, pieces in rounds(layout, (0,) * len(box), (0,), self.memory_bytes):
            part = box_of(lower, pieces, 0)
            where = tuple(slice(one.start + at.start, one.start + at.stop) for one, at in zip(box, part, strict=True))
            local = self.local[part + (...,)]  # an array, also of 0 dimensions
            piece = np.asarray(local, order="C")  # a copy, unless it is contiguous
            self.selection.transfer(stored, where, piece)
            if reading and piece is not local:
                local[...] = piece
        return None

    def opened(self) -> StoredArray:
        """Return the open file, on a rank that accesses it."""
        try:
            return self.open_array()
        except OSError as error:
            hint = "name ranks that see the file as readers, or as writers"
            raise OSError(f"rank {self.comm.rank}, which accesses the file, cannot open it: {error}; {hint}") from error

    def _transfer(self, stored: StoredArray | None, part: Slices, array: npt.NDArray[Any]) -> None:
        with together(self.comm), naming(self.path):
            if stored is not None:
                self.selection.transfer(stored, part, array)

    def _move(self, source: _Side, target: _Side, extents: tuple[int, ...]) -> None:
        types = [array_view("array", array).dtype for _, array, _ in (source, target)]
        backwards = tuple(reversed(range(len(extents)))) if self.selection.layout.reversed else None
        half = None if self.memory_bytes is None else self.memory_bytes // 2
        try:
            move = plan(
                *(source[0], target[0], types[0]),
                comm=self.comm,
                target_dtype=types[1],
                axes=backwards,
                region=(source[2], target[2], extents),
                op=self.op,
                strategy=self.strategy,
                memory_bytes=half,
            )
        except ValueError as error:
            if half is None:
                raise
            raise ValueError(f"half of memory_bytes={self.memory_bytes} is for exchanges, where {error}") from error
        with move:
            move(source[1], target[1])

    def _rounds(self) -> Iterator[tuple[tuple[int, ...], Distribution, npt.NDArray[Any]]]:
        """Give each round, and a buffer for this rank's piece, half of which another copy of the piece may take."""
        layout, dtype = self.selection.selected, self.selection.layout.dtype
        parts = list(rounds(layout, self.selection.lead, self.ranks, self.memory_bytes))
        shapes = [pieces.local_shape(self.comm.rank) for _, pieces in parts]
        with together(self.comm):
            size = max(map(math.prod, shapes), default=0)
            # not shared if memory is bounded: it would count on all ranks that see it
            buffer = new_array(None, (size,), dtype, "cpu", shared=self.memory_bytes is None)
        shown, nbytes = self.comm.rank == 0 and self.label != "", math.prod(layout.shape) * dtype.itemsize
        with progress_bar(shown, self.label, nbytes) as bar:
            show = self.show or bar
            done = 0
            for (lower, pieces), shape in zip(parts, shapes, strict=True):
                yield lower, pieces, buffer[: math.prod(shape)].reshape(shape)
                done += math.prod(pieces.shape) * dtype.itemsize
                show(f"{done / 2**20:.0f} MiB", done)


@contextlib.contextmanager
def replacing(
    comm: MPI.Intracomm, path: str, leader: int, create: Callable[[contextlib.ExitStack], list[NewArray]]
) -> Iterator[list[NewArray]]:
    """
    Give new arrays, which one rank creates, to all ranks; after the block they replace the old ones. Collective.

    :param create: Called with what undoes it if anything fails.
    """
    made: list[NewArray] = []
    with contextlib.ExitStack() as files:
        with together(comm), naming(path):
            if comm.rank == leader:
                made = create(files)
        yield comm.bcast([dataclasses.replace(new, commit=None) for new in made], leader)
        with together(comm), naming(path):
            for new in made:
                if new.commit is not None:
                    new.commit()


def run_all(comm: MPI.Intracomm, path: str, parts: Sequence[Access], reading: bool) -> None:
    """Read or write several arrays of a file. Collective: once for all that ranks access themselves."""
    sizes = comm.allgather([part.own_size for part in parts])
    for part, of_ranks in zip(parts, zip(*sizes, strict=True), strict=True):
        part.choose(of_ranks)
    with contextlib.ExitStack() as files, together(comm), naming(path):
        opened: list[StoredArray] = []
        for part in parts:
            if part.box is not None and comm.rank in part.ranks:
                opened.append(files.enter_context(contextlib.closing(part.opened())))
                part.run_alone(opened[-1], reading)
                if len(opened) == _MAX_OPEN:
                    _close_all(opened)
        _close_all(opened)
    for part in parts:
        if part.box is None:
            part.run(reading)


def _close_all(opened: list[StoredArray]) -> None:
    """Flush each file once, and close all arrays."""
    for stored in {stored.path: stored for stored in opened}.values():
        stored.flush()
    while opened:
        opened.pop().close()
