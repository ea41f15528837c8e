"""Plans from MPI datatypes and from blocks: random ones, equal to what MPI packs and unpacks, and wrong ones."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
import pytest
from mpi4py import MPI
from random_datatypes import Types, random_datatype, types_freed

from dace_redist import Plan, RedistributionError, shared_empty
from dace_redist.strategies import host_strategies

SEED = int(os.environ.get("DACE_REDIST_SEED", "0"))
MAX_EXTENT = 1 << 20
SIZES = (0, 1, 6, 16, 60, 96, 97, 720, 1536, 24000, 98304)


class Side(NamedTuple):
    """One side of an ``Alltoallw``, by rank, and the bytes from its buffer's address on that it needs."""

    counts: list[int]
    displacements: list[int]
    types: list[MPI.Datatype]
    nbytes: int

    def packed(self, comm: Any, buffer: Any) -> list[bytes]:
        """Pack what is for each rank, by MPI."""
        parts = []
        for count, displacement, datatype in zip(self.counts, self.displacements, self.types, strict=True):
            room = bytearray(datatype.Pack_size(count, comm) if count else 0)
            if count:
                room = room[: datatype.Pack(_elements(buffer, displacement, count, datatype), room, 0, comm)]
            parts.append(bytes(room))
        return parts

    def unpack(self, comm: Any, parts: list[bytes], buffer: Any) -> None:
        """Unpack what each rank sent, by MPI."""
        for part, count, displacement, datatype in zip(parts, self.counts, self.displacements, self.types, strict=True):
            if count:
                datatype.Unpack(part, 0, _elements(buffer, displacement, count, datatype), comm)


def _elements(buffer: Any, displacement: int, count: int, datatype: MPI.Datatype) -> MPI.memory:
    """Return memory from a displacement on, from whose length mpi4py takes the count."""
    return MPI.memory.fromaddress(buffer.ctypes.data + displacement, count * datatype.extent)


def random_side(random: np.random.Generator, types: Types, sizes: list[int], odd: bool) -> Side:
    """Return datatypes of these sizes, which may lie anywhere; ``odd``: with gaps that MPI does not tell."""
    counts, displacements, made, end = [], [], [], 0
    for nbytes in sizes:
        count = int(random.choice([n for n in (1, 2, 3) if nbytes % n == 0])) if nbytes else 0
        datatype = MPI.DATATYPE_NULL
        if nbytes:
            if odd and nbytes // count % 6 == 0:
                datatype = types.keep(MPI.SHORT_INT.Create_contiguous(nbytes // count // 6).Commit())
            else:
                datatype = random_datatype(random, types, nbytes // count)
                while datatype.true_extent > MAX_EXTENT:
                    datatype = random_datatype(random, types, nbytes // count)
            if datatype.extent < datatype.true_extent:
                datatype = types.keep(datatype.Create_resized(datatype.true_lb, datatype.true_extent).Commit())
        counts.append(count)
        displacements.append(end + 8 - datatype.true_lb if nbytes else 1 << 30)
        made.append(datatype)
        if nbytes:
            end += 8 + (count - 1) * datatype.extent + datatype.true_extent + 8 * int(random.integers(0, 3))
    return Side(counts, displacements, made, end + 8)


def absolute(side: Side, types: Types, buffer: Any) -> Side:
    """Return the same side for MPI_BOTTOM."""
    made = [
        types.keep(datatype.Create_hindexed([1], [buffer.ctypes.data + displacement]).Commit()) if count == 1 else None
        for count, displacement, datatype in zip(side.counts, side.displacements, side.types, strict=True)
    ]
    for rank, count in enumerate(side.counts):
        if count > 1:
            many = types.keep(side.types[rank].Create_contiguous(count).Commit())
            made[rank] = types.keep(many.Create_hindexed([1], [buffer.ctypes.data + side.displacements[rank]]).Commit())
    used = [MPI.DATATYPE_NULL if datatype is None else datatype for datatype in made]
    return Side([int(count > 0) for count in side.counts], [0] * len(used), used, side.nbytes)


def new_buffer(random: np.random.Generator, nbytes: int) -> Any:
    buffer = shared_empty((nbytes,), "u1") if random.integers(2) else np.empty(nbytes, "u1")
    buffer[...] = random.integers(0, 256, size=nbytes, dtype="u1")
    return buffer


def run_trial(comm: Any, trial: int, types: Types) -> None:
    agreed = np.random.default_rng((SEED, trial))
    own = np.random.default_rng((SEED, trial, comm.rank))
    sizes = agreed.choice(SIZES, size=(comm.size, comm.size))
    odd_rank, odd_side = agreed.integers(2 * comm.size), agreed.integers(3)
    strategy = str(agreed.choice([*host_strategies(), "Hierarchical"]))
    source = random_side(own, types, sizes[comm.rank].tolist(), odd_rank == comm.rank and odd_side != 1)
    target = random_side(own, types, sizes[:, comm.rank].tolist(), odd_rank == comm.rank and odd_side != 0)
    array, out = new_buffer(own, source.nbytes), new_buffer(own, target.nbytes)
    expected, before = out.copy(), out.copy()
    target.unpack(comm, comm.alltoall(source.packed(comm, array)), expected)
    arguments: list[Any] = [array, out]
    sides = [source, target]
    for number in (0, 1):
        if own.integers(4) == 0:
            sides[number] = absolute(sides[number], types, arguments[number])
            arguments[number] = MPI.BOTTOM
    plan = Plan.from_datatypes(*(side[:3] for side in sides), comm=comm, strategy=strategy)
    types.free()
    with plan:
        plan(*arguments)
        right = np.array_equal(out, expected)
        out[...] = before
        plan.start(*arguments).wait()
    right = right and np.array_equal(out, expected)
    assert all(comm.allgather(right)), f"trial {trial}, {strategy}, on ranks {comm.allgather(right)}"


@pytest.mark.fuzz
@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[1, 2, 3, 4, 5], timeout=300)
def test_random_datatypes(comm):
    for trial in range(125):
        with types_freed() as types:
            run_trial(comm, trial, types)
