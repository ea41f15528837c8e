"""Whole tensors on one rank, and the way back of a plan."""

from __future__ import annotations

import numpy as np
import pytest
from distributions import blocked, maps, same_on_all_ranks, tiled
from hypothesis import given
from hypothesis import strategies as st

from dace_redist import Distribution, gather, plan, scatter, shared_empty


@pytest.mark.fuzz
@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[1, 3, 4], timeout=120)
def test_random_tensors(comm):
    @st.composite
    def cases(draw):
        shape = tuple(draw(st.lists(st.integers(0, 6), max_size=3)))
        return draw(st.one_of(blocked(shape, comm.size), tiled(shape, comm.size))), draw(st.integers(0, comm.size - 1))

    @same_on_all_ranks(30)
    @given(cases(), st.sampled_from(["f8", "i2", "c8"]), st.booleans())
    def check(case, dtype, shared):
        target, root = case
        whole = np.arange(np.prod(target.shape, dtype=int)).reshape(target.shape).astype(dtype)
        given_ = None
        if comm.rank == root:
            given_ = shared_empty(whole.shape, dtype) if shared else np.empty(whole.shape, dtype)
            given_[...] = whole
        part = scatter(given_, target, comm, root)
        wrong = not np.array_equal(part, target.local(whole, comm.rank)) or part.dtype != whole.dtype
        back = gather(part, target, comm, root)
        wrong |= (back is not None) != (comm.rank == root) or (back is not None and not np.array_equal(back, whole))
        assert not any(comm.allgather(wrong))

    check()


@pytest.mark.mpi(ranks=[2])
def test_wrong_arguments(comm):
    rows = Distribution((4, 6), (2,))
    whole = np.zeros((4, 6)) if comm.rank == 0 else None
    for call, kind, text in (
        (lambda: scatter(None, rows, comm), TypeError, "whole must be an array of NumPy"),
        (lambda: scatter(np.zeros((6, 4)), rows, comm), ValueError, r"whole must have shape \(4, 6\), got \(6, 4\)"),
        (lambda: scatter(whole, rows, comm, root=2), ValueError, "root must be from 0 to 1, got 2"),
        (lambda: scatter(whole, rows, comm, root=comm.rank), ValueError, "the ranks differ in root"),
        (lambda: scatter(whole, "rows", comm), TypeError, "target must be a Distribution"),
        (lambda: gather(np.zeros((3, 6)), rows, comm), ValueError, r"array must have the shape \(2, 6\)"),
        (lambda: gather(np.zeros((2, 6)), rows, comm, root="0"), TypeError, "root must be a rank, got '0'"),
    ):
        with pytest.raises(kind, match=text):
            call()
    assert np.array_equal(gather(scatter(whole, rows, comm), rows, comm), whole) or comm.rank


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[2, 3], timeout=120)
def test_inverse(comm):
    @st.composite
    def moves(draw):
        shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
        how, target_shape = draw(maps(shape))
        sides = [draw(st.one_of(blocked(s, comm.size), tiled(s, comm.size))) for s in (shape, target_shape)]
        return *sides, how

    @same_on_all_ranks(30)
    @given(moves(), st.sampled_from(["Auto", "Pack"]), st.booleans())
    def check(move, strategy, lists):
        source, target, how = move
        array = source.local(np.arange(float(np.prod(source.shape))).reshape(source.shape), comm.rank)
        out = np.zeros(target.local_shape(comm.rank), "f4")
        sides = ([source], [target]) if lists else (source, target)
        if lists:
            how = {name: [value] for name, value in how.items()}
        how = {"comm": comm, "target_dtype": "f4", "strategy": strategy, **how}
        with plan(*sides, "f8", **how) as there, there.inverse() as back:
            there([array] if lists else array, [out] if lists else out)
            again = array.copy()
            back([out] if lists else out, [again] if lists else again)
            assert back.strategy == there.strategy and back.target_dtype == there.dtype
        assert all(comm.allgather(np.array_equal(again, array)))

    check()
    rows = Distribution((4, 6), (comm.size,))
    with plan(rows, rows, "f8", comm=comm, alpha=2) as scaled, pytest.raises(ValueError, match="inverse: .* 2 \\* x"):
        scaled.inverse()
