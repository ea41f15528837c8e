"""Plans from MPI datatypes and from blocks: random ones, equal to what MPI packs and unpacks, and wrong ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from mpi4py import MPI
from random_datatypes import Types, random_datatype
from seeds import seed, some

from dace_redist import Plan, shared_empty
from dace_redist.strategies import STRATEGIES

SEED = seed()
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
    strategy = str(agreed.choice([*STRATEGIES, "Hierarchical"]))
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
    types.close()
    with plan:
        plan(*arguments)
        right = np.array_equal(out, expected)
        out[...] = before
        plan.start(*arguments).wait()
    right = right and np.array_equal(out, expected)
    assert all(comm.allgather(right)), f"trial {trial}, {strategy}, on ranks {comm.allgather(right)}"


@pytest.mark.fuzz
@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[1, 3, 4], full=[2, 5], timeout=300)
def test_random_datatypes(comm):
    for trial in range(some(125)):
        with Types() as types:
            run_trial(comm, trial, types)


def random_blocks(random: np.random.Generator, peers: list[int], counts: list[int]) -> tuple[list[Any], int]:
    """Return blocks with so many elements for each peer, which do not overlap, and the size of their array."""
    blocks, end = [], 3
    for peer, count in zip(peers, counts, strict=True):
        while count > 0:
            shape = [int(n) for n in random.integers(1, 5, size=random.integers(0, 4))]
            while np.prod(shape, dtype=int) > count:
                shape.pop()
            axes = random.permutation(len(shape))
            room = np.array(shape, int) + random.integers(0, 3, size=len(shape))
            strides = np.ones(len(shape), int)
            for inner, outer in zip(axes[::-1][:-1], axes[::-1][1:], strict=True):
                strides[outer] = strides[inner] * room[inner]
            size = int(np.prod(room, dtype=int)) if shape else 1
            sign = np.where(random.integers(3, size=len(shape)) == 0, -1, 1)
            first = end - int(sum(min(0, s) for s in sign * strides * (np.array(shape, int) - 1)))
            blocks.append((peer, first, tuple(shape), tuple((sign * strides).tolist())))
            end += size
            count -= int(np.prod(shape, dtype=int))
    return blocks, end


def elements(blocks: list[Any], peer: int, array: np.ndarray) -> np.ndarray:
    """Return the places of a message's elements, in its order."""
    of_blocks = [
        (offset + np.tensordot(strides, np.indices(counts), 1)).ravel() if counts else np.array([offset])
        for number, offset, counts, strides in blocks
        if number == peer
    ]
    found = np.concatenate([np.empty(0, int), *of_blocks])
    assert np.all((0 <= found) & (found < array.size))
    return found


@pytest.mark.fuzz
@pytest.mark.parametrize("node_ranks", ["0", "2"])
@pytest.mark.mpi(ranks=[1, 3, 4], timeout=200)
def test_random_blocks(comm, monkeypatch, node_ranks):
    monkeypatch.setenv("DACE_REDIST_NODE_RANKS", node_ranks)
    for trial in range(some(40)):
        agreed = np.random.default_rng((SEED, trial))
        own = np.random.default_rng((SEED, trial, comm.rank))
        counts = agreed.choice([0, 0, 1, 7, 60, 3000], size=(comm.size, comm.size))
        strategy, target_dtype = str(agreed.choice([*STRATEGIES])), str(agreed.choice(["f8", "f4", "c16"]))
        ranks = list(range(comm.size))
        sends, source_size = random_blocks(own, ranks, counts[comm.rank].tolist())
        receives, target_size = random_blocks(own, ranks, counts[:, comm.rank].tolist())
        array, out = own.random(source_size), np.full(target_size, -1.0, target_dtype)
        expected = out.copy()
        parts = comm.alltoall([array[elements(sends, peer, array)] for peer in ranks])
        for peer, part in enumerate(parts):
            expected[elements(receives, peer, out)] = 2 * part.astype(target_dtype)
        how = {"strategy": strategy, "target_dtype": target_dtype, "alpha": 2.0}
        with Plan.from_messages(sends, receives, "f8", comm=comm, **how) as plan:
            plan(array, out)
        assert all(comm.allgather(np.array_equal(out, expected))), f"trial {trial}: {how}"


def rows(comm: Any, count: int) -> tuple[list[int], list[int], list[MPI.Datatype]]:
    return [count] * comm.size, [8 * count * rank for rank in range(comm.size)], [MPI.DOUBLE] * comm.size


@pytest.mark.mpi(ranks=[1, 3])
def test_messages_without_elements_may_lie_anywhere(comm):
    distant = [(comm.rank, 1 << 40, (0, 2), (1, 1))]
    with Plan.from_messages(distant, distant, "f8", comm=comm) as plan:
        plan(np.zeros(1), np.zeros(1))


@pytest.mark.mpi(ranks=[2])
def test_arrays_that_do_not_hold_the_messages(comm):
    plan, good = Plan.from_datatypes(rows(comm, 2), rows(comm, 2), comm=comm), np.zeros(4)
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    for array, out, kind, text in (
        (np.zeros(3), good, ValueError, "messages reach bytes 0 to 32 of array, which has bytes 0 to 24"),
        (good, np.zeros(4)[1:], ValueError, "messages reach bytes 0 to 32 of out"),
        (good, None, ValueError, "out is None, but messages reach"),
        (good, frozen, ValueError, "out is read-only"),
        (3, good, TypeError, "array must be an array of NumPy"),
    ):
        with pytest.raises(kind, match=text):
            plan(array, out)
    with plan.start(good, np.zeros(4)), pytest.raises(ValueError, match="under way"):
        plan.free()
    plan.free()
    with pytest.raises(ValueError, match="this plan was freed"):
        plan(good, np.zeros(4))
