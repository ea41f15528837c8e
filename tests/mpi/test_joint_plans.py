"""Several tensors in one exchange."""

from __future__ import annotations

import numpy as np
import pytest
from cases import blocked, tiled
from distributions import moved, regions, same_on_all_ranks
from hypothesis import given
from hypothesis import strategies as st

import dace_redist
from dace_redist import Distribution, RedistributionError, plan, redistribute
from dace_redist.native.interface import EncodedProblem, NativePlan
from dace_redist.redistribution.cache import plans_in_use
from dace_redist.strategies import host_strategies


@st.composite
def tensors(draw, ranks):
    """Shape, source, target, axes, region and type of a few tensors."""
    made = []
    for _ in range(draw(st.integers(1, 4))):
        # the large one has messages of several pieces and chunks
        shape = draw(st.one_of(st.lists(st.integers(0, 6), max_size=3).map(tuple), st.just((301, 999))))
        axes, region, target_shape = draw(regions(shape))
        source, target = (
            draw(st.one_of(blocked(extents, ranks), tiled(extents, ranks))) for extents in (shape, target_shape)
        )
        made.append((source, target, axes, region, draw(st.sampled_from(["i1", "f4", "f8", "c16"]))))
    return made


@pytest.mark.fuzz
@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[1, 3, 6], timeout=200)
def test_random_tensors(comm):
    @same_on_all_ranks(40)
    @given(
        tensors(comm.size), st.sampled_from(["Auto", *host_strategies()]), st.sampled_from([1 << 30, 17]), st.booleans()
    )
    def check(case, strategy, longest, started):
        sources, targets, axes, regions_, types = (list(column) for column in zip(*case, strict=True))
        wholes = [np.arange(np.prod(one.shape, dtype=int)).reshape(one.shape).astype(kind) for one, *_, kind in case]
        backgrounds = [np.full(target.shape, 99, kind) for _, target, *_, kind in case]
        arrays = [source.local(whole, comm.rank) for source, whole in zip(sources, wholes, strict=True)]
        out = [target.local(before, comm.rank) for target, before in zip(targets, backgrounds, strict=True)]
        if max(one.size for one in wholes) > 10**5:
            longest = 1 << 30
        how = {"axes": axes, "region": regions_, "max_message_bytes": longest, "strategy": strategy}
        with plan(sources, targets, types, comm=comm, **how) as made:
            for _ in range(2):
                if started:
                    made.start(arrays, out=out).wait()
                else:
                    made(arrays, out=out)
        wrong = []
        for number, (_, target, order, region, _) in enumerate(case):
            wanted = target.local(moved(wholes[number], backgrounds[number], order, region), comm.rank)
            if not np.array_equal(out[number], wanted):
                wrong.append(f"tensor {number}, rank {comm.rank}: got {out[number].tolist()}, not {wanted.tolist()}")
        wrong = [text for some in comm.allgather(wrong) for text in some]
        assert not wrong, wrong[0]

    check()


@pytest.mark.mpi(ranks=[4])
def test_conversions_strides_and_new_arrays(comm):
    rows, columns = Distribution((12, 8), (4, 1)), Distribution((12, 8), (1, 4))
    whole = np.arange(96.0).reshape(12, 8)
    A = np.asfortranarray(rows.local(whole, comm.rank))
    with plan([rows, rows], [columns, columns], "float64", comm=comm, target_dtype=["f4", None], alpha=[2, 1]) as made:
        first, second = made([A, dace_redist.shared_empty(A.shape) * 0 + A])
        assert "2 tensors" in repr(made)
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first, columns.local(2 * whole, comm.rank))
    np.testing.assert_array_equal(second, columns.local(whole, comm.rank))
    third, fourth = redistribute([A, A], [rows, rows], [columns, columns], comm=comm, alpha=[1, 3])
    np.testing.assert_array_equal(third + fourth, columns.local(4 * whole, comm.rank))
    partial = Distribution((12, 8), (4,), dims=(None, None))
    with plan([partial, rows], [columns] * 2, "float64", comm=comm, op=["sum", None]) as made:
        total, moved_only = made.start([whole, A]).wait()
        with pytest.raises(ValueError, match=r"out\[0\] and out\[1\] overlap"):
            made([whole, A], out=[total, total])
    np.testing.assert_array_equal(total, 4 * columns.local(whole, comm.rank))
    np.testing.assert_array_equal(moved_only, columns.local(whole, comm.rank))
    with pytest.raises(TypeError, match="array must be a list of arrays"):
        redistribute(A, [rows], [columns], comm=comm)


@pytest.mark.mpi(ranks=[2])
def test_misuse(comm):
    from mpi4py import MPI

    rows, columns = Distribution((4, 4), (2, 1)), Distribution((4, 4), (1, 2))
    A, B = np.ones((2, 4)), np.ones((4, 2))
    for arguments, how, message in (
        (([rows], [columns, columns]), {}, "lists of equal length, at least 1, for several tensors: got 1 and 2"),
        (([rows], columns), {}, "got 1 and no list"),
        (([], []), {}, "got 0 and 0"),
        (([rows] * 2, [columns] * 2), {"strategy": "RAM"}, "unknown strategy 'RAM'"),
        (([rows] * 2, [columns] * 2), {"strategy": "NCCL"}, "both are in main memory"),
        (([rows] * 2, [columns] * 2), {"op": ["sum", "sun"]}, "op"),
        (([rows] * 2, [columns] * 2), {"memory_bytes": 99}, "memory_bytes is for one tensor"),
        (
            ([rows] * (1 + comm.rank), [columns] * (1 + comm.rank)),
            {},
            "number of tensors is 1 on rank 0 and 2 on rank 1",
        ),
        (([rows] * 2, [columns] * 2), {"alpha": [1, 2, 3]}, "alpha must be a list of 2 values, one per tensor, got 3"),
    ):
        with pytest.raises(ValueError, match=message):
            plan(*arguments, "float64", comm=comm, **how)
    with pytest.raises(RedistributionError, match="no tensor was given: expected at least one"):
        NativePlan(MPI._handleof(comm), EncodedProblem("Pack", {}, []))
    made = plan([rows] * 2, [columns] * 2, "float64", comm=comm)
    with pytest.raises(ValueError, match="array must be a list of 2 arrays, one per tensor, got 1"):
        made([A])
    with pytest.raises(ValueError, match=r"out\[1\] must have the shape"):
        made([A, A], out=[B, A])
    made.free()
    with pytest.raises(ValueError, match="this plan was freed"):
        made([A, A])


@pytest.mark.mpi(ranks=[3])
def test_plans_of_lists_are_kept(comm):
    rows, columns = Distribution((6, 9), (3, 1)), Distribution((6, 9), (1, 3))
    whole = np.arange(54.0).reshape(6, 9)
    here, there = rows.local(whole, comm.rank), columns.local(whole, comm.rank)
    kept = len(plans_in_use(comm))
    for factor in (1, 1, 2, 1):
        A, B = redistribute([here, here], [rows] * 2, [columns] * 2, comm=comm, alpha=[1, factor])
        np.testing.assert_array_equal(A, there)
        np.testing.assert_array_equal(B, factor * there)
    assert len(plans_in_use(comm)) == kept + 2
    out = [np.empty_like(there) for _ in range(2)]
    assert redistribute([here, here], [rows] * 2, [columns] * 2, comm=comm, out=out)[1] is out[1]
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
        (
            lambda: redistribute(here, rows, columns, comm=comm),
            "the kind of arguments is single on rank 0 and lists on",
        ),
        (
            lambda: plan(rows, columns, "float64", comm=comm),
            r"type of elements is float64 on rank 0 and \[float64\] on",
        ),
    ):
        with pytest.raises(ValueError, match=f"the ranks ask for different redistributions: {text} rank 1"):
            call()
