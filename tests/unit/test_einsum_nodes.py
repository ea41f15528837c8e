"""Grids on nodes: the formula is what is counted directly, and knowing nodes helps."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from planner_statements import PROGRAMS, check_results, shapes_of, statements_of

from dace_redist import Distribution
from dace_redist.einsum import Einsum, Statement, plan_einsums
from dace_redist.einsum.nodes import bytes_between_nodes, least_internode

E = Einsum.parse
SHAPES = {"A": (16, 32), "B": (32, 8)}


def plan_on(grid, ranks):
    overrides = {"C": dict(zip("ijk", grid, strict=True))}
    return plan_einsums(statements_of("1MM"), SHAPES, ranks, overrides=overrides, itemsize=1)


@pytest.mark.parametrize("grid, size", [((2, 4, 2), 4), ((4, 4, 1), 2), ((4, 2, 4), 8), ((2, 2, 2), 2)])
def test_the_formula_counts_what_crosses_between_nodes(grid, size):
    ranks = math.prod(grid)
    plan = plan_on(grid, ranks)
    words = (
        32 // grid[1] * (8 // grid[2]),  # B is replicated along i, C summed along j, A replicated along k
        16 // grid[0] * (8 // grid[2]),
        16 // grid[0] * (32 // grid[1]),
    )
    tiles = [m for m in itertools.product(*(range(1, p + 1) for p in grid)) if math.prod(m) == size]
    tiles = [m for m in tiles if all(p % q == 0 for p, q in zip(grid, m, strict=True))]
    volumes = {}
    for tile in tiles:
        nodes = [p // m for p, m in zip(grid, tile, strict=True)]
        at = np.indices(grid).reshape(3, -1)
        node = np.ravel_multi_index(tuple(at // np.array(tile)[:, None]), nodes)
        inside = np.ravel_multi_index(tuple(at % np.array(tile)[:, None]), tile)
        group = plan.groups[0].with_ranks((node * size + inside).tolist())
        direct = bytes_between_nodes(dataclasses.replace(plan, groups=(group,)), size)
        volumes[tile] = direct
        fibres = [ranks // p for p in grid]
        formula = sum(f * w * (p / m - 1) for f, w, p, m in zip(fibres, words, grid, tile, strict=True))
        assert direct == formula
    tensors = [(at, np.array([word])) for at, word in zip(([1, 2], [0, 2], [0, 1]), words, strict=True)]
    tile, least = least_internode(np.array([grid]), tensors, size)
    assert volumes[tuple(tile[0].tolist())] == least[0] == min(volumes.values())


@pytest.mark.parametrize("ranks, size", [(8, 4), (12, 4), (16, 4), (16, 8), (13, 4)])
def test_knowing_nodes_never_sends_more_between_them(ranks, size):
    statements = statements_of("chain")[:2]
    shapes = {"A": (128, 64), "B": (64, 32), "D": (32, 128)}
    plan = plan_einsums(statements, shapes, ranks, node_size=size)
    aware, unaware = plan.internode_bytes
    assert aware <= unaware
    assert aware == bytes_between_nodes(plan, size)
    assert aware + plan.intranode_bytes == bytes_between_nodes(plan, 1)
    assert f"nodes of {size}" in str(plan) and "within nodes " in str(plan)
    assert plan_einsums(statements, shapes, ranks).internode_bytes is None


def test_an_operand_that_is_moved_is_not_fetched_too():
    """Rows of B on each rank: only the move to all ranks passes between nodes."""
    rows = Distribution((32, 8), (4,), dims=[0, None])
    how = {"itemsize": 1, "placements": {"B": rows}, "overrides": {"C": {"i": 4}}, "node_size": 2}
    plan = plan_einsums(statements_of("1MM"), SHAPES, 4, **how)
    assert plan.internode_bytes[0] == 2 * 16 * 8  # each node gets the other one's half of B


@pytest.mark.parametrize("ranks, size", [(16, 4), (12, 6), (13, 4), (5, 8)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_on_nodes_are_numpys(name, ranks, size):
    statements = statements_of(name)
    plan = plan_einsums(statements, shapes_of(statements), ranks, node_size=size)
    check_results(plan, statements)
    aware, unaware = plan.internode_bytes
    assert aware <= unaware and plan.intranode_bytes >= 0
    if ranks <= size:
        assert aware == 0


@pytest.mark.parametrize("ranks, size, share", [(64, 8, 0.4), (64, 16, 0.2), (128, 16, 0.4)])
def test_grids_are_chosen_by_what_goes_between_nodes(ranks, size, share):
    """Many grids move as little from rank to rank; of a long sum few keep the partial results of a block on a node."""
    statements, shapes = statements_of("1MM"), {"A": (1024, 16384), "B": (16384, 1024)}
    plan, other = (plan_einsums(statements, shapes, ranks, node_size=nodes) for nodes in (size, None))
    assert plan.bytes_per_rank == other.bytes_per_rank
    assert plan.internode_bytes[0] < share * plan.internode_bytes[1]
    parts = other.groups[0].parts
    fixed = plan_einsums(statements, shapes, ranks, node_size=size, overrides={"C": parts})
    assert plan.internode_bytes[1] == fixed.internode_bytes[1]  # what the plan without nodes would have sent


def test_scalars_have_no_grid_to_lay_over_nodes():
    plan = plan_einsums([Statement(E(",->"), ("a", "b"), "c")], {"a": (), "b": ()}, 4, node_size=2)
    assert plan.internode_bytes == (0.0, 0.0)


def test_nodes_are_laid_along_what_moves_most():
    """A tall product: most is replicated along k, so a node holds whole fibres along k."""
    statements, shapes = statements_of("1MM"), {"A": (4096, 64), "B": (64, 64)}
    plan = plan_einsums(statements, shapes, 8, node_size=4, overrides={"C": {"i": 2, "k": 4}})
    nodes = np.array(plan.groups[0].ranks).reshape(2, 4) // 4
    assert (nodes == nodes[:, :1]).all()
    plan = plan_einsums(statements, shapes, 8, node_size=2, overrides={"C": {"i": 4, "j": 1, "k": 2}})
    assert plan.internode_bytes[0] == 64 * 32 * 8 * 3 * 2  # only B goes between nodes


def test_results_made_before_are_moved_and_not_fetched():
    """Each rank makes two rows of C, which all need: those of the other node cross once a node, as B does."""
    statements, shapes = statements_of("chain")[:2], {"A": (8, 8), "B": (8, 8), "D": (8, 8)}
    plan = plan_einsums(statements, shapes, 4, overrides={"C": {"i": 4}, "E": {"l": 4}}, itemsize=1)
    assert bytes_between_nodes(plan, 2) == 2 * 4 * 8 + 8 * 8
