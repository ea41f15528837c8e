"""Wrong calls of redistribute raise on every rank and leave everything working."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_arrays import OtherLibrary
from launching import launch
from mpi_programs import another_mpi
from numpy.lib.stride_tricks import as_strided

import dace_redist
from dace_redist import BoxDistribution, Distribution, TiledDistribution

SHAPE = (6, 8)


class Call:
    """A valid call: rows to columns over all ranks. Tests change a part of it."""

    def __init__(self, comm: Any) -> None:
        self.comm, self.options = comm, {}
        self.source = Distribution(SHAPE, [comm.size])
        self.target = Distribution(SHAPE, [comm.size], dims=[None, 0])
        whole = np.arange(48.0).reshape(SHAPE)
        self.array = self.source.local(whole, comm.rank)
        self.expected = self.target.local(whole, comm.rank)
        self.out = np.zeros_like(self.expected)

    def __call__(self) -> Any:
        how = {"comm": self.comm, "out": self.out, **self.options}
        return dace_redist.redistribute(self.array, self.source, self.target, **how)


def check_raises(
    comm: Any,
    kind: type[Exception],
    text: str,
    change: Callable[[Call], Any],
    on: str = "all",
    make: Callable[[Any], Call] = Call,
) -> None:
    """
    Check that a changed call raises ``kind`` with ``text`` on every rank, and that a valid call then works.

    :param on: Ranks on which the call is changed: all, or the last only, which the other ranks then name; "differs":
        the last only, where it is valid but differs from the others.
    :param make: Kind of call.
    """
    bad, last = make(comm), comm.size - 1
    told = "nothing raised"
    try:
        if on == "all" or comm.rank == last:
            change(bad)
        bad()
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    told_by = comm.allgather(told)
    for rank, said in enumerate(told_by):
        where = f"on rank {last}: " if on == "last" and rank != last else ""
        assert re.match(rf"{kind.__name__}: {where}[^\n]*{text}", said), (where, text, told_by)
    good = make(comm)
    assert np.array_equal(good(), good.expected)
    assert all(comm.allgather(True))


def setting(**values: Any) -> Callable[[Call], None]:
    """Return a change that sets attributes of the call; a function is called with it."""

    def change(call: Call) -> None:
        for name, value in values.items():
            setattr(call, name, value(call) if callable(value) else value)

    return change


def option(**values: Any) -> Callable[[Call], None]:
    return lambda call: call.options.update(values)


def part_without_out(call: Call) -> None:
    call.options["region"] = ((0, 0), (0, 0), (2, 1))
    call.out = None


def read_only(call: Call) -> None:
    call.out.flags.writeable = False


def without_strides(call: Call) -> None:
    call.out = as_strided(call.out, call.out.shape, (8, 0))


def overlapping(call: Call) -> None:
    memory = np.zeros(call.array.size + call.out.size)
    call.array = memory[: call.array.size].reshape(call.array.shape)
    call.out = memory[call.array.size - 1 :][: call.out.size].reshape(call.out.shape)


def without_bytes(call: Call) -> None:
    call.array = np.zeros(call.array.shape, [])


def grid_too_large(side: str) -> Callable[[Call], None]:
    return setting(**{side: lambda call: Distribution(SHAPE, [call.comm.size + 1])})


def nothing(call: Call) -> None:
    call.array = call.out = None


#: What is wrong, the exception, a part of its text.
WRONG_CALLS: list[tuple[Callable[[Call], Any], type[Exception], str]] = [
    (grid_too_large("source"), ValueError, r"names ranks up to \d, .* start the program with mpiexec -n \d, or pass"),
    (without_bytes, TypeError, "has no fixed size: expected"),
    (
        setting(target=TiledDistribution(SHAPE, (6, 4), [[0, 9]])),
        ValueError,
        "names ranks up to 9, but the communicator has",
    ),
    (
        setting(source=None),
        TypeError,
        "array must be a DistributedArray or one of another library if source is left out",
    ),
    (setting(target=Distribution((6, 9), [2])), ValueError, r"one global shape, got \(6, 8\) and \(6, 9\)"),
    (setting(array=lambda call: call.array[:, 1:]), ValueError, r"array must have the shape \(\d, 8\) that rank"),
    (setting(array=lambda call: call.array.tolist()), TypeError, "array must be an array of NumPy, .*got list"),
    (nothing, ValueError, "array (is None on every rank: pass an empty array|must have the shape .* got None)"),
    (setting(array=lambda call: call.array.astype(object), out=None), TypeError, "has no fixed size: expected"),
    (option(axes=(0, 0)), ValueError, r"axes must name each of the 2 dimensions once, got \(0, 0\)"),
    (option(alpha=10**400), ValueError, "alpha must be a number that float64 can hold, got 1000"),
    (option(conj=np.array(True)), TypeError, "conj must be True or False, got array"),
    (option(axes="ab"), TypeError, "axes must be a sequence of integers, got 'ab'"),
    (
        option(axes=(1, 0)),
        ValueError,
        r"with axes \(1, 0\) a source of shape \(6, 8\) needs a target of shape \(8, 6\)",
    ),
    (part_without_out, ValueError, "region leaves a part of the target as it is"),
    (setting(out=lambda call: call.out[:, :1]), ValueError, r"out must have the shape \(6, \d\) that rank"),
    (
        setting(out=lambda call: call.out.astype("f4")),
        TypeError,
        "out must hold float64, got float32; target_dtype=numpy.float32 converts",
    ),
    (setting(out=lambda call: call.out.astype(">f8")), TypeError, "out must hold float64, got >f8$"),
    (read_only, ValueError, "out is read-only: pass a writeable array"),
    (without_strides, ValueError, "out has elements that share memory, by its shape .* pass a copy"),
    (overlapping, ValueError, "array and out overlap"),
    (
        option(strategy="Packed"),
        ValueError,
        r"unknown strategy 'Packed' \(did you mean Pack\?\); choose from .*Pipelined",
    ),
    (option(strategy="Pack", chunk_byte=8), ValueError, "Pack does not take option 'chunk_byte'; it takes max_message"),
    (option(strategy="Pipelined", chunk_bytes=0), ValueError, "option chunk_bytes must be .*1.*got 0"),
    (
        option(strategy="Pipelined", chunk_bytes=1e6),
        TypeError,
        r"option chunk_bytes must be an integer .* got 1000000\.0",
    ),
    (option(strategy="Pipelined", depth=True), TypeError, "option depth must be an integer .*got True"),
    (option(strategy="Pipelined", growth=float("nan")), ValueError, "option growth must be .*got nan"),
    (option(strategy="Threaded", threads=-1), ValueError, "option threads must be .*got -1"),
]

#: What makes the last rank ask for something else than the others, and the text that says so.
DIFFERENCES: list[tuple[Callable[[Call], Any], str]] = [
    (option(strategy="Pack"), "strategy is Auto on rank 0 and Pack on rank"),
    (option(max_message_bytes=64), "options is none on rank 0 and max_message_bytes=64 on rank"),
    (setting(array=lambda call: call.array.astype("f4"), out=None), "dtype is float64 on rank 0 and float32 on rank"),
    (
        setting(source=lambda call: Distribution(SHAPE, [call.comm.size], block="ceil")),
        "source is Distribution.* on rank 0 and Distribution.*ceil.* on rank",
    ),
    (
        setting(target=TiledDistribution(SHAPE, SHAPE, [[0]]), out=None),
        "target is Distribution.* on rank 0 and TiledDistribution.* on rank",
    ),
    (
        setting(target=BoxDistribution(SHAPE, [((0, 0), SHAPE)], [0]), out=None),
        "target is Distribution.* on rank 0 and BoxDistribution.* on rank",
    ),
]


@pytest.mark.mpi(ranks=[3], full=[2], timeout=240)
def test_wrong_calls(comm):
    for change, kind, text in WRONG_CALLS:
        check_raises(comm, kind, text, change)
        check_raises(comm, kind, text, change, on="last")


@pytest.mark.mpi(ranks=[3], full=[2], timeout=240)
def test_elements_that_no_box_holds(comm):
    """Only rank 0 sees that an element has no source; all ranks get the error, and may go on."""
    boxes = BoxDistribution((6,), [((1,), (2,)), ((3,), (3,))], [1, 0])
    rows, missing = Distribution((6,), [comm.size]), r"no box holds element \(0,\), which rank 0 of the target needs"
    with pytest.raises(dace_redist.RedistributionError, match=missing):
        dace_redist.plan(boxes, rows, "f8", comm=comm)
    part, whole = boxes.local(np.arange(6.0), comm.rank), np.arange(6.0)
    with pytest.raises(dace_redist.RedistributionError, match=missing):
        dace_redist.redistribute(part, boxes, rows, comm=comm)
    whole[0] = -1
    out = np.full(rows.local_shape(comm.rank), -1.0)
    dace_redist.redistribute(part, boxes, rows, comm=comm, out=out, region=((1,), (1,), (5,)))
    assert np.array_equal(out, rows.local(whole, comm.rank))


@pytest.mark.mpi(ranks=[2], full=[3], timeout=240)
def test_ranks_that_ask_for_different_things(comm):
    for change, text in DIFFERENCES:
        check_raises(comm, ValueError, f"the ranks ask for different redistributions: {text}", change, on="differs")


@pytest.mark.mpi(ranks=[2], timeout=240)
def test_wrong_communicators(comm):
    from mpi4py import MPI

    for wrong in (MPI.COMM_NULL, MPI.REQUEST_NULL, "world", 0, MPI.GROUP_EMPTY):
        check_raises(comm, TypeError, "comm must be an mpi4py intra-communicator", setting(comm=wrong))
    duplicate, rows = comm.Dup(), Distribution((4,), (2,))
    array = dace_redist.DistributedArray(np.zeros(2), rows, duplicate)
    duplicate.Free()
    assert "ranks=0" in repr(array)
    for call in (
        lambda: array.redistribute(rows),
        lambda: dace_redist.redistribute([array], [rows], comm=comm),
        lambda: dace_redist.redistribute(array, rows, comm=MPI.COMM_NULL),
        array.gather,
        lambda: array.to("partitioned"),
    ):
        with pytest.raises(TypeError, match="got MPI_COMM_NULL, as of a communicator that was freed"):
            call()


@pytest.mark.mpi(ranks=[3], timeout=240)
def test_rank_that_cannot_build_the_library(comm, monkeypatch):
    """If one rank cannot build or load the library, all raise its error, and may try again."""
    from dace_redist.native import interface

    def fails() -> Path:
        raise OSError("disk full while building")

    group = comm.Dup()
    with monkeypatch.context() as broken:
        if comm.rank == 0:
            broken.setattr(interface, "ensure_library", fails)
        with pytest.raises(OSError, match="disk full while building"):
            dace_redist.redistribute(*(lambda c: (c.array, c.source, c.target))(Call(comm)), comm=group)
    good = Call(comm)
    assert np.array_equal(good(), good.expected)
    group.Free()


@pytest.mark.mpi(ranks=[3], full=[2], timeout=60)
def test_none_in_the_place_of_an_array(comm):
    """A rank that owns nothing learns the element type from out, or where that is another from the other ranks."""
    shape, last = (6, 5), comm.size - 1
    columns = Distribution(shape, (1, comm.size))
    whole = [np.arange(30, dtype="f4").reshape(shape), np.arange(30, dtype="i4").reshape(shape)]
    sources = [Distribution(shape, (1, 1)), Distribution(shape, (1, 1), ranks=(last,))]  # no rank has both
    arrays = [whole[0] if comm.rank == 0 else None, whole[1] if comm.rank == last else None]
    wanted = [columns.local(one, comm.rank) for one in whole]
    for library in (np.asarray, OtherLibrary):
        for dtype in (None, "f8"):
            outs = [np.zeros_like(one, dtype=dtype) for one in wanted]
            for array, source, out in zip(arrays, sources, outs, strict=True):
                dace_redist.redistribute(array, source, columns, comm=comm, out=library(out), target_dtype=dtype)
            how = {"out": [library(out) for out in outs], "target_dtype": dtype}
            dace_redist.redistribute(arrays, sources, [columns] * 2, comm=comm, alpha=1, **how)
            assert all(np.array_equal(a, b) for a, b in zip(outs, wanted, strict=True))


@pytest.mark.mpi(ranks=[3], full=[2], timeout=60)
def test_none_that_leaves_a_question(comm):
    rows, columns = Distribution((6, 4), (comm.size, 1)), Distribution((6, 4), (1, comm.size))
    none, here = Distribution((0, 4), (comm.size, 1)), np.ones(rows.local_shape(comm.rank))
    out, empty = np.zeros(columns.local_shape(comm.rank)), np.zeros(none.local_shape(comm.rank))
    given = here if comm.rank == 0 else None
    lists = [here, None], [rows, none], [columns, none]
    for arguments, result, kind, text in (
        ((None, none, none), empty, ValueError, "array is None on every rank: pass an empty array"),
        (lists, [out, empty], ValueError, r"array\[1\] is None on every rank: pass an empty array"),
        (
            (given, rows, columns),
            out,
            ValueError,
            r"array must have the shape \(\d, 4\) that rank \d owns of the tensor, got None",
        ),
        ((given, rows, columns), None, ValueError, "array must have the shape .* got None"),
    ):
        with pytest.raises(kind, match=text):
            dace_redist.redistribute(*arguments, comm=comm, out=result, target_dtype="f8")


@pytest.mark.compile
def test_second_mpi_in_a_process(tmp_path: Path) -> None:
    """On one rank only. The dynamic linker may find its functions first: Python modules load it for all libraries."""
    other, program = another_mpi(tmp_path / "libmpi.so.99"), tmp_path / "program.py"
    program.write_text(f"""
import ctypes
import sys
import numpy as np
from mpi4py import MPI
import dace_redist
from dace_redist.native.loaded_mpi import mpi_in_use
comm = MPI.COMM_WORLD
if comm.rank == 1:
    other, load = ctypes.CDLL("{other}"), ctypes.CDLL
    if "first" in sys.argv:
        ctypes.CDLL = lambda name, *how, **more: load(name, *how, **more) if name else other
assert mpi_in_use().path != "{other}"
source, target = (dace_redist.Distribution.split((2, 2), axis=axis, ranks=2) for axis in (0, 1))
try:
    moved = dace_redist.redistribute(np.ones((1, 2)), source, target)
    sys.stdout.write(f"moved {{moved.shape}}\\n")
except dace_redist.BuildError as error:
    sys.stdout.write(f"raised {{error}}\\n")
""")
    for order, said in (("last", r"moved \(2, 1\)"), ("first", "raised .*two MPIs.* would call Fjord MPI")):
        code, printed = launch(2, [sys.executable, str(program), order], 60)
        assert code == 0 and len(re.findall(said, printed)) == 2, printed
