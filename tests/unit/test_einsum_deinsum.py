"""Our plans of Deinsum's kernels move no more than its published grids do."""

from __future__ import annotations

import math

import pytest
from deinsum import RANKS, kernels

#: Larger ones, and TTMc on more ranks than this, take seconds each.
QUICK_RANKS = [ranks for ranks in RANKS if ranks <= 64]


def test_data():
    assert len(kernels()) == 10
    for kernel in kernels().values():
        assert set(RANKS) <= set(kernel.lengths)
        assert kernel.groups[-1][0].result == kernel.einsum.result
        for indices, table in kernel.grids.items():
            assert all(math.prod(table[ranks]) == ranks and len(table[ranks]) == len(indices) for ranks in RANKS)
    assert kernels()["1MM"].shapes(kernels()["1MM"].extents(8)) == {"M_ij": (8192, 8192), "M_jk": (8192, 8192)}


@pytest.mark.slow
@pytest.mark.parametrize("name", kernels())
def test_bytes_are_never_more_than_with_published_grids(name):
    kernel = kernels()[name]
    for ranks in [*QUICK_RANKS, *([] if "TTMc" in name or "O5" in name else [512])]:
        plan = kernel.plan(ranks)
        assert plan.bytes_per_rank <= kernel.published_bytes(ranks) * (1 + 1e-9)


def step_of(kernel, extents):
    """Return all contractions of a kernel as one step."""
    from dace_redist.einsum.groupings import contraction_trees
    from dace_redist.einsum.problem import Problem
    from dace_redist.einsum.statement import Statement

    problem = Problem((Statement(kernel.einsum, kernel.operands, "out"),), kernel.shapes(extents), 1)
    (tree,) = contraction_trees(problem.statements, problem.extents)
    return min(tree.groupings(), key=len)[0]


def test_planned_seconds_are_bounded_by_few_candidates():
    """Planning time is benchmarked, not tested; what it depends on is bounded here."""
    from dace_redist.einsum.grids import MAX_GRIDS, candidates

    kernel = kernels()["MTTKRP-O5-M0"]
    found = candidates(step_of(kernel, kernel.extents_of(409, 163)), 100_000)
    assert 0 < len(found) <= 2 * MAX_GRIDS


def test_plans_with_published_grids_are_simulated():
    """2MM on 8 ranks: as much is computed as with our plan, and what moves takes no less."""
    from dace_redist.simulation.program import simulate_plan

    kernel = kernels()["2MM"]
    published = kernel.published_plan(8)
    assert published.bytes_per_rank == kernel.published_bytes(8)
    ours, theirs = (simulate_plan(plan, "piz-daint", ranks_per_node=1) for plan in (kernel.plan(8), published))
    assert ours.by_kind["contract"] == pytest.approx(theirs.by_kind["contract"])
    assert 0 < ours.seconds - ours.by_kind["contract"] <= 1.01 * (theirs.seconds - theirs.by_kind["contract"])
