"""Random nested MPI datatypes of a given size, whose elements do not overlap. Start reading at: random_datatype."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

_NAMED = (MPI.BYTE, MPI.SHORT, MPI.INT, MPI.DOUBLE, MPI.C_DOUBLE_COMPLEX, MPI.CHAR, MPI.FLOAT)

Random = np.random.Generator


class Types(contextlib.ExitStack):
    """Frees types at the end, or when it is closed."""

    def keep(self, made: MPI.Datatype) -> MPI.Datatype:
        self.callback(made.Free)
        return made


@functools.cache
def _factors(number: int) -> list[int]:
    return [factor for factor in range(1, number + 1) if number % factor == 0]


def _factor(random: Random, number: int) -> int:
    return int(random.choice(_factors(number)))


def _lengths(random: Random, number: int) -> list[int]:
    """Cut a number into up to 4 lengths, some of which may be 0."""
    cuts = np.sort(random.integers(0, number + 1, size=random.integers(0, 4)))
    return np.diff([0, *cuts, number]).tolist()


def _places(random: Random, lengths: list[int], step: int) -> list[int]:
    """Return starts of blocks that do not overlap, in random order, multiples of ``step``; some negative."""
    order, place, starts = random.permutation(len(lengths)), -step * int(random.integers(0, 3)), [0] * len(lengths)
    for number in order:
        starts[number] = place
        place += lengths[number] + step * int(random.integers(0, 3))
    return starts


def _vector(random: Random, types: Types, inner: MPI.Datatype, count: int) -> MPI.Datatype:
    length = _factor(random, count)
    blocks, stride = count // length, length + int(random.integers(0, 3))
    if random.integers(2):
        return inner.Create_vector(blocks, length, stride)
    if random.integers(3) == 0:
        stride = -stride - 1  # Open MPI (4.1.4) takes bytes of stride -1 in ascending order
    return inner.Create_hvector(blocks, length, stride * inner.extent)


def _indexed(random: Random, types: Types, inner: MPI.Datatype, count: int) -> MPI.Datatype:
    lengths, extent = _lengths(random, count), inner.extent
    if random.integers(2):
        return inner.Create_indexed(lengths, _places(random, lengths, 1))
    return inner.Create_hindexed(lengths, _places(random, [n * extent for n in lengths], extent))


def _indexed_block(random: Random, types: Types, inner: MPI.Datatype, count: int) -> MPI.Datatype:
    length = _factor(random, count)
    starts = _places(random, [length] * (count // length), 1)
    if random.integers(2):
        return inner.Create_indexed_block(length, starts)
    return inner.Create_hindexed_block(length, [start * inner.extent for start in starts])


def _subarray(random: Random, types: Types, inner: MPI.Datatype, count: int) -> MPI.Datatype:
    rows = _factor(random, count)
    shape = [rows, _factor(random, count // rows)]
    shape.append(count // (shape[0] * shape[1]))
    around = random.integers(0, 3, size=(2, 3))
    sizes = [int(n + sum(around[:, axis])) for axis, n in enumerate(shape)]
    order = MPI.ORDER_C if random.integers(2) else MPI.ORDER_FORTRAN
    return inner.Create_subarray(sizes, shape, around[0].tolist(), order)


_IS_INTEL = "Intel" in MPI.Get_library_version()  # 2021.18 packs a darray in Fortran order as in C order


def _darray(random: Random, types: Types, inner: MPI.Datatype, count: int) -> MPI.Datatype:
    """Make this rank's part: rows by blocks, of which it has a whole one, and columns in cycles, likewise."""
    rows, parts = _factor(random, count), [int(n) for n in random.integers(1, 4, size=2)]
    columns = count // rows
    cycle = _factor(random, columns)
    order = MPI.ORDER_C if random.integers(2) or _IS_INTEL else MPI.ORDER_FORTRAN
    kinds = [MPI.DISTRIBUTE_BLOCK, MPI.DISTRIBUTE_CYCLIC]
    sizes, arguments = [rows * parts[0], columns * parts[1]], [MPI.DISTRIBUTE_DFLT_DARG, cycle]
    rank = int(random.integers(parts[0] * parts[1]))
    return inner.Create_darray(parts[0] * parts[1], rank, sizes, kinds, arguments, parts, order)


def _struct(random: Random, types: Types, nbytes: int, depth: int) -> MPI.Datatype:
    parts = [random_datatype(random, types, n, depth - 1) for n in _lengths(random, nbytes) if n > 0]
    spans = [max(part.extent, part.true_extent) + 16 for part in parts]
    starts = [start - part.true_lb for start, part in zip(_places(random, spans, 8), parts, strict=True)]
    return MPI.Datatype.Create_struct([1] * len(parts), starts, parts)


_WAYS: tuple[Callable[[Random, Types, MPI.Datatype, int], MPI.Datatype], ...] = (
    lambda random, types, inner, count: inner.Create_contiguous(count),
    *(_vector, _vector, _indexed, _indexed_block, _subarray, _subarray, _darray),
)


def _spaced(random: Random, types: Types, made: MPI.Datatype) -> MPI.Datatype:
    """Return a type that may be repeated without overlap."""
    extra = 8 * int(random.integers(0, 3))
    if made.extent >= made.true_extent and random.integers(3):
        return made
    return types.keep(made.Create_resized(made.true_lb - extra, max(made.true_extent, 1) + 2 * extra))


def random_datatype(random: Random, types: Types, nbytes: int, depth: int = 3) -> MPI.Datatype:
    """Return a committed type of ``nbytes`` bytes, at least 1."""
    if depth == 0 or nbytes == 1:
        named = [one for one in _NAMED if nbytes % one.size == 0]
        one = named[int(random.integers(len(named)))]
        made = one.Create_contiguous(nbytes // one.size)
    elif random.integers(4) == 0:
        made = _struct(random, types, nbytes, depth)
    else:
        size = _factor(random, nbytes)
        inner = _spaced(random, types, random_datatype(random, types, size, depth - 1))
        made = _WAYS[int(random.integers(len(_WAYS)))](random, types, inner, nbytes // size)
    if random.integers(8) == 0:
        made = types.keep(made).Dup()
    return types.keep(made.Commit())
