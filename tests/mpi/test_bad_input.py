"""What keeps a rank from a redistribution is an error on every rank, and leaves everything working."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from device_arrays import OtherLibrary
from distributions import rows_to_columns
from launching import launch
from mpi_programs import another_mpi

import dace_redist
from dace_redist import BoxDistribution, Distribution


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


@pytest.mark.mpi(ranks=[2], timeout=240)
def test_communicators_that_were_freed(comm):
    from mpi4py import MPI

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

    group, (rows, columns, part, wanted) = comm.Dup(), rows_to_columns(comm)
    with monkeypatch.context() as broken:
        if comm.rank == 0:
            broken.setattr(interface, "ensure_library", fails)
        with pytest.raises(OSError, match="disk full while building"):
            dace_redist.redistribute(part, rows, columns, comm=group)
    assert np.array_equal(dace_redist.redistribute(part, rows, columns, comm=comm), wanted)
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
