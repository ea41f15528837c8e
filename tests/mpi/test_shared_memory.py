"""Arrays in node-shared memory: allocated, found wherever they lie, written straight into; and without such memory."""

from __future__ import annotations

import contextlib
import contextvars
import os
import pickle
import random
import shutil
import subprocess
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest
from builds import built
from distributions import rows_to_columns
from launching import launch

import dace_redist
from dace_redist import Distribution, node_shared_memory, plan, redistribute
from dace_redist._core import is_shared, min_shared_bytes

ROWS, COLUMNS = Distribution((96, 200), (4, 1)), Distribution((96, 200), (1, 4))
NO_SHARED_MEMORY = "DACE_REDIST_SHARED_BYTES"


def mappings() -> int:
    with open("/proc/self/maps") as lines:
        return sum("memfd:dace-redist-arena" in line for line in lines)


@pytest.mark.parametrize(
    "call, kind, said",
    [
        (lambda: dace_redist.shared_empty((1, 3), object), TypeError, "has no fixed size"),  # pointers to nothing
        (lambda: dace_redist.shared_empty(3, "floot"), TypeError, "unknown dtype 'floot'"),
        (lambda: dace_redist.shared_empty((2.7, 3)), TypeError, r"shape\[0\] must be an integer, got 2.7"),
        (lambda: dace_redist.shared_empty((-1, 3)), ValueError, "extents must be 0 or more"),
        (lambda: node_shared_memory("off"), TypeError, "on must be True or False, got 'off'"),
    ],
)
def test_wrong_arguments(call, kind, said):
    with pytest.raises(kind, match=said):
        call()


def test_too_little_is_said_and_ordinary_memory_taken(monkeypatch):
    monkeypatch.setenv(NO_SHARED_MEMORY, "1000")
    before = mappings()
    with pytest.warns(RuntimeWarning, match=r"cannot allocate \d+ bytes .* 1000 bytes are available"):
        array = dace_redist.shared_empty((10, 100))
    assert array.shape == (10, 100) and mappings() <= before
    monkeypatch.setenv(NO_SHARED_MEMORY, "much")
    with pytest.warns(RuntimeWarning, match='expected a number of bytes >= 0, got "much"'):
        dace_redist.shared_empty((10, 100))


WITHOUT = """
import os, sys
import numpy as np
from mpi4py import MPI
import dace_redist
from dace_redist import Distribution
comm, poor = MPI.COMM_WORLD, int(sys.argv[1])
if comm.rank == poor:
    os.environ["DACE_REDIST_SHARED_BYTES"] = sys.argv[2]
source, target = Distribution((40, 60), (comm.size, 1)), Distribution((40, 60), (1, comm.size))
tensor = np.arange(2400.0).reshape(40, 60)
partial = Distribution((40, 60), (comm.size,), dims=(None, None))
for options in ({}, {"strategy": "Hierarchical", "join_bytes": 4096}):
    for _ in range(2):
        got = dace_redist.redistribute(source.local(tensor, comm.rank), source, target, **options)
        assert np.array_equal(got, target.local(tensor, comm.rank))
        got = dace_redist.redistribute(tensor, partial, target, op="sum", **options)
        assert np.array_equal(got, target.local(comm.size * tensor, comm.rank))
here = source.local(tensor, comm.rank)
for got in dace_redist.redistribute([here] * 2, [source] * 2, [target] * 2):
    assert np.array_equal(got, target.local(tensor, comm.rank))
print("moved", flush=True)
"""


@pytest.mark.parametrize(
    ("ranks", "poor", "nbytes", "node_ranks", "end"),
    [
        (3, 2, 0, (), "move over MPI"),
        (3, 1, 100, (), "move over MPI"),
        (5, 4, 0, ("2",), "move over MPI"),
        # enough for the rings of its node, and not for what it carries between nodes:
        (5, 4, 5000, ("2",), "short messages between nodes are not joined"),
    ],
)
def test_too_little_shared_memory_on_one_rank(ranks: int, poor: int, nbytes: int, node_ranks: tuple[str], end: str):
    """All messages go over MPI, one by one, and one line says so, with the rank that is short and the reason."""
    command = [sys.executable, "-m", "mpi4py", "-c", WITHOUT, str(poor), str(nbytes), *node_ranks]
    environment = {"DACE_REDIST_NODE_RANKS": node_ranks[0]} if node_ranks else {}
    code, output = launch(ranks, command, timeout=200, environment=environment)
    assert code == 0 and output.count("moved") == ranks, output
    lines = [line for line in output.splitlines() if "no node-shared memory" in line]
    reason = f" {nbytes} bytes are available" if nbytes else f"{NO_SHARED_MEMORY} is 0"
    assert len(lines) == 1 and f"(rank {poor}: " in lines[0] and reason in lines[0], output
    assert lines[0].endswith(end), output


def test_user_namespace_per_rank():
    """As of a container per rank: the kernel lets no rank open another's memory."""
    alone = ["unshare", "--user", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("needs unshare, and user namespaces that this user may make")
    command = [*alone, sys.executable, "-m", "mpi4py", "-c", WITHOUT, "-1", ""]
    code, output = launch(3, command, timeout=200)
    assert code == 0 and output.count("moved") == 3, output
    lines = [line for line in output.splitlines() if "no node-shared memory" in line]
    assert len(lines) == 1 and "PID or user namespaces" in lines[0] and lines[0].endswith("move over MPI"), output


def transients_sdfg() -> Any:
    """A -> T -> U -> B, with T and U of the program itself."""
    from sdfgs import add_move, with_arrays

    from dace_redist.library_nodes import Redistribute

    sdfg = with_arrays("transients", "TU", A=(24, 200), T=(96, 50), U=(24, 200), B=(96, 50))
    state = sdfg.add_state("first", is_start_block=True)
    for number, (source, target) in enumerate(("AT", "TU", "UB")):
        ends = (COLUMNS, ROWS) if number == 1 else (ROWS, COLUMNS)
        add_move(state, Redistribute(source + target, *ends, "Hierarchical"), source, target)
        state = sdfg.add_state_after(state)
    return dace_redist.transformations.place_in_shared_memory(sdfg)


@pytest.mark.compile
@pytest.mark.dace
@pytest.mark.mpi(ranks=4, timeout=200)
def test_transients_of_a_program(comm):
    program = built(comm, "transients", transients_sdfg)
    _, _, here, there = rows_to_columns(comm, ROWS.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            out = np.zeros_like(there)
            program(A=here.copy(), B=out)
            assert np.array_equal(out, there)
    assert sum(comm.allgather(mappings())) >= 4 * 2


def test_arrays_of_many_sizes_leave_few_files():
    def files() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = files()
    for rows in range(100, 400):
        dace_redist.shared_empty((rows, 64))
    assert files() - before <= 40


@pytest.mark.mpi(ranks=4, timeout=200)
def test_results_lie_there(comm):
    for shape in ((96, 200), (256, 4096)):
        rows, columns, here, there = rows_to_columns(comm, shape)
        kept = [redistribute(here, rows, columns, comm=comm, strategy="Hierarchical") for _ in range(3)]
        assert all(np.array_equal(result, there) for result in kept)
    assert all(map(is_shared, kept))


LEAST = min_shared_bytes // 8  # elements of float64


def test_arrays_of_that_size_in_this_context():
    before = np.ones(LEAST)
    with node_shared_memory():
        made = [np.empty(LEAST), np.zeros((2, LEAST)), np.arange(LEAST) + 1.0, before.copy(), np.array([before])]
        assert all(map(is_shared, made)) and not is_shared(np.empty(LEAST - 1)) and not is_shared(before)
        assert all(map(is_shared, (made[1][1], made[0][5:9], made[0][::-2], made[1].T, made[3].view("u1"))))
        assert is_shared(memoryview(made[0]).obj) and not is_shared(None) and not is_shared([1.0])
        assert not made[1].any() and (made[3] == 1).all() and made[2][-1] == LEAST
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(is_shared(np.empty(LEAST))))
        thread.start()
        thread.join()
        assert elsewhere == [False] and not contextvars.Context().run(lambda: is_shared(np.empty(LEAST)))
        with node_shared_memory():
            pass
        assert is_shared(np.empty(LEAST))
    assert not is_shared(np.empty(LEAST)) and is_shared(made[0])
    with pytest.raises(KeyError), node_shared_memory():
        raise KeyError
    assert not is_shared(np.empty(LEAST))
    for on in (True, True, False):
        assert node_shared_memory(on) is None
        assert is_shared(np.empty(LEAST)) == on


def test_resized_pickled_and_freed_in_any_order():
    draw, arrays = random.Random(4), []
    for step in range(400):
        with node_shared_memory() if step % 3 else contextlib.nullcontext():
            arrays.append(np.full(draw.choice([1, LEAST // 2, LEAST, 3 * LEAST]), step, float))
        if step % 2:
            array = arrays[draw.randrange(len(arrays))]
            size, value = array.size, array[0]
            array.resize(draw.choice([1, LEAST, 2 * LEAST]), refcheck=False)
            kept = min(size, array.size)
            assert (array[:kept] == value).all() and not array[kept:].any()
            array[...] = value
        if len(arrays) > 9:
            gone = arrays.pop(draw.randrange(len(arrays)))
            assert (gone == gone[0]).all()
    with node_shared_memory():
        grown = np.fromiter((float(i) for i in range(3 * LEAST)), float)
        again = pickle.loads(pickle.dumps(grown))
    assert is_shared(grown) and grown[-1] == 3 * LEAST - 1 and np.array_equal(again, grown)


@pytest.mark.mpi(ranks=[4])
def test_arrays_are_moved_wherever_they_lie(comm):
    """Slices and arrays that come and go, with the memory and sizes of earlier ones, on some ranks ordinary."""
    rows, columns, here, there = rows_to_columns(comm, (200, 903))
    for strategy in ("Auto", "Hierarchical"):
        with plan(rows, columns, "float64", comm=comm, strategy=strategy) as made:
            for turn in range(5):
                node_shared_memory(turn % 2 == 0 or comm.rank % 3 != turn % 3)
                A, B = here.copy(), np.zeros((210, 2 * there.shape[1]))
                out = B[7:207, turn % 2 :: 2]
                assert made(A, out=out) is out
                np.testing.assert_array_equal(out, there)
                assert not np.delete(B[:, turn % 2 :: 2], slice(7, 207), 0).any() and not B[:, 1 - turn % 2 :: 2].any()
                A.resize((60, 903), refcheck=False)
                A[5:55] = here
                np.testing.assert_array_equal(redistribute(A[5:55], rows, columns, comm=comm), there)
    node_shared_memory(False)
