"""Plans: of several tensors, with bounded memory, for arrays of any strides, and started."""

from __future__ import annotations

import queue
import resource
import sys
import threading
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from distributions import rows_to_columns

from dace_redist import Distribution, RedistributionError, plan, redistribute, schedule
from dace_redist.native.interface import NativePlan, check, library
from dace_redist.redistribution.cache import plan_cache, plans_in_use
from dace_redist.strategy_memory import extra_memory


@pytest.mark.mpi(ranks=[2])
def test_misuse_of_lists(comm):
    from mpi4py import MPI

    rows, columns, A, _ = rows_to_columns(comm, (4, 4))
    with pytest.raises(RedistributionError, match="no tensor was given: expected at least one"):
        NativePlan.of_tensors((MPI._handleof(comm), "Pack", {}), [])
    made = plan([rows] * 2, [columns] * 2, "float64", comm=comm)
    made.free()
    with pytest.raises(ValueError, match="this plan was freed"):
        made([A, A])


@pytest.mark.mpi(ranks=[2])
def test_auto_is_the_default_strategy_with_its_options(comm):
    rows, columns, here, there = rows_to_columns(comm, (6, 10))
    kept = len(plans_in_use(comm))
    for strategy in ("Auto", "Hierarchical"):
        assert np.array_equal(redistribute(here, rows, columns, comm=comm, strategy=strategy, slot_bytes=128), there)
    assert len(plans_in_use(comm)) == kept + 1 and plans_in_use(comm)[-1] == ("Hierarchical", {"slot_bytes": 128})


@pytest.mark.mpi(ranks=[2])
def test_plans_of_large_arrays_are_freed(comm, monkeypatch):
    """Else programs with ever new shapes would take ever more memory; 8 are kept, and small ones."""
    monkeypatch.setattr("dace_redist.redistribution.cache._MAX_BYTES", 30_000)  # fewer than of one of the large ones
    for columns in [*range(4, 10), *range(200, 212), 200]:
        rows, columns, here, there = rows_to_columns(comm, (20, columns))
        np.testing.assert_array_equal(redistribute(here, rows, columns, comm=comm), there)
    assert [plan.target.shape[1] for plan in plan_cache(comm).plans.values()] == [*range(4, 10), *range(205, 212), 200]


@pytest.mark.mpi(ranks=[3])
def test_plans_of_lists_are_kept(comm):
    rows, columns, here, there = rows_to_columns(comm, (6, 9))
    kept = len(plans_in_use(comm))
    for factor in (1, 1, 2, 1):
        A, B = redistribute([here, here], [rows] * 2, [columns] * 2, comm=comm, alpha=[1, factor])
        np.testing.assert_array_equal(A, there)
        np.testing.assert_array_equal(B, factor * there)
    assert len(plans_in_use(comm)) == kept + 2
    for axes in ((0, 1), ((0, 1), None)):  # of both, or one of each
        pair = redistribute((here, here), (rows, rows), (columns, columns), comm=comm, alpha=(1, 2), axes=axes)
        assert np.array_equal(pair, [there, 2 * there]) and len(plans_in_use(comm)) == kept + 2
    out = [np.empty_like(there) for _ in range(2)]
    assert redistribute([here, here], [rows] * 2, [columns] * 2, comm=comm, out=out)[1] is out[1]
    cache = plan_cache(comm)  # whose plans each call finds by the very key, not by a comparison of all tensors
    assert {id(known.key) for known in cache.calls.values()} <= {id(key) for key in cache.plans}
    part = {"comm": comm, "region": ((0, 0), (0, 0), (6, 4))}
    redistribute([here, here], [rows] * 2, [columns] * 2, out=out, **part)
    with pytest.raises(ValueError, match="region leaves a part of the target as it is"):
        redistribute([here, here], [rows] * 2, [columns] * 2, out=None if comm.rank == 1 else out, **part)
    out[1] = out[1] if comm.rank else out[1].astype("f4")
    with pytest.raises(TypeError, match=r"out\[1\] must hold float64, got float32"):
        redistribute([here, here], [rows] * 2, [columns] * 2, comm=comm, out=out)
    if comm.rank == 1:
        rows, columns, here = [rows], [columns], [here]
    for call, text in (
        (lambda: redistribute(here, rows, columns, comm=comm), "the kind of arguments: single on rank 0 and lists"),
        (lambda: plan(rows, columns, "f8", comm=comm), r"type of elements: float64 on rank 0 and \[float64\]"),
    ):
        with pytest.raises(ValueError, match=f"the ranks differ in {text} on rank 1"):
            call()


BOUNDED = (200, 300)


@pytest.mark.mpi(ranks=[3])
def test_tensors_arrive_within_a_bound(comm):
    source, target, A, wanted = rows_to_columns(comm, BOUNDED)
    for strategy in ("Auto", "Pipelined", "Hierarchical"):
        for memory_bytes in (1 << 20, 100_000, 30_000):
            with plan(source, target, "float64", comm=comm, strategy=strategy, memory_bytes=memory_bytes) as made:
                assert extra_memory(made.schedule, made.strategy, **made.options) <= memory_bytes
                assert "chunk_bytes" in made.options  # on GPUs its default is larger
                np.testing.assert_array_equal(made(A), wanted)
            B = redistribute(A, source, target, comm=comm, strategy=strategy, memory_bytes=memory_bytes, axes=(0, 1))
            np.testing.assert_array_equal(B, wanted)


def strided(array: Any, kind: str) -> Any:
    """Return an array in C order, in Fortran order, backwards in memory, or as every other element of another one."""
    if kind == "C":
        return array.copy()
    if kind == "F":
        return np.asfortranarray(array)
    if kind == "backwards":
        return array[::-1].copy()[::-1]
    wide = np.zeros((array.shape[0], 2 * array.shape[1]), array.dtype)
    wide[:, ::2] = array
    return wide[:, ::2]


@pytest.mark.mpi(ranks=[3], full=[2])
def test_strides_change_from_call_to_call(comm):
    source, target = Distribution((7, 10), (comm.size, 1)), Distribution((7, 10), (1, comm.size))
    orders = ["C", "C", "F", "F", "every other", "backwards", "every other", "C"]
    with plan(source, target, "float64", comm=comm) as made:
        for call, kind in enumerate(orders):
            other = orders[call - 1]
            whole = np.arange(70.0).reshape(7, 10) + 100 * call
            A = strided(source.local(whole, comm.rank), kind)
            for move in (made, lambda A, out: redistribute(A, source, target, comm=comm, out=out)):
                B = strided(np.zeros(target.local_shape(comm.rank)), other)
                move(A, out=B)
                np.testing.assert_array_equal(B, target.local(whole, comm.rank), f"{kind} to {other}")


@pytest.mark.mpi(ranks=[2])
def test_arrays_that_overlap_are_refused_whatever_their_strides(comm):
    source, target = Distribution((4, 4), (2, 1)), Distribution((4, 4), (2, 1), ranks=(1, 0))
    memory = np.zeros((2, 8))
    with plan(source, target, "float64", comm=comm) as made:
        made(memory[:, ::2], out=np.zeros((2, 8))[:, ::2])  # these strides are known from now on
        with pytest.raises(ValueError, match="array and out overlap"):
            made(memory[:, ::2], out=memory[:, :7:2])
        beside = np.arange(16.0)
        made(beside[:8].reshape(2, 4), out=beside[8:].reshape(2, 4))  # one after the other
    assert beside[8:].tolist() == [*range(8)]
    with pytest.raises(KeyError), plan(source, target, "float64", comm=comm) as kept:
        raise KeyError
    kept(np.zeros((2, 4)), out=np.ones((2, 4)))  # not freed by the error
    kept.free()


@pytest.mark.mpi(ranks=[3], full=[2])
def test_one_rank_changes_strides_of_blocks_that_move_whole(comm):
    """Blocks that are contiguous in both arrays are sent whole; later arrays may hold them in pieces on one side."""
    shape = (6 * comm.size + 1, 10)
    source, target = Distribution(shape, (1, 1)), Distribution(shape, (comm.size, 1))
    kinds = ["C", "F", "every other"]
    with plan(source, target, "float64", comm=comm, strategy="Pipelined", chunk_bytes=64) as made:
        for call, (first, others) in enumerate([(kind, other) for kind in kinds for other in kinds]):
            whole = np.arange(np.prod(shape), dtype=float).reshape(shape) + 1000 * call
            kind, other = (first, others) if comm.rank == 0 else (others, "C")
            B = strided(np.zeros(target.local_shape(comm.rank)), other)
            made(strided(source.local(whole, comm.rank), kind), out=B)
            np.testing.assert_array_equal(B, target.local(whole, comm.rank), f"{first}, {others}")


SHAPE = (120, 90)


@pytest.mark.mpi(ranks=[2])
def test_misuse(comm):
    source, target, A, wanted = rows_to_columns(comm, SHAPE)
    made = plan(source, target, "float64", comm=comm, strategy="Pack")
    with pytest.raises(ValueError, match="progress must be one of calls, thread, got 'magic'"):
        made.start(A, progress="magic")
    out = np.empty_like(wanted)
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
    with mock.patch.object(library(), "dr_request_test", lambda *_: fail("the network is down")):
        with pytest.raises(RedistributionError, match="the network is down"):
            failing.test()
    with pytest.raises(RedistributionError, match="the network is down"):
        failing.wait()
    made.start(A).wait()  # the library has freed the transfer that failed
    out[...], backwards = 0, out[::-1]
    polled = made.start(A, out=backwards)
    assert not backwards.flags.writeable
    while not polled.test():
        pass
    assert A.flags.writeable and backwards.flags.writeable and (backwards == wanted).all() and polled.done
    made(A)
    del polled
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forgotten = made.start(A)
        handle = forgotten._handle
        del forgotten
        assert caught[-1].category is RuntimeWarning and "was not waited for: its arrays" in str(caught[-1].message)
    check(library().dr_request_wait(handle))


@pytest.mark.mpi(ranks=[2])
def test_arrays_are_read_only_until_all_transfers_of_them_are_done(comm):
    source, target, A, _ = rows_to_columns(comm, SHAPE)
    view, unprotected = A[:], np.from_dlpack(Exported(A))  # NumPy cannot make the latter writeable again
    fixed = A.copy()
    fixed.flags.writeable = False
    plans = [plan(source, target, "float64", comm=comm, strategy="Pack") for _ in range(6)]
    arrays = [view, A, A, A, fixed, unprotected]
    references = sys.getrefcount(A)
    requests = [made.start(array) for made, array in zip(plans, arrays, strict=True)]
    assert [array.flags.writeable for array in arrays] == [False] * 5 + [True]
    with plan(source, source, "float64", comm=comm) as other:
        for array, remedy in ((view, "a started transfer uses it"), (A[:], "a started"), (fixed, "pass a writeable")):
            with pytest.raises(ValueError, match=f"out is read-only: {remedy}"):
                other(A.copy(), out=array)
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
    source, target, A, wanted = rows_to_columns(comm, SHAPE)
    outs = [np.zeros_like(wanted) for _ in range(2)]
    with plan(source, target, "float64", comm=comm, strategy="Hierarchical") as made:
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
        assert sorted(out.sum() for out in outs) == [0, wanted.sum()]


#: Bytes that a plan for 4 MiB between two ranks leaves after a failure, at most; see docs/errors-and-deadlocks.md.
LEFT = {"Hierarchical": 64 << 10, "Pack": 3 << 19, "Pipelined": 3 << 19, "RMA": 7 << 19}


@pytest.mark.mpi(ranks=[2], alone=True)
@pytest.mark.parametrize("strategy", LEFT)
def test_what_plans_that_failed_leave(comm, strategy):
    from mpi4py import MPI

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    moved = schedule(*(Distribution.split((724, 724), axis, comm.size) for axis in (0, 1)), "float64")
    A, B, grown, failures = np.ones(724 * 362), np.ones(724 * 362), 0, 20
    for _ in range(2):  # the first time also what all plans share
        before = resident()
        for _ in range(failures):
            made = NativePlan.of_tensors((MPI._handleof(comm), strategy, {}), [moved])
            made.execute([A.ctypes.data], [B.ctypes.data])
            with pytest.raises((RedistributionError, ValueError), match="source is null"):
                made.execute([None if comm.rank == 0 else A.ctypes.data], [B.ctypes.data])
            made.free()
        grown = (resident() - before) // failures
    assert grown <= LEFT[strategy], f"{grown} bytes"
