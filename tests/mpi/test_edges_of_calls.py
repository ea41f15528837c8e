"""Arguments of another kind on one rank, and arrays that are not plain ones of NumPy."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from distributions import rows_to_columns
from mpi4py import MPI
from results import refused

from dace_redist import (
    DistributedArray,
    Distribution,
    Plan,
    RedistributionError,
    gather,
    load,
    plan,
    redistribute,
    save,
    scatter,
)

WRONG = (None, 3.0, "x", [1], np.zeros(3), np.ma.masked_array(np.zeros((3, 8))), object())


@pytest.mark.mpi(ranks=[2], timeout=120)
def test_another_kind_on_one_rank(comm, tmp_path):
    """Arrays on the world, or on another communicator that the call names."""
    rows, columns, part, wanted = rows_to_columns(comm)
    last = comm.rank == comm.size - 1
    path, whole = comm.bcast(tmp_path) / "a.npy", np.zeros((6, 8))
    for number, wrong in enumerate(WRONG):
        x, y = (wrong if last else DistributedArray(part, rows, of) for of in (MPI.COMM_WORLD, comm))
        array, side = (wrong, wrong) if last else (part, rows)
        calls = [
            lambda x=x: redistribute(x, columns),
            lambda y=y: redistribute(y, columns, comm=comm),
            lambda x=x: redistribute([x], [columns]),
            lambda array=array: redistribute(array, rows, columns, comm=comm),
            lambda side=side: redistribute(part, rows, side, comm=comm),
            lambda side=side: DistributedArray(part, rows, comm).redistribute(side),
            lambda side=side: plan(side, columns, "f8", comm=comm),
            lambda array=array: gather(array, rows, comm),
            lambda array=array: scatter(array if last else whole, rows, comm, root=comm.size - 1),
            lambda side=side: scatter(whole, side, comm),
            lambda x=x: save(path, x),
            lambda side=side: load(path, side, comm=comm),
        ]
        for call in calls:
            refused(comm, (ValueError, TypeError, OSError), "", call)
        moved = redistribute(part, rows, columns, comm=comm)
        assert np.array_equal(moved, wanted), number


@pytest.mark.mpi(ranks=[2])
def test_arrays_that_are_not_plain(comm, tmp_path):
    """Classes of NumPy in any call; the mask of one would be lost. Arrays that interleave do not overlap."""
    rows, columns, part, wanted = rows_to_columns(comm)
    mapped = np.memmap(tmp_path / str(comm.rank), "f8", "w+", shape=part.shape)
    mapped[...] = part
    with plan(rows, columns, "f8", comm=comm) as move:
        for array in (np.asmatrix(part), part.view(np.recarray), mapped, part):
            for call in (move, lambda A, out=None: redistribute(A, rows, columns, comm=comm, out=out)):
                assert np.array_equal(call(array), wanted)
                out = np.zeros_like(wanted).view(type(array))
                assert call(array, out=out) is out and np.array_equal(out, wanted)
                for how in ({"A": np.ma.masked_array(part)}, {"A": part, "out": np.ma.zeros(wanted.shape)}):
                    with pytest.raises(TypeError, match="is a masked array, .* its filled"):
                        call(*how.values())
    turned = Distribution(rows.shape, (2, 1), ranks=(1, 0))
    both = np.zeros((*part.shape, 2))
    for _ in range(2):
        both[..., 0] = part
        redistribute(both[..., 0], rows, turned, comm=comm, out=both[..., 1])
        assert np.array_equal(both[..., 1], turned.local(np.arange(48.0).reshape(6, 8), comm.rank))


@pytest.mark.mpi(ranks=[2])
def test_strided_arrays_for_datatypes(comm):
    how = ([1] * comm.size, [8 * rank for rank in range(comm.size)], [MPI.DOUBLE] * comm.size)
    array, out = np.arange(2.0 * comm.size), np.zeros((comm.size, 1), order="F")
    with Plan.from_datatypes(how, how, comm=comm) as move:
        for wrong in ((array[::2], out), (array[: comm.size][::-1], out), (array, array[::2])):
            refused(
                comm, ValueError, "must be contiguous, as datatypes count bytes, got strides", lambda w=wrong: move(*w)
            )
        move(array, out)
    assert np.array_equal(out.ravel(), [comm.rank] * comm.size)


@pytest.mark.mpi(ranks=[2])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError])
def test_a_wait_that_a_signal_interrupted_is_repeated(comm, kind):
    """The handler of a signal, as of Ctrl-C, raises an exception when the library's wait returns."""

    def interrupt(*_):
        raise kind("by a signal")

    def send():
        os.kill(os.getpid(), signal.SIGUSR1)
        comm.send(None, 1)

    source, target, A, wanted = rows_to_columns(comm, (60, 84))
    out = np.empty(wanted.shape)[:, ::-1]  # in whose place the library writes a copy
    before = signal.signal(signal.SIGUSR1, interrupt)
    with plan(source, target, "float64", comm=comm) as made:
        if comm.rank == 0:
            request = made.start(A, out)
            with pytest.raises(kind):  # rank 1 starts when the signal is there
                threading.Timer(0.5, send).start()
                request.wait()
            assert not request.done
        else:
            comm.recv(source=0)
            request = made.start(A, out)
        np.testing.assert_array_equal(request.wait(), wanted)
        assert request.done and out.flags.writeable
        np.testing.assert_array_equal(made(A), wanted)
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.mpi(ranks=[2])
def test_a_forked_process_is_refused(comm):
    """MPI belongs to its parent, which goes on."""
    source, target, A, wanted = rows_to_columns(comm, (6, 8))
    redistribute(A, source, target, comm=comm)
    child = os.fork()
    if child == 0:
        try:
            redistribute(A, source, target, comm=comm)
        except RedistributionError as error:
            os._exit(7 if "was forked from one that uses MPI" in str(error) else 1)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    np.testing.assert_array_equal(redistribute(A, source, target, comm=comm), wanted)
