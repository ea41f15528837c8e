"""A plan called in a ``@dace.program``, whose annotations are not postponed, compared with the whole tensor."""

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from builds import built

import dace_redist
from dace_redist import Distribution

pytestmark = [pytest.mark.compile, pytest.mark.dace]

SHAPE = (12, 10)
ROWS, COLUMNS = Distribution(SHAPE, (2, 1)), Distribution((10, 12), (2, 1))
#: A sub-tensor of 8 rows and 5 columns, which becomes 5 rows and 8 columns.
PART: dict[str, Any] = {"axes": (1, 0), "region": ((2, 4), (3, 1), (8, 5))}


def sdfg_of_calls(turned: Any, added: Any, part: Any, summed: Any) -> Any:
    import dace

    size = dace.symbol("size")

    @dace.program
    def calls(A: dace.float32[6, 10], B: dace.float64[size, 12], D: dace.float32[5, 12], E: dace.float32[3, 10]):
        added(A, B)
        summed(A, E)
        part(A, out=D)
        C = turned(A)
        return C + 1

    return calls.to_sdfg()


@pytest.mark.mpi(ranks=[2], timeout=240)
def test_options_types_and_new_arrays(comm: Any) -> None:
    """``alpha * A + beta * B`` into an array that is larger than the part, and a new array; over the world."""
    part = dace_redist.plan(ROWS, COLUMNS, "float32", **PART)
    how: dict[str, Any] = {"axes": (1, 0), "target_dtype": "float64"}
    turned = dace_redist.plan(ROWS, COLUMNS, "float32", strategy="Pack", threads=2, **how)
    added = dace_redist.plan(ROWS, COLUMNS, "float32", alpha=2, beta=3, **how)
    partial, halves = Distribution((6, 10), (2,), dims=(None, None)), Distribution((6, 10), (2, 1))
    sums: dict[str, Any] = {"op": "sum", "accumulate": "float64", "reproducible": True}
    summed = dace_redist.plan(partial, halves, "float32", wire="bfloat16", within_nodes=True, **sums)
    program = built(comm, "plans_in_a_program", functools.partial(sdfg_of_calls, turned, added, part, summed))
    whole = np.arange(120, dtype=np.float32).reshape(SHAPE)
    B, D, inner = np.ones((9, 12)), np.zeros((5, 12), np.float32), np.zeros((10, 12), np.float32)
    E, mine = np.zeros((3, 10), np.float32), ROWS.local(whole, comm.rank) + np.float32(0.001)
    rounded = sum(one.astype(ml_dtypes.bfloat16).astype(np.float64) for one in comm.allgather(mine))
    program(A=mine, B=B.copy(), D=D.copy(), E=E, size=9)
    assert np.array_equal(E, halves.local(rounded, comm.rank).astype(np.float32))
    inner[3:8, 1:9] = whole[2:10, 4:9].T
    for times in (1, 2):
        result = program(A=ROWS.local(whole, comm.rank), B=B, D=D, E=E, size=9)
        assert np.array_equal(result, COLUMNS.local(whole.T.copy(), comm.rank) + 1)
        assert np.array_equal(D, COLUMNS.local(inner, comm.rank))
        expected = np.ones((9, 12))
        for _ in range(times):
            expected[:5] = 2 * COLUMNS.local(whole.T.copy(), comm.rank) + 3 * expected[:5]
        assert np.array_equal(B, expected)


@pytest.mark.mpi(ranks=[3], timeout=240)
def test_a_plan_of_some_ranks(comm: Any) -> None:
    """The communicator goes to the program as an argument that DaCe fills in: its handle differs between ranks."""
    import dace

    some = comm.Split(0 if comm.rank < 2 else 1)
    if comm.rank < 2:
        moved = dace_redist.plan(ROWS, COLUMNS, "int32", comm=some, axes=(1, 0))

        @dace.program  # compiled by each rank, in its own folder
        def called_by_some(A: dace.int32[6, 10]):
            return moved(A)

        for whole in (np.arange(120, dtype=np.int32).reshape(SHAPE), np.ones(SHAPE, np.int32)):
            result = called_by_some(A=ROWS.local(whole, some.rank))
            assert np.array_equal(result, COLUMNS.local(whole.T.copy(), some.rank))
    some.Free()


@pytest.mark.mpi(ranks=[1])
def test_the_plan_of_the_call_counts_and_a_freed_one_is_never_called(comm: Any) -> None:
    import dace

    whole, other = Distribution((4, 4), (1,)), comm.Dup()
    plans = [dace_redist.plan(whole, whole, "float64", **how) for how in ({}, {"axes": (1, 0)}, {"comm": other})]
    moved = plans[0]

    @dace.program
    def calls(A: dace.float64[4, 4]):
        return moved(A)

    for moved in (plans[0], *plans):  # in DaCe's cache from the second call on
        nodes = calls.to_sdfg(use_cache=True).all_nodes_recursive()
        (axes,) = (tuple(node.axes) for node, _ in nodes if type(node).__name__ == "Redistribute")
        assert axes == (moved.axes or ())
    for moved in plans:
        calls.to_sdfg(use_cache=True)
        moved.free()
        with pytest.raises(ValueError, match="the program calls a plan that was freed"):
            calls.to_sdfg(use_cache=True)
    other.Free()


@pytest.mark.mpi(ranks=[1])
def test_bad_arguments(comm: Any) -> None:
    import dace

    one = Distribution((4, 4), (1,))
    plan, several = dace_redist.plan(one, one, "float64"), dace_redist.plan([one, one], [one, one], "float64")
    given, other = dace.float64[4, 4], dace.float32[4, 4]
    with pytest.raises(TypeError, match="out must be an array of float64, got Array of float32"):
        plan.__sdfg__(given, other)
    with pytest.raises(TypeError, match="several tensors cannot be called in a DaCe program"):
        several.__sdfg__(given)
    part = dace_redist.plan(one, one, "float64", region=((0, 0), (1, 1), (2, 2)))
    with pytest.raises(ValueError, match="region leaves a part of the target as it is"):
        part.__sdfg__(given)
    cube = Distribution((2, 2, 4), (1,))
    back = dace_redist.plan(cube, one, "float64", axes=(1, 0, 2), reshape=(4, 4)).inverse()
    with pytest.raises(TypeError, match="permutes axes after a reshape cannot be called in a DaCe program"):
        back.__sdfg__(given)
    scaled = dace_redist.plan(one, one, "complex128", alpha=2j)
    with pytest.raises(TypeError, match="alpha must be real in a DaCe program"):
        scaled.__sdfg__(dace.complex128[4, 4])
