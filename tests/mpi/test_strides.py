"""Calls of one plan after another with arrays of changing strides, or in changing kinds of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dace_redist import Distribution, plan, redistribute


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
    with plan(source, target, comm=comm) as made:
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
    with plan(source, target, comm=comm) as made:
        made(memory[:, ::2], out=np.zeros((2, 8))[:, ::2])  # these strides are known from now on
        with pytest.raises(ValueError, match="array and out overlap"):
            made(memory[:, ::2], out=memory[:, :7:2])


@pytest.mark.mpi(ranks=[3], full=[2])
def test_one_rank_changes_strides_of_blocks_that_move_whole(comm):
    """Blocks that are contiguous in both arrays are sent whole; later arrays may hold them in pieces on one side."""
    shape = (6 * comm.size + 1, 10)
    source, target = Distribution(shape, (1, 1)), Distribution(shape, (comm.size, 1))
    kinds = ["C", "F", "every other"]
    with plan(source, target, comm=comm, strategy="Pipelined", chunk_bytes=64) as made:
        for call, (first, others) in enumerate([(kind, other) for kind in kinds for other in kinds]):
            whole = np.arange(np.prod(shape), dtype=float).reshape(shape) + 1000 * call
            kind, other = (first, others) if comm.rank == 0 else (others, "C")
            B = strided(np.zeros(target.local_shape(comm.rank)), other)
            made(strided(source.local(whole, comm.rank), kind), out=B)
            np.testing.assert_array_equal(B, target.local(whole, comm.rank), f"{first}, {others}")
