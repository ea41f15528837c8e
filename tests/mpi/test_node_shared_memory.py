"""Arrays that NumPy itself allocates in node-shared memory: as any others, and found where they are moved."""

from __future__ import annotations

import contextlib
import contextvars
import pickle
import random
import subprocess
import sys
import threading

import numpy as np
import pytest

from dace_redist import Distribution, node_shared_memory, plan, redistribute
from dace_redist.redistribution.shared_arrays import LEAST_SHARED_BYTES, is_shared

LEAST = LEAST_SHARED_BYTES // 8  # elements of float64


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


FORK = """
import os, numpy as np, dace_redist
dace_redist.node_shared_memory(True)
mine = np.full(10**6, 1.0)
kept = [np.full(9000 + i, 3.0) for i in range(20)]
child = os.fork()
if child == 0:
    assert (mine == 1).all()
    mine[...] = 8
    del kept[::2]  # the memory is the parent's
    new = np.full(10**6, 7.0)
    if os.fork() == 0:  # a child of the child
        mine[:10] = new[:10] = 6
        del mine, new, kept
        os._exit(0)
    assert os.wait()[1] == 0 and (new[:10] == 6).all() and (new[10:] == 7).all()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert (mine[:10] == 6).all() and (mine[10:] == 8).all() and all((one == 3).all() for one in kept)
"""


def test_a_forked_process_shares_arrays_with_its_parent():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.mpi(ranks=[4])
def test_arrays_are_moved_wherever_they_lie(comm):
    """Slices and arrays that come and go, with the memory and sizes of earlier ones, on some ranks ordinary."""
    shape = (200, 903)
    whole = np.random.default_rng(2).standard_normal(shape)
    rows, columns = Distribution(shape, (4, 1)), Distribution(shape, (1, 4))
    here, there = rows.local(whole, comm.rank), columns.local(whole, comm.rank)
    for strategy in ("Auto", "Shared", "Hierarchical"):
        with plan(rows, columns, comm=comm, strategy=strategy) as made:
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
