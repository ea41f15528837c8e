"""Transfers of several plans among MPI traffic of the program, in any order; and nodes of 20 and more ranks."""

from __future__ import annotations

import numpy as np
import pytest
from cases import OPTIONS
from seeds import seed

import dace_redist
from dace_redist import Distribution, TiledDistribution, plan


def random_distribution(random: np.random.Generator, shape: tuple[int, ...], ranks: int) -> object:
    """Blocks, block-cyclic, replicated or tiled."""
    kind = random.integers(4)
    if kind == 0:
        tile = tuple(int(random.integers(max(1, extent // 5), extent + 1)) for extent in shape)
        tiles = tuple(-(-n // t) for n, t in zip(shape, tile, strict=True))
        return TiledDistribution(shape, tile, random.integers(0, ranks, tiles))
    grid = [0] * len(shape)
    left = ranks
    for axis in random.permutation(len(shape)):
        grid[axis] = int(random.integers(1, left + 1))
        left //= grid[axis]
    block = None if kind == 1 else [int(random.integers(1, extent + 1)) for extent in shape]
    used = random.permutation(ranks)[: int(np.prod(grid))]
    return Distribution(shape, tuple(grid), block=block, ranks=used.tolist())


class Transfer:
    """A plan with its arrays, ordinary or node-shared."""

    def __init__(self, comm, random: np.random.Generator, strategy: str) -> None:
        self.shape = tuple(int(n) for n in random.integers(1, [160, 90, 4]))
        self.source, self.target = (random_distribution(random, self.shape, comm.size) for _ in range(2))
        allocate = [np.empty, dace_redist.shared_empty]
        first, second = random.integers(2, size=2)
        self.comm, self.strategy, self.turn = comm, strategy, 0
        self.array = allocate[first](self.source.local_shape(comm.rank))
        self.out = allocate[second](self.target.local_shape(comm.rank))
        self.plan = plan(self.source, self.target, "float64", comm=comm, strategy=strategy)

    def start(self):
        self.turn += 1
        self.whole = np.arange(float(np.prod(self.shape))).reshape(self.shape) * self.turn
        self.array[...] = self.source.local(self.whole, self.comm.rank)
        self.out[...] = -1
        return self.plan.start(self.array, out=self.out)

    def check(self) -> None:
        expected = self.target.local(self.whole, self.comm.rank)
        np.testing.assert_array_equal(self.out, expected, f"{self.strategy}, turn {self.turn}")


class Traffic:
    """Messages and collectives of the program, on a communicator of its own."""

    def __init__(self, comm) -> None:
        self.comm, self.requests = comm, []

    def step(self, shared: np.random.Generator, own: np.random.Generator) -> None:
        """A step that all ranks draw; how long each waits before it is a matter of its own."""
        comm, kind = self.comm, shared.integers(5)
        message = np.full(int(shared.choice([1, 500, 200_000])), float(comm.rank))
        shift = int(shared.integers(1, comm.size))
        to, origin = (comm.rank + shift) % comm.size, (comm.rank - shift) % comm.size
        for _ in range(int(own.integers(3))):
            np.sum(np.ones(10_000))
        if kind == 0:
            comm.Barrier()
        elif kind == 1:
            assert comm.allreduce(comm.rank) == comm.size * (comm.size - 1) // 2
        elif kind == 2:
            received = np.empty_like(message)
            comm.Sendrecv(message, to, recvbuf=received, source=origin)
            assert (received == origin).all()
        elif kind == 3:
            self.requests.append((comm.Isend(message, to, tag=7), message))
            received = np.empty_like(message)
            comm.Recv(received, origin, tag=7)
            assert (received == origin).all()
        else:
            root = int(shared.integers(comm.size))
            comm.Bcast(message, root)
            assert (message == root).all()

    def end(self) -> None:
        for request, _ in self.requests:
            request.Wait()


@pytest.mark.fuzz
@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[2, 5], full=[3], timeout=200)
@pytest.mark.parametrize("strategy", OPTIONS)
def test_waits_in_random_order_among_traffic_of_the_program(comm, strategy):
    shared, own = np.random.default_rng([seed(1), comm.size]), np.random.default_rng([seed(1), comm.rank])
    world = comm.Dup()
    for _ in range(2):
        transfers = [Transfer(world, shared, strategy) for _ in range(3)]
        traffic = Traffic(comm)
        for _ in range(6):
            requests = []
            for number in shared.permutation(3)[: shared.integers(1, 4)]:
                requests.append((transfers[number], transfers[number].start()))
                traffic.step(shared, own)
            steps = int(shared.integers(1, 4))
            for _ in range(steps):
                traffic.step(shared, own)
                requests[own.integers(len(requests))][1].test()
            for at in own.permutation(len(requests)):  # each rank in an order of its own
                transfer, request = requests[at]
                request.wait()
                transfer.check()
        traffic.end()
        comm.Barrier()  # partners may use the arrays of this rank until then
        for transfer in transfers:
            transfer.plan.free()
    world.Free()


@pytest.mark.full
@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[20], timeout=240)
def test_twenty_ranks_on_a_node(comm):
    """Three arrays in turn, by every strategy."""
    shared = np.random.default_rng([seed(1), comm.size])
    for strategy in OPTIONS:
        transfers = [Transfer(comm, shared, strategy) for _ in range(3)]
        for turn in range(6):
            transfer = transfers[turn % 3]
            transfer.start().wait()
            transfer.check()
        comm.Barrier()
        for transfer in transfers:
            transfer.plan.free()
