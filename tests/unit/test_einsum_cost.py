"""The plan of least cost, where this can be checked, and what the cost is made of."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from planner_statements import shapes_of, statements_of

from dace_redist.einsum import plan_einsums
from dace_redist.einsum.dataflow import EinsumProgram, planned
from dace_redist.einsum.grids import TO_ROOT, candidates, given_grid
from dace_redist.einsum.groupings import contraction_trees
from dace_redist.einsum.model import Model
from dace_redist.einsum.planner import Planner
from dace_redist.einsum.problem import EinsumProblem
from dace_redist.einsum.search import choose_grids, descend


def program_of(statements, shapes, ranks):
    problem = EinsumProblem(tuple(statements), shapes, ranks)
    return EinsumProgram(problem, Planner(problem).steps())


@pytest.mark.parametrize("name, ranks", [("2MM", 4), ("2MM", 6), ("3MM", 4), ("chain", 4), ("shared", 4), ("chain", 5)])
def test_no_combination_of_grids_costs_less(name, ranks):
    statements = statements_of(name)
    program = program_of(statements, shapes_of(statements), ranks)
    model = Model(program, [candidates(step, ranks) for step in program.steps])
    every = [range(len(found)) for found in model.candidates]
    assert math.prod(map(len, every)) < 60_000
    least = min(map(model.total, itertools.product(*every)))
    chosen = Model(program, model.candidates)
    assert chosen.total(choose_grids(chosen)) == pytest.approx(least, abs=1e-3)


@pytest.mark.parametrize("name", ["3MM", "TTMc", "chain", "shared", "written twice"])
def test_after_a_descent_no_group_has_a_better_grid(name):
    statements = statements_of(name)
    program = program_of(statements, shapes_of(statements), 12)
    model = Model(program, [candidates(step, 12) for step in program.steps])
    variables = range(len(model.candidates))
    for first in variables:
        choice = descend(model, first, len(model.candidates[first]) - 1)
        assert model.bound(choice) <= model.total(choice) + 1e-6
        for variable in variables:
            costs = model.given(variable, choice)
            assert costs[choice[variable]] == costs.min()


@pytest.mark.parametrize("ranks", [4, 8])
def test_pure_permutations_vanish(ranks):
    """Deinsum's grids for two products of matrices: half of the bytes moved only for the numbers of the ranks."""
    grid = {4: (1, 2, 2), 8: (2, 2, 2)}[ranks]
    statements, shapes = statements_of("chain")[:2], dict.fromkeys(("A", "B", "D"), (64, 64))
    overrides = {0: dict(zip("ijk", grid, strict=True)), 1: dict(zip("ikl", grid, strict=True))}
    plan = plan_einsums(statements, shapes, ranks, overrides=overrides)
    program = program_of(statements, shapes, ranks)
    plain = planned(program, [group.with_ranks(range(ranks)) for group in plan.groups])
    needed = 64 * 64 * 8 // grid[0] // grid[2]  # half of a rank's partial results, and the sums that another one lacks
    assert plan.costs[0].reduced == needed < plain.costs[0].reduced
    assert not plan.moves and not plain.moves


def test_what_goes_between_nodes_counts_per_rank():
    """On grid (2, 1, 2) of i, j and k a node has both blocks of B, or those of A: the two of the other one cross."""
    program = program_of(statements_of("1MM"), {"A": (8, 8), "B": (8, 8)}, 4)
    grid = given_grid(program.steps[0], {"i": 2, "k": 2}, 4)
    plain, aware = (Model(program, [grid], node_size=size).unary[0][0] for size in (None, 2))
    assert aware - plain == pytest.approx(8 * 8 * 8 / 4)


def test_an_intermediate_that_is_bound_by_memory_is_written_and_read():
    for j, elements in ((2, 2 * 2 * 5), (100, 0)):
        (tree,) = contraction_trees(statements_of("2MM"), [{"i": 2, "j": j, "k": 5, "l": 30}])
        assert tree.memory_bound() == {3: elements}


def test_sums_are_scattered_along_axes_that_are_long_enough():
    program = program_of(statements_of("1MM"), {"A": (4, 8), "B": (8, 3)}, 4)
    assert given_grid(program.steps[0], {"j": 4}, 4).scatter.tolist() == [TO_ROOT, 0]


@pytest.mark.slow
def test_every_process_makes_the_same_plan():
    folder = Path(__file__).parents[2] / "benchmarks" / "einsum"
    code = (
        "from deinsum import kernels; p = kernels()['3MM'].plan(8); "
        "print([(g.einsum, g.grid, g.ranks, g.reduction) for g in p.groups], p.moves)"
    )
    runs = []
    for seed in ("1", "2"):
        variables = os.environ | {"PYTHONHASHSEED": seed}
        runs.append(subprocess.run([sys.executable, "-c", code], capture_output=True, env=variables, cwd=folder))
    assert runs[0].returncode == 0, runs[0].stderr
    assert runs[0].stdout == runs[1].stdout != b""
