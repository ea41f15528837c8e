"""Transfers that are started: what their arrays and their plan may be used for meanwhile."""

from __future__ import annotations

import queue
import sys
import threading
import warnings

import numpy as np
import pytest

from dace_redist import Distribution, RedistributionError, plan

SHAPE = (120, 90)


def pair(ranks):
    return Distribution(SHAPE, (ranks, 1)), Distribution(SHAPE, (1, ranks))


@pytest.mark.mpi(ranks=[2])
def test_misuse(comm):
    source, target = pair(comm.size)
    A = np.ones(source.local_shape(comm.rank))
    made = plan(source, target, "float64", comm=comm, strategy="Pack")
    with pytest.raises(ValueError, match="progress must be one of calls, thread, got 'magic'"):
        made.start(A, progress="magic")
    out = np.empty(target.local_shape(comm.rank))
    request = made.start(A, out=out)
    assert not A.flags.writeable and not out.flags.writeable
    for misuse in (lambda: made(A), lambda: made.start(A), made.free):
        with pytest.raises(ValueError, match="a transfer of this plan is under way: wait for it first"):
            misuse()
    with pytest.raises(ValueError, match="read-only"):
        A[0] = 2
    assert request.wait() is out and request.done and A.flags.writeable and out.flags.writeable
    with pytest.raises(ValueError, match="this request was waited for before"):
        request.wait()
    assert request.test()
    with pytest.raises(ValueError, match="array and out overlap"):
        overlapping(made, source, target, comm)
    failing = made.start(A)
    failing._native.test = lambda: fail("the network is down")
    with pytest.raises(RedistributionError, match="the network is down"):
        failing.test()
    with pytest.raises(RedistributionError, match="the network is down"):
        failing.wait()
    made.start(A).wait()  # the library has freed the transfer that failed
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forgotten = made.start(A)
        native = forgotten._native
        del forgotten
        assert "was not waited for" in str(caught[-1].message)
    native.wait()


@pytest.mark.mpi(ranks=[2])
def test_arrays_are_read_only_until_all_transfers_of_them_are_done(comm):
    source, target = pair(comm.size)
    A = np.ones(source.local_shape(comm.rank))
    view, unprotected = A[:], np.from_dlpack(Exported(A))  # NumPy cannot make the latter writeable again
    fixed = A.copy()
    fixed.flags.writeable = False
    plans = [plan(source, target, "float64", comm=comm, strategy="Pack") for _ in range(6)]
    arrays = [view, A, A, A, fixed, unprotected]
    references = sys.getrefcount(A)
    requests = [made.start(array) for made, array in zip(plans, arrays, strict=True)]
    assert [array.flags.writeable for array in arrays] == [False] * 5 + [True]
    for request in requests[:3]:
        request.wait()
        assert not A.flags.writeable and not view.flags.writeable
    requests[3].wait()
    assert A.flags.writeable and view.flags.writeable
    for request in requests[4:]:
        request.wait()
    assert not fixed.flags.writeable and unprotected.flags.writeable
    assert sys.getrefcount(A) == references  # what is locked is kept no longer
    for made in plans:
        made.free()
    with plan([source] * 2, [target] * 2, "float64", comm=comm) as both:
        both.start([view, A]).wait()
    assert A.flags.writeable and view.flags.writeable


class Exported:
    """An array that NumPy takes from another library."""

    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def fail(why):
    raise RedistributionError(why)


def overlapping(made, source, target, comm):
    memory = np.zeros(20_000)
    shapes = source.local_shape(comm.rank), target.local_shape(comm.rank)
    return made.start(
        memory[: np.prod(shapes[0])].reshape(shapes[0]), out=memory[9 : 9 + np.prod(shapes[1])].reshape(shapes[1])
    )


@pytest.mark.mpi(ranks=[2])
def test_one_plan_in_two_threads(comm):
    """Rank 1 comes late: of two threads of rank 0 one waits for it, and the other one is refused."""
    source, target = pair(comm.size)
    with plan(source, target, "float64", comm=comm, strategy="Hierarchical") as made:
        A, outs = np.ones(source.local_shape(comm.rank)), [np.zeros(target.local_shape(comm.rank)) for _ in range(2)]
        if comm.rank == 1:
            comm.recv(source=0)
            made(A, outs[0])
            return
        refused: queue.Queue[str] = queue.Queue()

        def call(out):
            try:
                made(A, out)
            except RedistributionError as error:
                refused.put(str(error))

        threads = [threading.Thread(target=call, args=(out,)) for out in outs]
        for thread in threads:
            thread.start()
        assert "is under way in another thread: wait for it first" in refused.get(timeout=30)
        comm.send(None, 1)
        for thread in threads:
            thread.join()
        assert sorted(out.sum() for out in outs) == [0, A.size]
