"""Limits of memory, grids and placements that the user gives the planner of einsums."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from planner_statements import E, check_results, statements_of

from dace_redist import Distribution, TiledDistribution, schedule
from dace_redist.einsum import Placement, Statement, plan_einsums


def test_memory_is_a_limit():
    statement = Statement(E("ij,jk,kl->il"), ("A", "B", "C"), "D", "two.py:7")
    shapes = {"A": (16, 8), "B": (8, 4), "C": (4, 4)}
    free = plan_einsums([statement], shapes, 6)
    tight = plan_einsums([statement], shapes, 6, memory_bytes=free.memory_bytes * 9 // 10)
    assert tight.memory_bytes <= free.memory_bytes * 9 // 10
    assert tight.bytes_per_rank > free.bytes_per_rank
    check_results(tight, [statement])
    for limit in range(64, free.memory_bytes, 64):
        try:
            assert plan_einsums([statement], shapes, 6, memory_bytes=limit).memory_bytes <= limit
        except MemoryError as error:
            words = str(error)
            assert words.startswith("two.py:7: '")  # noqa: PT017
            assert f"MiB per rank on 6 ranks, but memory_bytes is {limit} " in words  # noqa: PT017


def test_overrides():
    statements, shapes = statements_of("1MM"), {"A": (8, 8), "B": (8, 8)}
    for key in ("C", 0):
        plan = plan_einsums(statements, shapes, 8, overrides={key: {"i": 2, "k": 4}})
        assert plan.groups[0].parts == {"i": 2, "j": 1, "k": 4}
    for overrides, words in (
        ({"Z": {"i": 2}}, "'Z' is neither the number of a statement (0 to 0) nor a tensor that is written: C"),
        ({"C": {"z": 2}}, "overrides['C']: there is no index 'z'; its indices are i, j, k"),
        ({0: {"z": 2}}, "overrides[0]: there is no index 'z'; its indices are i, j, k"),
        ({"C": {"i": 9}}, "index 'i' can have 1 to 8 parts, got 9"),
        ({"C": {"i": 4, "j": 4}}, "needs 16 ranks, but there are 8"),
    ):
        with pytest.raises(ValueError) as error:
            plan_einsums(statements, shapes, 8, overrides=overrides)
        assert words in str(error.value)


def test_placements_of_the_users():
    statements, shapes = statements_of("2MM"), {"A": (8, 8), "B": (8, 8), "C": (8, 8)}
    rows = Placement((4,), (0, None), (1, 1), (3, 2, 1, 0))
    columns = Placement((4,), (None, 0), (1, 1), (0, 1, 2, 3))
    plan = plan_einsums(statements, shapes, 4, placements={"A": columns, "D": rows})
    assert plan.homes["A"] == columns
    assert plan.homes["D"] == rows
    check_results(plan, statements)
    as_planned = plan_einsums(statements, shapes, 4)
    again = plan_einsums(statements, shapes, 4, placements={"A": as_planned.homes["A"]})
    assert not [move for move in again.moves if move.tensor == "A"]
    for placements, words in (
        ({"Z": rows}, "no tensor is called 'Z'; choose from A, B, C, D"),
        ({"A": Placement((4,), (0,), (1,), (0, 1, 2, 3))}, "'A' has 2 axes, its placement 1"),
        ({"A": Placement((1,), (None, None), (1, 1), (4,))}, "'A' lies on rank 4, but there are only 4 ranks"),
    ):
        with pytest.raises(ValueError, match=words):
            plan_einsums(statements, shapes, 4, placements=placements)


def test_balanced_blocks_stay_where_they_are():
    statements, shapes = statements_of("chain"), {"A": (26, 7), "B": (7, 7), "D": (7, 7), "F": (7, 7)}
    for distributions in (
        {"A": Distribution.split((26, 7), 0, 4)},
        {"A": Distribution.split((26, 7), 0, 4), "G": Distribution.split((26, 7), 0, 4)},
        {"G": Distribution.split((26, 7), 0, 4)},
    ):
        plan = plan_einsums(statements, shapes, 4, placements=distributions)
        assert not [move for move in plan.moves if move.tensor in distributions], str(plan)
        for name, given in distributions.items():
            assert plan.homes[name].distribution(plan.sizes[name]).is_equivalent_to(given)
        check_results(plan, statements)


def test_distributions_that_no_grid_has_are_moved_and_counted():
    statements, shapes = statements_of("1MM"), {"A": (24, 8), "B": (8, 12)}
    cyclic = Distribution.block_cyclic((24, 8), (2, 2), (2, 2))
    tiles = TiledDistribution((24, 12), (24, 3), np.array([[1, 0, 3, 2]]))
    for operand in (cyclic, dataclasses.replace(Distribution((24, 8), (4, 1)), halo=1)):
        plan = plan_einsums(statements, shapes, 4, placements={"A": operand, "C": tiles})
        first, *_, last = plan.moves
        group = plan.groups[0]
        there, back = (
            schedule(operand, group.operand_placements[0].distribution((24, 8))),
            schedule(group.result_placement.distribution((24, 12)), tiles),
        )
        assert (first.tensor, last.tensor) == ("A", "C")
        assert [move.bytes_total for move in (first, last)] == [there.bytes_moved(), back.bytes_moved()]
        assert plan.bytes_per_rank >= first.bytes_per_rank + last.bytes_per_rank > 0
        assert plan.steps()[0] == 4 and "given distribution to" in str(plan)
        assert plan.to_json()["moves"][0]["source"]["distribution"] == operand.encoded_array.tolist()
    with pytest.raises(ValueError, match=r"'A' has shape \(24, 8\), its distribution \(8, 24\)"):
        plan_einsums(statements, shapes, 4, placements={"A": Distribution.block_cyclic((8, 24), (2, 2), (2, 2))})
    with pytest.raises(ValueError, match="'A' lies on rank 3, but there are only 2 ranks"):
        plan_einsums(statements, shapes, 2, placements={"A": cyclic})


def test_orders_of_the_user():
    statements, shapes = statements_of("3MM"), {"A": (8, 8), "B": (8, 8), "C": (8, 8), "D": (8, 8)}
    for optimize, first in (([(2, 3), (1, 2), (0, 1)], ("C", "D")), ([(0, 1), (0, 2), (0, 1)], ("A", "B"))):
        plan = plan_einsums(statements, shapes, 2, optimize=optimize)
        assert plan.groups[0].operands == first
        check_results(plan, statements)


def test_other_bad_input():
    statements, shapes = statements_of("1MM"), {"A": (8, 8), "B": (8, 8)}
    for options, words in (
        ({"ranks": 0}, "ranks must be an integer of at least 1, got 0"),
        ({"ranks": 1, "node_size": 2.5}, "node_size must be an integer of at least 1, got 2.5"),
        ({"ranks": 1, "node_size": True}, "node_size must be an integer of at least 1, got True"),
        ({"ranks": 1, "memory_bytes": 0}, "memory_bytes must be at least 1"),
        ({"ranks": 1, "outputs": ["Z"]}, "no statement writes 'Z'; written are C"),
    ):
        with pytest.raises(ValueError, match=words):
            plan_einsums(statements, shapes, **options)
    with pytest.raises(ValueError, match=r"A of shape .* would have 8e\+19 bytes: give smaller sizes"):
        plan_einsums(statements, {"A": (10**9, 10**10), "B": (10**10, 8)}, 2)
    with pytest.raises(ValueError, match="no statements"):
        plan_einsums([], shapes, 2)
    with pytest.raises(ValueError, match="index 'j' has size 8 in operand 0"):
        plan_einsums(statements, {"A": (8, 8), "B": (9, 8)}, 2)
