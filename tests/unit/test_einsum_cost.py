"""The plan of least cost, where this can be checked, and what the cost is made of."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from planner_statements import E, shapes_of, statements_of

from dace_redist.einsum import Statement, plan_einsums
from dace_redist.einsum.dataflow import EinsumProgram, planned
from dace_redist.einsum.grids import candidates
from dace_redist.einsum.model import Model
from dace_redist.einsum.planner import Planner
from dace_redist.einsum.problem import Problem
from dace_redist.einsum.search import choose_grids, descend
from dace_redist.einsum.traffic import traffic


def program_of(plan, statements):
    shapes = {name: plan.sizes[name] for name in plan.inputs}
    problem = Problem(tuple(statements), shapes, plan.ranks)
    return EinsumProgram(problem, Planner(problem).steps())


@pytest.mark.parametrize("name, ranks", [("2MM", 4), ("2MM", 6), ("3MM", 4), ("chain", 4), ("shared", 4), ("chain", 5)])
def test_no_combination_of_grids_costs_less(name, ranks):
    statements = statements_of(name)
    plan = plan_einsums(statements, shapes_of(statements), ranks)
    program = program_of(plan, statements)
    model = Model(program, [candidates(step, ranks) for step in program.steps])
    every = [range(len(found)) for found in model.candidates]
    assert math.prod(map(len, every)) < 60_000
    least = min(map(model.total, itertools.product(*every)))
    chosen = Model(program, model.candidates)
    assert chosen.total(choose_grids(chosen)) == pytest.approx(least, abs=1e-3)


@pytest.mark.parametrize("name", ["3MM", "TTMc", "chain", "shared", "written twice"])
def test_after_a_descent_no_group_has_a_better_grid(name):
    statements = statements_of(name)
    program = program_of(plan_einsums(statements, shapes_of(statements), 12), statements)
    model = Model(program, [candidates(step, 12) for step in program.steps])
    variables = range(len(model.candidates))
    for first in variables:
        choice = descend(model, first, len(model.candidates[first]) - 1)
        assert model.bound(choice) <= model.total(choice) + 1e-6
        for variable in variables:
            costs = model.given(variable, choice)
            assert costs[choice[variable]] == costs.min()


@pytest.mark.parametrize("name", ["2MM", "3MM", "TTMc", "chain", "shared", "written twice"])
@pytest.mark.parametrize("ranks", [4, 6, 12])
def test_relabelling_never_moves_more(name, ranks):
    statements = statements_of(name)
    plan = plan_einsums(statements, shapes_of(statements), ranks)
    program = program_of(plan, statements)
    plain = [group.with_ranks(range(len(group.ranks))) for group in plan.groups]
    assert plan.bytes_per_rank <= planned(program, plain).bytes_per_rank


@pytest.mark.parametrize("ranks", [4, 8])
def test_pure_permutations_vanish(ranks):
    """Deinsum's grids for two products of matrices: half of the bytes moved only for the numbers of the ranks."""
    grid = {4: (1, 2, 2), 8: (2, 2, 2)}[ranks]
    statements = [Statement(E("ij,jk->ik"), ("A", "B"), "C"), Statement(E("ik,kl->il"), ("C", "D"), "E")]
    overrides = {0: dict(zip("ijk", grid, strict=True)), 1: dict(zip("ikl", grid, strict=True))}
    plan = plan_einsums(statements, {"A": (64, 64), "B": (64, 64), "D": (64, 64)}, ranks, overrides=overrides)
    program = program_of(plan, statements)
    (move,) = plan.moves
    plain = planned(program, [group.with_ranks(range(ranks)) for group in plan.groups])
    needed = 64 * 64 * 8 // grid[0] // grid[1] - 64 * 64 * 8 // ranks  # a rank's block, of which it has a part already
    assert move.bytes_per_rank == needed
    assert plain.moves[0].bytes_per_rank > needed


def test_moves_are_those_of_the_schedule():
    statements = statements_of("chain")
    for ranks in (6, 8):
        for move in plan_einsums(statements, shapes_of(statements), ranks).moves:
            found = traffic(move.source, move.target, (7, 9) if move.tensor == "C" else (7, 5))
            assert move.bytes_sent_max == found.sent.max() * 8
            assert move.bytes_received_max == found.received.max() * 8
            assert move.bytes_total == found.received.sum() * 8


def test_fetched_and_reduced_by_hand():
    statement = Statement(E("ij,jk->ik"), ("A", "B"), "C")
    plan = plan_einsums([statement], {"A": (8, 12), "B": (12, 20)}, 8, overrides={"C": {"i": 2, "j": 2, "k": 2}})
    cost = plan.costs[0]
    assert cost.fetched == 8 * (4 * 6 / 2 + 6 * 10 / 2)
    assert cost.reduced == 8 * 4 * 10 / 2
    assert cost.flops == 2 * 4 * 6 * 10
    assert plan.bytes_per_rank == cost.fetched + cost.reduced
    assert plan.groups[0].reduction.ranks == 2


def test_mttkrp_is_one_group_and_ttmc_is_not():
    big = dict.fromkeys("ijklm", 40) | dict.fromkeys("abcde", 24)
    for text, groups in (("ijk,ja,ka->ia", 1), ("ijklm,ia,ja,la,ma->ka", 1), ("ijklm,jb,kc,ld,me->ibcde", 4)):
        einsum = E(text)
        names = [f"T{n}" for n in range(len(einsum.operands))]
        shapes = {n: tuple(big[i] for i in o) for n, o in zip(names, einsum.operands, strict=True)}
        for ranks in (1, 4, 12):
            plan = plan_einsums([Statement(einsum, tuple(names), "out")], shapes, ranks)
            assert len(plan.groups) == groups
            factored = 2 * 40 ** len(einsum.operands[0]) * 24 / ranks
            assert plan.flops < (1.25 if groups == 1 else 3) * factored


def test_many_operands_and_many_ranks():
    chain = ",".join("abcdefghijklmnop"[n : n + 2] for n in range(12)) + "->am"
    names = tuple(f"M{n}" for n in range(12))
    plan = plan_einsums([Statement(E(chain), names, "out")], dict.fromkeys(names, (64, 64)), 16)
    assert len(plan.groups) == 11
    small = plan_einsums(statements_of("1MM"), {"A": (2, 3), "B": (3, 2)}, 1000)
    assert max(len(group.ranks) for group in small.groups) <= 12
    assert len(small.unused_ranks) >= 988
    assert "unused" in str(small)
    huge = plan_einsums(statements_of("1MM"), {"A": (10_000, 10_000), "B": (10_000, 10_000)}, 100_000)
    assert len(huge.unused_ranks) < 10_000


def test_every_process_makes_the_same_plan():
    folder = Path(__file__).parents[2] / "benchmarks" / "einsum"
    code = (
        "from deinsum import kernels; p = kernels()['3MM'].plan(8); "
        "print([(g.einsum, g.grid, g.ranks, g.reduction) for g in p.groups], p.moves)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, env=os.environ | {"PYTHONHASHSEED": seed}, cwd=folder
        )
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout != b""
