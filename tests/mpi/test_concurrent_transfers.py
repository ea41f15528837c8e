"""Started transfers, whatever their ranks do meanwhile; messages joined between nodes; many ranks of a node."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pytest
from cases import OPTIONS
from distributions import rows_to_columns, some_distribution
from launching import launch
from seeds import seed

import dace_redist
from dace_redist import Distribution, RedistributionError, plan, redistribute
from dace_redist.report.trace import Trace

NODE_RANKS = "DACE_REDIST_NODE_RANKS"
NODES = [("0", [*OPTIONS]), ("2", ["Hierarchical"])]
SHORT, MEDIUM, LONG = (48, 96), (450, 768), (1536, 2304)  # 4 KiB, 300 KiB and 3 MiB from each of 3 ranks to each


class Transfer:
    """A plan with its arrays, ordinary or node-shared; rows to columns where the shape is given, else random."""

    def __init__(self, comm, random, strategy, shape=None, op=None) -> None:
        self.shape = shape or tuple(int(n) for n in random.integers(1, [160, 90, 4]))
        if op:
            self.source = self.target = Distribution.replicated(shape, comm.size)
        elif shape:
            self.source, self.target = (Distribution.split(shape, axis, comm.size) for axis in (0, 1))
        else:
            numbers = random.integers(1 << 30, size=2)
            self.source, self.target = (some_distribution(self.shape, comm.size, number) for number in numbers)
        allocate = [np.empty, dace_redist.shared_empty]
        first, second = random.integers(2, size=2)
        self.comm, self.strategy, self.turn, self.op = comm, strategy, 0, op
        self.array = allocate[first](self.source.local_shape(comm.rank))
        self.out = allocate[second](self.target.local_shape(comm.rank))
        self.plan = plan(self.source, self.target, "float64", comm=comm, strategy=strategy, op=op)

    def start(self):
        self.turn += 1
        self.whole = np.arange(float(np.prod(self.shape))).reshape(self.shape) * self.turn
        self.array[...] = self.source.local(self.whole, self.comm.rank)
        self.out[...] = -1
        return self.plan.start(self.array, out=self.out)

    def check(self) -> None:
        expected = self.target.local(self.whole, self.comm.rank) * (self.comm.size if self.op else 1)
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


def free(comm, *transfers):
    comm.Barrier()  # partners may use the arrays of this rank until then
    for transfer in transfers:
        transfer.plan.free()


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
        free(comm, *transfers)
    world.Free()


@pytest.mark.mpi(ranks=[3], full=[2, 5], timeout=200)
@pytest.mark.parametrize(("node_ranks", "strategies"), NODES)
def test_transfers_that_ranks_start_and_wait_for_at_different_times(comm, monkeypatch, node_ranks, strategies):
    """Of two transfers rank 0 starts the second, or each rank waits for another one, before the first has ended."""
    monkeypatch.setenv(NODE_RANKS, node_ranks)
    for strategy in strategies:
        random = np.random.default_rng(comm.size)
        for shape in (SHORT, MEDIUM, LONG):
            first, second = (Transfer(comm, random, name, shape) for name in ("Hierarchical", strategy))
            for turn in range(3):
                one = first.start()
                if turn == 2 and comm.rank > 0:
                    one.wait()
                other = second.start()
                for request in (one, other) if (turn + comm.rank) % 2 else (other, one):
                    if not request.done:
                        request.wait()
                first.check()
                second.check()
            free(comm, first, second)


@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[3], full=[2, 5], timeout=200)
@pytest.mark.parametrize(("node_ranks", "strategies"), NODES)
def test_a_rank_blocked_until_another_has_waited(comm, monkeypatch, node_ranks, strategies):
    """By MPI, between start and wait. Sums wait for no rank only where they stay in node-shared memory."""
    monkeypatch.setenv(NODE_RANKS, node_ranks)
    for strategy in strategies:
        random = np.random.default_rng(comm.size)
        on_node = strategy == "Hierarchical" and node_ranks == "0"
        for shape, op in ((SHORT, None), (MEDIUM, None), (LONG, None), ((256, 512), "sum"))[: 3 + on_node]:
            transfer = Transfer(comm, random, strategy, shape, op)
            for _ in range(2):
                request = transfer.start()
                if comm.rank == 0:
                    comm.Recv(np.empty(1), 1)
                request.wait()
                if comm.rank == 1:
                    comm.Send(np.empty(1), 0)
                transfer.check()
            free(comm, transfer)


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[36], full=[64], timeout=240)
def test_many_ranks_on_a_node(comm):
    """Three arrays in turn, of one of which every rank sends a part to every other one."""
    shared = np.random.default_rng([seed(1), comm.size])
    for strategy in OPTIONS:
        transfers = [Transfer(comm, shared, strategy, shape) for shape in (None, None, (comm.size, 2 * comm.size))]
        for turn in range(6):
            transfer = transfers[turn % 3]
            transfer.start().wait()
            transfer.check()
        free(comm, *transfers)


@pytest.mark.mpi(ranks=[5], full=[2, 7], timeout=200)
@pytest.mark.parametrize("node_ranks", [1, 2, 3])
def test_exchanges_one_after_another(comm, monkeypatch, node_ranks):
    """A rank that is slow to read or to write finds what belongs to its exchange."""
    monkeypatch.setenv(NODE_RANKS, str(node_ranks))
    source, target, A, wanted = rows_to_columns(comm, (60, 84))
    for options in ({}, {"max_message_bytes": 1000}, {"chunk_bytes": 1000}):
        joined = {"strategy": "Hierarchical", "join_bytes": 4096, **options}
        with plan(source, target, "float64", comm=comm, **joined) as made:
            for turn in range(30):
                if turn % comm.size == comm.rank:
                    np.sort(np.random.default_rng(turn).random(10_000))
                np.testing.assert_array_equal(made(A + turn), wanted + turn)


#: One call each, with messages of 48 and of 2,400 bytes.
SHORT_AND_LONG = """
import numpy as np
from mpi4py import MPI
from dace_redist import Distribution, plan

comm = MPI.COMM_WORLD
for columns in (20, 1000):
    source, target = Distribution((30, columns), (10, 1)), Distribution((30, columns), (1, 10))
    whole = np.random.default_rng(1).random((30, columns))
    for options in ({"join_bytes": 4096}, {}):
        with plan(source, target, "float64", comm=comm, strategy="Hierarchical", **options) as made:
            np.testing.assert_array_equal(made(source.local(whole, comm.rank)), target.local(whole, comm.rank))
"""


def test_short_messages_are_sent_as_one(tmp_path):
    """Of five nodes of two ranks: one message to each other node, else eight of each rank."""
    command = [sys.executable, "-m", "mpi4py", "-c", SHORT_AND_LONG]
    code, printed = launch(10, command, 200, environment={NODE_RANKS: "2", "DACE_REDIST_TRACE": str(tmp_path)})
    assert code == 0, printed
    sent = Counter(span.nbytes for span in Trace(tmp_path).spans if span.kind == "send")
    padded = 2 * (2 * 48 + 16)  # the parts of each sender begin a cache line
    assert sent == {padded: 2 * 20, 4 * 2400: 20, 2400: 80}


@pytest.mark.mpi(ranks=[5])
def test_variable_that_is_wrong(comm, monkeypatch):
    """On one rank only, too: every rank raises, and a right call works afterwards."""
    source, target, A, wanted = rows_to_columns(comm, (60, 84))
    plan(source, target, "float64", comm=comm).free()  # from then on, facts of the communicator are known
    for on_last, on_others, text in (
        ("two", "two", 'DACE_REDIST_NODE_RANKS: expected a number of ranks >= 0 .0: all ranks of a node., got "two"'),
        ("2", "0", "DACE_REDIST_NODE_RANKS: 0 on rank 0 and 2 on rank 2"),
        ("-2", "1", "DACE_REDIST_NODE_RANKS: expected a number of ranks"),
    ):
        monkeypatch.setenv(NODE_RANKS, on_last if comm.rank == 2 else on_others)
        for strategy in ("Hierarchical", "Auto"):
            with pytest.raises((RedistributionError, ValueError), match=text):
                plan(source, target, "float64", comm=comm, strategy=strategy)
    monkeypatch.delenv(NODE_RANKS)
    np.testing.assert_array_equal(redistribute(A, source, target, comm=comm), wanted)


PROGRAM = """
import numpy as np
from mpi4py import MPI
import dace_redist
from dace_redist import Distribution

comm = MPI.COMM_WORLD
rows, columns = Distribution((64, 64), (2,)), Distribution((64, 64), (1, 2))
whole = Distribution((64, 64), (2,), dims=(None, None))
A, B, partial = (np.ones(side.local_shape(comm.rank)) for side in (rows, columns, whole))

def in_a_call():
    dace_redist.redistribute(A, rows, columns, comm=comm, out=B)

def in_a_wait():
    with dace_redist.plan(rows, columns, "float64", comm=comm) as plan:
        plan.start(A, out=B).wait()

def in_a_list():
    dace_redist.redistribute([A, A], [rows, rows], [columns, columns], comm=comm)

def in_a_sum():
    dace_redist.redistribute(partial, whole, columns, comm=comm, op="sum", out=B)

for move in (in_a_call, in_a_wait, in_a_list, in_a_sum):
    message = np.full(1 << 20, float(comm.rank))
    move()  # what is made once is there
    if comm.rank == 0:
        request = comm.Isend(message, 1)
        move()
        request.Wait()
    else:
        comm.Recv(message, 0)
        assert not message.any()
        move()
    if comm.rank == 0:
        print(move.__name__, "done", flush=True)
"""


def test_messages_of_the_program_arrive_while_a_rank_waits():
    # with Open MPI's own shared memory and cross-memory reads the receiver copies without the sender
    command = [sys.executable, "-m", "mpi4py", "-c", PROGRAM]
    code, output = launch(2, command, timeout=60, environment={"OMPI_MCA_btl": "tcp,self"})
    assert code == 0, output
    assert output.split() == "in_a_call done in_a_wait done in_a_list done in_a_sum done".split(), output
