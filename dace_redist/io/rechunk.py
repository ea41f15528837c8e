"""Function :func:`rechunk`: a file in other chunks, with bounded memory. Start reading at: rechunk."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import itertools
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dace_redist.distribution import Distribution
from dace_redist.errors import remedies
from dace_redist.integers import AnyBytes, AnyInts, checked_memory_bytes, integers
from dace_redist.io.pieces import Selection
from dace_redist.io.stored import (
    Layout,
    NewArray,
    Slices,
    Storage,
    StoredArray,
    format_of,
    inspect_file,
    leftovers,
    naming,
    new_names,
    open_same,
)
from dace_redist.mpi.collective import checked_communicator, together
from dace_redist.report.progress import Show, progress_bar
from dace_redist.report.units import count, format_bytes

if TYPE_CHECKING:
    from mpi4py import MPI

#: Bytes that libraries take: MPI, codecs and their threads, modules that are imported late.
_LIBRARY_BYTES = 24 << 20

#: Minimum bytes that a rank reads or writes at a time.
_MIN_PIECE = 256 << 10

#: Memory that reading or writing a piece of whole chunks takes, in pieces: if it is exchanged, itself, copies in codecs
#: and buffers of the exchange; if it is written from a slab, copies in codecs.
_EXCHANGED, _ALONE = 8, 5

#: Maximum number of ways to cut an array that are compared.
_MAX_CUTS = 20_000

_Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class ArrayPlan:
    """
    Copy of one array: slabs of it are read, exchanged and written one after another.

    :param source: Layout in the old file; its chunks are read as a whole.
    :param target: Layout in the new file; slabs end where its chunks, or shards, end.
    :param storage: Arguments of the format that keep or set properties of the array.
    :param slab: Extents of a slab.
    :param grid: Process grid that a slab is distributed over, in blocks of whole chunks.
    :param pieces: Bytes that a rank reads, or writes, at a time.
    :param bytes_read: Bytes of all chunks that are read, as often as they are.
    :param peak_bytes: Maximum memory per rank.
    """

    source: Layout
    target: Layout
    storage: Storage
    slab: _Shape
    grid: _Shape
    pieces: tuple[int, int]
    bytes_read: int
    peak_bytes: int

    @property
    def nbytes(self) -> int:
        """Bytes of the array, each of which is written once."""
        return math.prod(self.target.shape) * self.target.dtype.itemsize

    def slabs(self) -> list[Slices]:
        """Return the indices of each slab."""
        shape = self.target.shape[self.target.order]
        cuts = [
            [slice(low, min(low + step, extent)) for low in range(0, extent, step)]
            for extent, step in zip(shape, self.slab, strict=True)
        ]
        return list(itertools.product(*cuts))

    def distribution(self, slab: Slices) -> Distribution:
        """Return the distribution of a slab."""
        if not slab:
            return Distribution.on_rank((), 0)
        block = _blocks(self.slab, self.target.unit[self.target.order], self.grid)
        return Distribution([one.stop - one.start for one in slab], self.grid, block=block)


@dataclasses.dataclass(frozen=True)
class RechunkPlan:
    """
    Result of :func:`rechunk`; printed, it says for each array what is read and written.

    :param bytes_read: Bytes of the chunks that all ranks read, without compression.
    :param bytes_written: Bytes that all ranks write, without compression.
    :param peak_bytes: Maximum memory that the call takes on a rank.
    """

    path: str
    ranks: int
    arrays: Mapping[str | None, ArrayPlan]
    bytes_read: int
    bytes_written: int
    peak_bytes: int

    def __str__(self) -> str:
        lines = [f"{self.path}: {count(len(self.arrays), 'array')}, {count(self.ranks, 'rank')}"]
        for name, one in self.arrays.items():
            shape, units = one.source.shape[one.source.order], (one.source, one.target)
            old, new = ("none" if max(of.unit, default=1) == 1 else of.unit[of.order] for of in units)
            lines += [
                f"{'array' if name is None else name} {shape} {one.target.dtype}, chunks {old} to {new}",
                f"  slabs    {len(one.slabs())} of {one.slab}",
                f"  read     {format_bytes(one.bytes_read)}, each byte {one.bytes_read / max(1, one.nbytes):.3g} times",
                f"  written  {format_bytes(one.nbytes)}, each byte once",
            ]
        return "\n".join([*lines, f"peak memory per rank: {format_bytes(self.peak_bytes)}"])


def rechunk(
    source: str | bytes | os.PathLike[str],
    target: str | bytes | os.PathLike[str],
    *,
    chunks: AnyInts | Mapping[str | None, AnyInts] | None = None,
    shards: AnyInts | Mapping[str | None, AnyInts] | None = None,
    names: Sequence[str | None] | None = None,
    comm: MPI.Intracomm | None = None,
    memory_bytes: AnyBytes = "1GiB",
    dry_run: bool = False,
    progress: bool = False,
    **storage: Any,
) -> RechunkPlan:
    """
    Write arrays of a file into another file, in other chunks, with bounded memory. Collective over ``comm``.

    Ranks hold a slab of an array at a time, made of whole chunks of the target. Chunks of the source that slabs cut are
    read more than once: the cut with the fewest bytes is taken, and the plan says how many.

    Arrays keep attributes, also those of their groups, names of dimensions, fill value and, in files of one kind,
    compression; else gzip stays gzip. They replace those of the target as :func:`dace_redist.save` does: if anything
    fails, the old ones are as they were. In the call, glibc returns freed memory at once; its thresholds stay fixed
    afterwards (``mallopt``).

    :param source: File or folder, as for :func:`dace_redist.load`.
    :param target: File or folder, also the source itself.
    :param chunks: Extents of chunks, -1 for a whole axis, for arrays of as many axes, or by name. Default: as before.
    :param shards: Extents of the shards of a Zarr 3 array, likewise. Default: as before, if the chunks are, else none.
    :param names: Arrays to write. Default: all.
    :param comm: mpi4py communicator; default: the world.
    :param memory_bytes: Maximum memory that the call takes on a rank.
    :param dry_run: True to return the plan and write nothing.
    :param progress: See :func:`dace_redist.load`.
    :param storage: Arguments for all arrays, as of :func:`dace_redist.save`; also ``attributes`` and
        ``dimension_names``.
    :return: The plan.
    :raises OSError: On every rank, if a file cannot be read or written.
    :raises ValueError: On every rank, if an argument is invalid on one of them, the memory is too small for the
        chunks, an array has elements that cannot be read, or the target cannot have such arrays.
    :raises TypeError: On every rank, if the format of the target has no such elements or arguments.
    :raises RuntimeError: On every rank, if h5py or zarr is missing, or fails.
    :warns RuntimeWarning: If a call that was killed left hidden files: this one begins anew, and names them.
    """
    with remedies("dace_redist.rechunk"):
        from dace_redist.io import access  # needs MPI

    comm = checked_communicator(comm)
    given = {"chunks": chunks, "shards": shards, "names": names, "dry_run": dry_run, "storage": storage}
    plan: RechunkPlan | None = None
    with together(comm, {"source": source, "target": target, "memory_bytes": memory_bytes, **given}):
        old_path, old_form = format_of(source)
        path, form = format_of(target)
        limit = checked_memory_bytes(memory_bytes)
        if limit is None:
            raise ValueError("memory_bytes must be a limit, such as '1GiB', got None")
        if comm.rank == 0:
            plan = _planned(old_path, path, names, chunks, shards, storage, comm.size, limit)
    plan = comm.bcast(plan)
    assert plan is not None
    if dry_run:
        return plan
    layouts = {name: _plain(one.target) for name, one in plan.arrays.items()}
    create = functools.partial(form.create, path, layouts, {name: one.storage for name, one in plan.arrays.items()})
    with _returning_memory(), access.replacing(comm, path, 0, create) as made:
        with together(comm), naming(path):
            if comm.rank == 0 and (left := leftovers(made)):
                text = f"rechunk begins anew. Remove {', '.join(left)}, unless a program still writes there"
                warnings.warn(f"a program was killed that wrote {path!r}: {text}", RuntimeWarning, stacklevel=2)
        with progress_bar(progress and comm.rank == 0, f"rechunk {path}", 2 * plan.bytes_written) as show:
            done = 0
            for (name, one), new in zip(plan.arrays.items(), made, strict=True):
                reading = old_path, functools.partial(open_same, old_form, old_path, name, one.source)
                writing = path, functools.partial(form.open_new, new)
                done = _copy(comm, one, new, (reading, writing), done, show)
    return plan


@contextlib.contextmanager
def _returning_memory() -> Iterator[None]:
    """
    Have glibc return freed memory to the system in the block, instead of keeping it for each thread of a codec.

    It cannot be set back to adapt its thresholds; in the end they are as large as they can get.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) or (lambda *_: 0)
    mmap_threshold, trim_threshold = -3, -1
    mallopt(mmap_threshold, 1 << 20)
    mallopt(trim_threshold, 1 << 20)
    try:
        yield
    finally:
        mallopt(mmap_threshold, 32 << 20)
        mallopt(trim_threshold, 64 << 20)


def _plain(layout: Layout) -> Layout:
    """Return the layout that a new array is created with: its shape, without chunks."""
    return Layout(layout.shape[layout.order], layout.dtype, (1,) * len(layout.shape))


def _copy(
    comm: MPI.Intracomm, one: ArrayPlan, new: NewArray, files: tuple[tuple[str, Any], ...], done: int, show: Show
) -> int:
    """Copy an array, slab by slab; return the bytes that are done, which are counted twice. Collective."""
    from dace_redist.io.access import Access, run_all

    sides = [(slab, one.distribution(slab)) for slab in one.slabs()]
    layouts, writers = (one.source, new.layout), (0,) if new.one_writer else None
    with together(comm):
        size = max((math.prod(side.local_shape(comm.rank)) for _, side in sides), default=0)
        buffer = np.empty(size, one.source.dtype)
    with contextlib.ExitStack() as stack:
        kept = [(path, _kept_open(stack, opened)) for path, opened in files]
        for slab, side in sides:
            shape = side.local_shape(comm.rank)
            local = buffer[: math.prod(shape)].reshape(shape)
            for (path, opened), layout, ranks, piece in zip(kept, layouts, (None, writers), one.pieces, strict=True):
                with together(comm):
                    selection, how = Selection.of(layout, slab), (4 * piece, "Auto", path, "")
                    part = Access(comm, selection, side, local, opened, *how, ranks, True)
                    part.show = functools.partial(_show, show, done)
                run_all(comm, path, [part], reading=layout is one.source)
                done += math.prod(side.shape) * local.itemsize
                _show(show, done, "", 0)
        with together(comm), naming(files[1][0]):
            stack.close()
    return done


def _kept_open(stack: contextlib.ExitStack, open_array: Callable[[], StoredArray]) -> Callable[[], StoredArray]:
    """Return a function that opens an array once, to be closed, and be on the disk, at the end of a context."""

    @functools.cache
    def opened() -> StoredArray:
        stored = open_array()
        stack.callback(stored.close)
        stack.callback(stored.flush)  # before it is closed
        return StoredArray(stored.layout, stored.transfer)

    return opened


def _show(show: Show, done: int, _: str, further: float) -> None:
    show(f"{(done + further) / 2**21:.0f} MiB", done + further)


def _planned(
    old_path: str, path: str, names: Any, chunks: Any, shards: Any, storage: Storage, ranks: int, limit: int
) -> RechunkPlan:
    """Return the plan, on one rank; errors as of :func:`rechunk`."""
    (_, old_form), (_, form), found = format_of(old_path), format_of(path), inspect_file(old_path)
    with naming(old_path):
        every = old_form.names(old_path)
        wanted = sorted(every if names is None else names, key=str)
        if not wanted or not {*wanted} <= {*every}:
            raise ValueError(f"names must be some of its arrays: {', '.join(map(str, every))}; got {names}")
        if unreadable := [str(name) for name in wanted if name not in found]:
            text = f"elements without a fixed size, in {', '.join(unreadable)}, cannot be read"
            raise ValueError(f"{text}: pass the names of the other arrays")
    new_names(wanted, form.RESERVED)
    given = {"chunks": chunks, "shards": shards}
    for what, value in given.items():
        known: set[Any] = {*wanted} if isinstance(value, Mapping) else {len(found[name].shape) for name in wanted}
        meant = {*value} if isinstance(value, Mapping) else set() if value is None else {len(integers(what, value))}
        if not meant <= known:
            raise ValueError(f"{what} must be for arrays that are written, of as many axes, got {value}")
    arrays: dict[str | None, ArrayPlan] = {}
    for name in wanted:
        with naming(old_path), contextlib.closing(old_form.open_array(old_path, name)) as stored:
            layout, description = stored.layout, old_form.describe(old_path, name)
        shape = found[name].shape
        asked = {what: extents for what, value in given.items() if (extents := _extents(what, value, name, shape))}
        with naming(path):
            plain = _plain(layout)
            how = form.storage_of(description, path, name, plain, {**asked, **storage})
            target = form.plan_array(path, name, plain, how)
        with naming(old_path if name is None else f"{old_path}: {name}"):
            arrays[name] = _array_plan(layout, target, how, ranks, limit)
    read, written, peaks = zip(*((one.bytes_read, one.nbytes, one.peak_bytes) for one in arrays.values()), strict=True)
    return RechunkPlan(path, ranks, arrays, sum(read), sum(written), max(peaks))


def _extents(what: str, value: Any, name: str | None, shape: _Shape) -> _Shape | None:
    """Return the extents of chunks, or shards, that are asked for; None if there are none for this array."""
    value = value.get(name) if isinstance(value, Mapping) else value
    if value is None or len(integers(what, value)) != len(shape):
        return None
    extents = tuple(max(1, n) if one == -1 else one for one, n in zip(integers(what, value), shape, strict=True))
    if any(not isinstance(one, int) or one < 1 for one in extents):
        raise ValueError(f"{what} must have extents of at least 1, or -1 for a whole axis, got {value}")
    return extents


def _array_plan(source: Layout, new: NewArray, storage: Storage, ranks: int, limit: int) -> ArrayPlan:
    """Cut an array into slabs that fit into memory with the buffers to read and write them."""
    shape, itemsize = source.shape[source.order], source.dtype.itemsize
    units = [layout.unit[layout.order] for layout in (source, new.layout)]
    chunks = [math.prod(unit) * itemsize for unit in units]
    nbytes = math.prod(shape) * itemsize
    block = max(math.prod(map(min, units[1], shape)) * itemsize, min(nbytes, 4 * _MIN_PIECE))
    alone = max(new.layout.unit, default=1) > 1 and not new.one_writer
    factors = _EXCHANGED, _ALONE if alone else _EXCHANGED
    room = limit - _LIBRARY_BYTES - block
    piece = max(_MIN_PIECE, min(limit // 128, room // _EXCHANGED))
    used = [max(chunk, min(piece, nbytes)) for chunk in chunks]
    buffers = max(factor * one for factor, one in zip(factors, used, strict=True))
    if buffers > room:
        least = format_bytes(_LIBRARY_BYTES + block + buffers)
        raise ValueError(
            f"memory_bytes must be at least {least} for chunks of {units[0]} and {units[1]}, got {format_bytes(limit)}"
        )
    slab, grid, read = _cut(source, new.layout, ranks, (limit - _LIBRARY_BYTES - buffers) // itemsize)
    local = min(nbytes, math.prod(map(min, slab, _blocks(slab, units[1], grid))) * itemsize)
    pieces = max(chunks[0], piece), max(chunks[1], piece)
    peak = _LIBRARY_BYTES + local + buffers
    return ArrayPlan(source, new.layout, storage, slab, grid, pieces, read * itemsize, peak)


def _blocks(slab: Sequence[int], unit: Sequence[int], grid: Sequence[int]) -> _Shape:
    """Return the extents of a rank's part of a slab: whole chunks."""
    return tuple(-(-extent // (one * parts)) * one for extent, one, parts in zip(slab, unit, grid, strict=True))


def _cut(source: Layout, target: Layout, ranks: int, most: int) -> tuple[_Shape, _Shape, int]:
    """
    Return the slab and the process grid with the fewest bytes read, and the elements that are read.

    Of those it is the one with the longest runs in a file without chunks, and then with the fewest slabs.

    :param most: Maximum number of elements of a rank's part.
    """
    shape, old, new = source.shape[source.order], source.unit[source.order], target.unit[target.order]
    if not shape or 0 in shape:
        return tuple(max(1, extent) for extent in shape), (1,) * len(shape), math.prod(shape)
    axes = [_steps(*facts) for facts in zip(shape, new, old, strict=True)]
    while math.prod(map(len, axes)) > _MAX_CUTS:
        axes = [steps[::2] + steps[-1:] if len(steps) > 3 else steps for steps in axes]
    slabs = np.stack([one.ravel() for one in np.meshgrid(*axes, indexing="ij")], axis=1)
    read = np.prod([[_read(*f, int(e)) for e in slabs[:, a]] for a, f in enumerate(zip(shape, old, strict=True))], 0)
    counts = np.prod(-(-np.array(shape) // slabs), 1)
    runs = np.zeros(len(slabs))
    for layout in (source, target):
        if max(layout.unit) == 1:
            full, run = np.ones(len(slabs), bool), np.ones(len(slabs))
            for axis in range(len(shape))[:: 1 if layout.reversed else -1]:
                run, full = np.where(full, run * slabs[:, axis], run), full & (slabs[:, axis] == shape[axis])
            runs += np.minimum(run * layout.dtype.itemsize, layout.min_run)
    best: tuple[tuple[float, ...], int, _Shape] | None = None
    for grid in _grids(ranks, len(shape)):
        local = np.prod(np.minimum(slabs, -(-slabs // (np.array(new) * grid)) * new), 1)
        for number in np.flatnonzero(local <= most):
            cost = (float(read[number]), -float(runs[number]), float(counts[number]), float(local[number]))
            if best is None or cost < best[0]:
                best = cost, int(number), grid
    assert best is not None
    slab = tuple(map(int, slabs[best[1]]))
    return slab, best[2], math.prod(_read(*facts) for facts in zip(shape, old, slab, strict=True))


def _steps(extent: int, unit: int, old: int) -> list[int]:
    """Return extents of slabs along an axis to be compared, in ascending order: multiples of chunks."""
    found = set()
    for base in (unit, math.lcm(unit, old)):
        units, parts = -(-extent // base), 1
        while parts <= units:
            found.add(min(extent, -(-units // parts) * base))
            parts += max(1, parts // 4)
        found.add(min(extent, base))
    return sorted(found)


def _read(extent: int, chunk: int, step: int) -> int:
    """Return the indices along an axis that are read with all slabs: a boundary within a chunk has it read again."""
    inner, whole = -(-extent // step) - 1, extent // chunk * chunk
    in_last = inner - min(inner, whole // step)
    aligned = inner // (chunk // math.gcd(chunk, step))
    return extent + chunk * (inner - aligned - in_last) + extent % chunk * in_last


def _grids(ranks: int, ndim: int) -> list[_Shape]:
    """Return the process grids of all ranks."""
    if ndim == 1:
        return [(ranks,)]
    parts = [one for one in range(1, ranks + 1) if ranks % one == 0]
    return [(one, *rest) for one in parts for rest in _grids(ranks // one, ndim - 1)]
