"""Wrong calls of ``redistribute`` raise on every rank, say what is wrong, and leave everything working."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi_programs import SANITIZED, build, build_with_library, run

import dace_redist
from dace_redist import Distribution, TiledDistribution

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
        return dace_redist.redistribute(
            self.array, self.source, self.target, comm=self.comm, out=self.out, **self.options
        )


class PlannedCall(Call):
    """A valid call of a plan made with ``options``."""

    def __call__(self) -> Any:
        with dace_redist.plan(self.source, self.target, comm=self.comm, **self.options) as made:
            return made(self.array, self.out)


class CallWithLists(Call):
    """A valid call with two tensors."""

    def __call__(self) -> Any:
        both = [[one, one.copy()] for one in (self.array, self.out)]
        pair = [self.source] * 2, [self.target] * 2
        return dace_redist.redistribute(both[0], *pair, comm=self.comm, out=both[1], **self.options)[0]


class PlannedCallWithLists(Call):
    """A valid call of a plan of two tensors."""

    def __call__(self) -> Any:
        with dace_redist.plan([self.source] * 2, [self.target] * 2, comm=self.comm, **self.options) as made:
            return made([self.array, self.array], [self.out, self.out.copy()])[0]


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
    (without_bytes, TypeError, "have no fixed size without Python objects"),
    (grid_too_large("target"), ValueError, r"the target distribution names ranks up to \d, but the communicator has"),
    (
        setting(target=lambda call: Distribution(SHAPE, [1], ranks=[call.comm.size])),
        ValueError,
        r"the target distribution names ranks up to \d, but",
    ),
    (
        setting(target=lambda call: TiledDistribution(SHAPE, (6, 4), [[0, 9]])),
        ValueError,
        "names ranks up to 9, but the communicator has",
    ),
    (setting(source=None), TypeError, "source must be a Distribution or TiledDistribution, got None"),
    (setting(target="rows"), TypeError, "target must be a Distribution or TiledDistribution, got 'rows'"),
    (
        setting(target=lambda call: Distribution((6, 9), [call.comm.size])),
        ValueError,
        r"one global shape, got \(6, 8\) and \(6, 9\)",
    ),
    (
        setting(target=lambda call: Distribution((6, 8, 1), [call.comm.size])),
        ValueError,
        r"one global shape, got \(6, 8\) and \(6, 8, 1\)",
    ),
    (setting(array=lambda call: call.array[:, 1:]), ValueError, r"array must have the shape \(\d, 8\) that rank"),
    (setting(array=lambda call: call.array.ravel()), ValueError, r"array must have the shape .* got shape \(\d+,\)"),
    (setting(array=lambda call: call.array.tolist()), TypeError, "array must be a NumPy array, got list"),
    (setting(array=None), ValueError, r"array must have the shape .* got None"),
    (nothing, TypeError, "array is None: pass an empty array of the element type, or out"),
    (setting(array=lambda call: call.array.astype(object), out=None), TypeError, "cannot move elements of type object"),
    (option(axes=(0, 0)), ValueError, r"axes must name each of the 2 dimensions once, got \(0, 0\)"),
    (option(axes="ab"), TypeError, "axes must be a sequence of integers, got 'ab'"),
    (
        option(axes=(1, 0)),
        ValueError,
        r"with axes \(1, 0\) a source of shape \(6, 8\) needs a target of shape \(8, 6\)",
    ),
    (option(region=((0, 0), (0, 0), (7, 1))), ValueError, "region: 7 indices from 0 on are not inside dimension 0"),
    (part_without_out, ValueError, "region leaves a part of the target as it is"),
    (setting(out=lambda call: call.out[:, :1]), ValueError, r"out must have the shape \(6, \d\) that rank"),
    (
        setting(out=lambda call: call.out.astype("f4")),
        TypeError,
        "array and out need one element type, got float64 and float32",
    ),
    (setting(out=lambda call: call.out.tolist()), TypeError, "out must be a NumPy array, got list"),
    (read_only, ValueError, "out is read-only"),
    (overlapping, ValueError, "array and out overlap"),
    (
        option(strategy="Packed"),
        ValueError,
        r"unknown strategy 'Packed' \(did you mean Pack\?\); there are .*Pipelined",
    ),
    (option(strategy=None), ValueError, "unknown strategy None; there are Auto, "),
    (option(strategy=3), ValueError, "unknown strategy 3"),
    (option(strategy="Pack", chunk_byte=8), ValueError, "Pack does not take option 'chunk_byte'; it takes max_message"),
    (option(strategy="Pipelined", chunk_bytes=0), ValueError, "option chunk_bytes must be .*1.*got 0"),
    (option(strategy="Pipelined", chunk_bytes=-8), ValueError, "option chunk_bytes must be .*got -8"),
    (
        option(strategy="Pipelined", chunk_bytes=1e6),
        TypeError,
        r"option chunk_bytes must be an integer .* got 1000000\.0",
    ),
    (option(strategy="Pipelined", chunk_bytes="8MB"), TypeError, "option chunk_bytes must be an integer .*got '8MB'"),
    (option(strategy="Pipelined", depth=True), TypeError, "option depth must be an integer .*got True"),
    (option(strategy="Pipelined", depth=0), ValueError, "option depth must be .*got 0"),
    (option(strategy="Pipelined", growth=float("nan")), ValueError, "option growth must be .*got nan"),
    (option(strategy="Pipelined", growth=float("inf")), ValueError, "option growth must be .*got inf"),
    (option(strategy="Pipelined", growth=0.5), ValueError, r"option growth must be .*got 0\.5"),
    (option(strategy="Threaded", threads=-1), ValueError, "option threads must be .*got -1"),
    (option(max_message_bytes=1 << 31), ValueError, "option max_message_bytes must be .*got 2147483648"),
    (option(max_message_bytes=1 << 70), ValueError, "option max_message_bytes must be "),
]

#: What makes the last rank ask for something else than the others, and the text that says so.
DIFFERENCES: list[tuple[Callable[[Call], Any], str]] = [
    (option(strategy="Pack"), "strategy is Auto on rank 0 and Pack on rank"),
    (option(max_message_bytes=64), "options is none on rank 0 and max_message_bytes=64 on rank"),
    (
        setting(array=lambda call: call.array.astype("f4"), out=None),
        "dtype is float64 on rank 0 and float32 on rank",
    ),
    (
        setting(array=lambda call: call.array.astype("i8"), out=None),
        "dtype is float64 on rank 0 and int64 on rank",
    ),
    (
        setting(source=lambda call: Distribution(SHAPE, [call.comm.size], block="balanced", dims=[0, None])),
        "source is Distribution.* on rank 0 and Distribution.*balanced.* on rank",
    ),
    (
        setting(target=lambda call: Distribution(SHAPE, [call.comm.size], dims=[None, 0], block=[6, 4]), out=None),
        r"target is Distribution.* on rank 0 and Distribution.*\(6, 4\).* on rank",
    ),
    (
        setting(target=lambda call: TiledDistribution(SHAPE, SHAPE, [[0]]), out=None),
        "target is Distribution.* on rank 0 and TiledDistribution.* on rank",
    ),
]


@pytest.mark.compile
@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[2, 3], timeout=240)
def test_wrong_calls(comm):
    for change, kind, text in WRONG_CALLS:
        check_raises(comm, kind, text, change)
        check_raises(comm, kind, text, change, on="last")


@pytest.mark.compile
@pytest.mark.mpi(ranks=[2, 3], timeout=240)
def test_wrong_element_types(comm):
    """A plan takes and rejects the same types as a schedule, for one tensor and for several."""
    for make, options in (
        (Call, ("dtype",)),
        (CallWithLists, ("dtype",)),
        (PlannedCall, ("dtype", "target_dtype")),
        (PlannedCallWithLists, ("dtype", "target_dtype")),
    ):
        planned = make in (PlannedCall, PlannedCallWithLists)
        for wrong, text in (
            ("(2,", r"unknown dtype '\(2,': expected a NumPy type such as float64 or int32"),
            ("rows", "unknown dtype 'rows': expected a NumPy type"),
            ("O", "dtype 'O' has no fixed size: expected a NumPy type"),
            *([(None, "unknown dtype None: expected a NumPy type")] if planned else []),
        ):
            for name in options:
                if wrong is None and name == "target_dtype":
                    continue  # is the default
                check_raises(comm, TypeError, text, option(**{name: wrong}), make=make)
                check_raises(comm, TypeError, text, option(**{name: wrong}), on="last", make=make)


class TypeOfDaCe:
    """Stand-in for a type of DaCe, such as ``dace.float64``."""

    def as_numpy_dtype(self) -> np.dtype:
        return np.dtype("f8")


@pytest.mark.compile
@pytest.mark.mpi(ranks=[2])
def test_types_of_dace(comm):
    for make in (PlannedCall, PlannedCallWithLists):
        call = make(comm)
        call.options = {"dtype": TypeOfDaCe(), "target_dtype": TypeOfDaCe()}
        assert np.array_equal(call(), call.expected)


@pytest.mark.compile
@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[2, 3], timeout=240)
def test_ranks_that_ask_for_different_things(comm):
    for change, text in DIFFERENCES:
        check_raises(comm, ValueError, f"the ranks ask for different redistributions: {text}", change, on="differs")


@pytest.mark.compile
@pytest.mark.mpi(ranks=[2], timeout=240)
def test_wrong_communicators(comm):
    from mpi4py import MPI

    halves = comm.Split(comm.rank)
    between = halves.Create_intercomm(0, comm, 1 - comm.rank)
    for wrong in (MPI.COMM_NULL, between, "world", 0, MPI.GROUP_EMPTY):
        check_raises(comm, TypeError, "comm must be an mpi4py intra-communicator", setting(comm=wrong))
    between.Free()
    halves.Free()


@pytest.mark.mpi(ranks=[3], timeout=240)
def test_rank_that_cannot_build_the_library(comm, monkeypatch):
    """If one rank cannot build or load the library, all raise its error, and may try again."""
    from dace_redist.redistribution import host_plan as plans

    def fails() -> Path:
        raise OSError("disk full while building")

    group = comm.Dup()
    with monkeypatch.context() as broken:
        if comm.rank == 0:
            broken.setattr(plans, "ensure_library", fails)
        with pytest.raises(OSError, match="disk full while building"):
            dace_redist.redistribute(*(lambda c: (c.array, c.source, c.target))(Call(comm)), comm=group)
    good = Call(comm)
    assert np.array_equal(good(), good.expected)
    group.Free()


@pytest.mark.compile
@pytest.mark.mpi_matrix
@pytest.mark.parametrize("ranks", [2, 4])
def test_errors_of_the_runtime(ranks: int) -> None:
    """Without Python: what the ranks disagree on, arrays that do not fit and MPI calls that fail are named."""
    assert re.search(r"\d\d checks passed", run(build("mpi_errors", *SANITIZED), ranks))


@pytest.mark.compile
def test_plans_of_programs_after_errors() -> None:
    """A plan keeps the arrays that it had, and its buffers as long as a transfer is under way."""
    run(build_with_library("mpi_program_plan"), 2)
