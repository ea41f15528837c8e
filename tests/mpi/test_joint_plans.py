"""Several tensors in one exchange."""

from __future__ import annotations

import numpy as np
import pytest

from dace_redist import Distribution, RedistributionError, plan, redistribute
from dace_redist.native.interface import NativePlan
from dace_redist.redistribution.plan_cache import plans_in_use


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
        (([rows] * (1 + comm.rank), [columns] * (1 + comm.rank)), {}, "the number of tensors"),
        (([rows] * 2, [columns] * 2), {"alpha": [1, 2, 3]}, "alpha must be a list of 2 values, one per tensor, got 3"),
    ):
        with pytest.raises(ValueError, match=message):
            plan(*arguments, comm=comm, **how)
    with pytest.raises(RedistributionError, match="no tensor was given: expected at least one"):
        NativePlan(MPI._handleof(comm), "Pack", {}, [], joint=True)
    made = plan([rows] * 2, [columns] * 2, comm=comm)
    with pytest.raises(ValueError, match="arrays must be a list of 2 arrays, one per tensor, got 1"):
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
    for call in (lambda: redistribute(here, rows, columns, comm=comm), lambda: plan(rows, columns, comm=comm)):
        with pytest.raises(ValueError, match="rank 1 gives lists of tensors, and rank 0 one tensor"):
            call()
