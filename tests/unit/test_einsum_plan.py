"""The planner: right results on every number of ranks, least cost where this can be checked, memory, overrides."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from einsum_simulation import Simulation
from hypothesis import given, settings
from hypothesis import strategies as st

from dace_redist.einsum import Einsum, Placement, Statement, plan_einsums
from dace_redist.einsum.grids import candidates
from dace_redist.einsum.joint import choose_grids
from dace_redist.einsum.model import Model
from dace_redist.einsum.order import contraction_tree
from dace_redist.einsum.planner import Planner
from dace_redist.einsum.program import EinsumProgram, Walk
from dace_redist.einsum.requests import Requests
from dace_redist.einsum.search import descend
from dace_redist.einsum.traffic import traffic

E = Einsum.parse
SIZES = {"i": 7, "j": 6, "k": 9, "l": 5, "m": 4, "a": 5, "b": 3, "c": 4, "d": 3, "e": 2}
PROGRAMS = {
    "1MM": [("ij,jk->ik", "AB", "C")],
    "2MM": [("ij,jk,kl->il", "ABC", "D")],
    "3MM": [("ij,jk,kl,lm->im", "ABCD", "E")],
    "MTTKRP": [("ijk,ja,ka->ia", "XBC", "A")],
    "MTTKRP of order 5": [("ijklm,ja,ka,la,ma->ia", "XBCDE", "A")],
    "TTMc": [("ijklm,jb,kc,ld,me->ibcde", "XBCDE", "Y")],
    "scalar": [("ij,jk->ik", "AB", "C"), ("ik,ik->", "CC", "n")],
    "diagonal": [("iij,jk->ik", "AB", "C")],
    "vector": [("ij,j->i", "Ax", "y")],
    "outer": [("i,j->ij", "xy", "A")],
    "transpose": [("ij->ji", "A", "B")],
    "sum": [("ijk->j", "X", "s")],
    "gram": [("ki,kj->ij", "AA", "G")],
    "chain": [("ij,jk->ik", "AB", "C"), ("ik,kl->il", "CD", "E"), ("il,lm->im", "EF", "G")],
    "shared": [("ij,jk->ik", "AB", "C"), ("ij,jl->il", "AD", "E"), ("ik,il->kl", "CE", "F")],
    "written twice": [("ij,jk->ik", "AB", "C"), ("ik,kl->il", "CD", "E"), ("il,kl->ik", "ED", "C")],
}


def statements_of(name, **options):
    return [Statement(E(text), tuple(operands), result, **options) for text, operands, result in PROGRAMS[name]]


def shapes_of(statements):
    shapes = {}
    for statement in statements:
        for indices, name in zip(statement.einsum.operands, statement.operands, strict=True):
            shapes.setdefault(name, tuple(SIZES[index] for index in indices))
    written = {s.result for s in statements} - {n for n in statements[0].operands}
    return {name: shape for name, shape in shapes.items() if name not in written}


def check_results(plan, statements, rounds=1, seed=0):
    random = np.random.default_rng(seed)
    inputs = {name: random.random(plan.sizes[name]) for name in plan.inputs}
    tensors = dict(inputs)
    for _ in range(rounds):
        for s in statements:
            tensors[s.result] = np.einsum(str(s.einsum), *(tensors[name] for name in s.operands))
    for name, found in Simulation(plan, inputs).run(rounds).items():
        np.testing.assert_allclose(found, tensors[name], rtol=1e-12)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 12])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_numpys(name, ranks):
    statements = statements_of(name)
    check_results(plan_einsums(statements, shapes_of(statements), ranks), statements)


@pytest.mark.parametrize("index", "ijk")
@pytest.mark.parametrize("name", PROGRAMS)
def test_extents_of_0(monkeypatch, name, index):
    monkeypatch.setitem(SIZES, index, 0)
    statements = statements_of(name)
    plan = plan_einsums(statements, shapes_of(statements), 6)
    check_results(plan, statements)
    assert 0 <= plan.communication_share <= 1 and plan.groups[0].result in str(plan)


@st.composite
def random_programs(draw):
    sizes = {index: draw(st.integers(0, 9)) for index in "ijkl"}
    known = {
        name: draw(st.text("ijkl", min_size=1, max_size=3).filter(lambda t: len(set(t)) == len(t))) for name in "AB"
    }
    statements, shapes = [], {name: tuple(sizes[i] for i in indices) for name, indices in known.items()}
    for result in draw(st.lists(st.sampled_from("ABCD"), min_size=1, max_size=3)):
        operands = draw(st.lists(st.sampled_from(sorted(known)), min_size=1, max_size=3))
        letters = "".join(dict.fromkeys("".join(known[name] for name in operands)))
        kept = known.get(result, "".join(i for i in letters if draw(st.booleans())))
        if set(kept) <= set(letters):
            statements.append(Statement(Einsum(tuple(known[n] for n in operands), kept), tuple(operands), result))
            known[result] = kept
    return statements, shapes


@given(random_programs(), st.integers(1, 9))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_results_of_random_programs(program, ranks):
    statements, shapes = program
    if statements:
        check_results(plan_einsums(statements, shapes, ranks), statements)


@pytest.mark.parametrize("ranks", [3, 8])
def test_loops(ranks):
    loop = {"repeats": 3, "loops": ("sweep",)}
    sweep = [("ijk,ja,ka->ia", "XBC", "A"), ("ijk,ia,ka->ja", "XAC", "B"), ("ijk,ia,ja->ka", "XAB", "C")]
    statements = [Statement(E(text), tuple(operands), result, **loop) for text, operands, result in sweep]
    shapes = {"X": (21, 18, 27), "B": (18, 5), "C": (27, 5)}
    plan = plan_einsums(statements, shapes, ranks, outputs=["A", "B", "C"])
    assert not any(move.tensor == "X" for move in plan.moves)
    check_results(plan, statements, rounds=3)


def test_a_copy_made_before_a_loop_that_writes_the_tensor_is_not_reused():
    inside = {"repeats": 2, "loops": ("loop",)}
    statements = [
        Statement(E("ij,jk->ik"), ("A", "B"), "C"),
        Statement(E("ij,jk->ik"), ("A", "B"), "D", **inside),
        Statement(E("kj,ik->ij"), ("E", "D"), "A", **inside),
    ]
    overrides = {0: {"k": 4}, 1: {"k": 4}, 2: {"i": 4}}
    shapes = {"A": (7, 6), "B": (6, 9), "E": (9, 6)}
    plan = plan_einsums(statements, shapes, 4, outputs=["C", "A"], overrides=overrides)
    assert [move.before_group for move in plan.moves if move.tensor == "A"] == [0, 1]
    once = plan_einsums(statements[:2], shapes, 4, overrides={0: {"k": 4}, 1: {"k": 4}})
    assert not [move for move in once.moves if move.tensor == "A"]


def test_elementwise_statements_follow_their_operands():
    statements = [
        Statement(E("ij,jk->ik"), ("A", "B"), "C"),
        Statement(E("ik,ik->ik"), ("C", "D"), "E", elementwise=True),
    ]
    for ranks in (4, 7, 8):
        plan = plan_einsums(statements, {"A": (16, 12), "B": (12, 8), "D": (16, 8)}, ranks)
        assert plan.groups[1].elementwise
        assert not plan.moves
        inputs = {name: np.random.default_rng(1).random(plan.sizes[name]) for name in plan.inputs}
        expected = 2 * (inputs["A"] @ inputs["B"]) + 2 * inputs["D"]
        np.testing.assert_allclose(Simulation(plan, inputs).run()["E"], expected)


@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_linear_systems(ranks):
    """Every rank has the matrix and the inverse; a solution has the ranks of its columns, a vector all of them."""
    statements = [
        Statement(E("ki,kj->ij"), ("A", "A"), "G"),
        Statement(E("ij->ji"), ("G",), "H", solves=True),
        Statement(E("ij,jk->ik"), ("B", "H"), "C"),
        Statement(E("ij,ki->jk"), ("G", "C"), "X", solves=True),
        Statement(E("ij,i->j"), ("G", "x"), "y", solves=True),
    ]
    shapes, rng = {"A": (40, 6), "B": (23, 6), "x": (6,)}, np.random.default_rng(1)
    plan = plan_einsums(statements, shapes, ranks, outputs=["H", "X", "y"])
    inverse, solution, vector = (next(g for g in plan.groups if g.result == name) for name in "HXy")
    assert inverse.replicas == vector.replicas == plan.homes["H"].replicas == ranks
    assert plan.homes["H"].block_bytes((6, 6), 8) == 6 * 6 * 8
    assert solution.parts == {"i": 1, "j": 1, "k": ranks} and solution.replicas == 1
    assert plan.costs[plan.groups.index(solution)].flops == 6**3 + 2 * 6**2 * math.ceil(23 / ranks)
    assert not [move for move in plan.moves if move.tensor == "H"]  # it is already where C is computed
    inputs = {name: rng.random(shape) for name, shape in shapes.items()}
    gram, found = inputs["A"].T @ inputs["A"], Simulation(plan, inputs).run(rounds=2)
    np.testing.assert_allclose(found["H"], np.linalg.inv(gram), rtol=1e-9)
    np.testing.assert_allclose(found["X"], np.linalg.solve(gram, (inputs["B"] @ found["H"]).T), rtol=1e-9)
    np.testing.assert_allclose(found["y"], np.linalg.solve(gram, inputs["x"]), rtol=1e-9)


def test_matrices_of_linear_systems_are_not_split():
    solve = Statement(E("ij,ik->jk"), ("G", "B"), "X", solves=True)
    shapes = {"G": (100, 100), "B": (100, 50)}
    with pytest.raises(ValueError, match=r"overrides\['X'\]: index 'i' can have 1 to 1 parts, got 2"):
        plan_einsums([solve], shapes, 4, overrides={"X": {"i": 2}})
    assert plan_einsums([solve], shapes, 4, overrides={"X": {"k": 2}}).groups[0].grid == (1, 1, 2)
    inverse = Statement(E("ij->ji"), ("G",), "H", solves=True)
    assert plan_einsums([inverse], shapes, 4, overrides={"H": {}}).groups[0].replicas == 4
    with pytest.raises(MemoryError, match=r"H = einsum 'ij->ji': 'ij->ji' needs 0.153 MiB per rank on 4 ranks"):
        plan_einsums([inverse], shapes, 4, memory_bytes=100_000)


# Least cost ----------------------------------------------------------------------------------------------------------


def program_of(plan, statements):
    shapes = {name: plan.sizes[name] for name in plan.inputs}
    planner = Planner(Requests(tuple(statements), shapes, plan.ranks))
    steps = tuple(step for number in range(len(statements)) for step in planner.grouped(number))
    return EinsumProgram(tuple(statements), steps, planner.sizes, plan.outputs, {}, 8, plan.ranks)


@pytest.mark.parametrize("name, ranks", [("2MM", 4), ("2MM", 6), ("3MM", 4), ("chain", 4), ("shared", 4), ("chain", 5)])
def test_no_combination_of_grids_costs_less(name, ranks):
    statements = statements_of(name)
    plan = plan_einsums(statements, shapes_of(statements), ranks)
    program = program_of(plan, statements)
    model = Model(program, [candidates(s.part.einsum, s.extents, s.part.steps, ranks) for s in program.steps])
    every = [range(len(found)) for found in model.candidates]
    assert math.prod(map(len, every)) < 60_000
    least = min(map(model.total, itertools.product(*every)))
    chosen = Model(program, model.candidates)
    assert chosen.total(choose_grids(chosen)) == pytest.approx(least, abs=1e-3)


@pytest.mark.parametrize("name", ["3MM", "TTMc", "chain", "shared", "written twice"])
def test_after_a_descent_no_group_has_a_better_grid(name):
    statements = statements_of(name)
    program = program_of(plan_einsums(statements, shapes_of(statements), 12), statements)
    model = Model(program, [candidates(s.part.einsum, s.extents, s.part.steps, 12) for s in program.steps])
    variables = range(len(model.candidates))
    for first in variables:
        choice, bound = descend(model, first, len(model.candidates[first]) - 1)
        assert bound == pytest.approx(model.bound(choice))
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
    assert plan.bytes_per_rank <= Walk(program, plain).bytes_per_rank


@pytest.mark.parametrize("ranks", [4, 8])
def test_pure_permutations_vanish(ranks):
    """Deinsum's grids for two products of matrices: half of the bytes moved only for the numbers of the ranks."""
    grid = {4: (1, 2, 2), 8: (2, 2, 2)}[ranks]
    statements = [Statement(E("ij,jk->ik"), ("A", "B"), "C"), Statement(E("ik,kl->il"), ("C", "D"), "E")]
    overrides = {0: dict(zip("ijk", grid, strict=True)), 1: dict(zip("ikl", grid, strict=True))}
    plan = plan_einsums(statements, {"A": (64, 64), "B": (64, 64), "D": (64, 64)}, ranks, overrides=overrides)
    program = program_of(plan, statements)
    (move,) = plan.moves
    plain = Walk(program, [group.with_ranks(range(ranks)) for group in plan.groups])
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


# What the user says --------------------------------------------------------------------------------------------------


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


def test_grids_that_do_not_fit_are_left_out():
    step = Requests((statements_of("1MM")[0],), {"A": (64, 64), "B": (64, 64)}, 8)
    statement, extents = step.statements[0], step.extents[0]
    tree = contraction_tree(statement, extents)
    free = candidates(statement.einsum, extents, tree, 8)
    limit = float(np.median(free.footprint))
    fitting = candidates(statement.einsum, extents, tree, 8, footprint=limit)
    assert 0 < len(fitting) < len(free)
    assert fitting.footprint.max() <= limit
    assert not len(candidates(statement.einsum, extents, tree, 8, footprint=100))


def test_equal_einsums_of_different_sizes():
    statements = [Statement(E("ij,jk->ik"), ("A", "B"), "C"), Statement(E("ij,jk->ik"), ("D", "F"), "G")]
    shapes = {"A": (9, 4), "B": (4, 5), "D": (3, 8), "F": (8, 20)}
    for ranks in (3, 8):
        check_results(plan_einsums(statements, shapes, ranks), statements)


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
        ({"Z": rows}, "no tensor is called 'Z'; there are A, B, C, D"),
        ({"A": Placement((4,), (0,), (1,), (0, 1, 2, 3))}, "'A' has 2 axes, its placement 1"),
        ({"A": Placement((1,), (None, None), (1, 1), (4,))}, "'A' lies on rank 4, but there are only 4 ranks"),
    ):
        with pytest.raises(ValueError, match=words):
            plan_einsums(statements, shapes, 4, placements=placements)


def test_other_bad_input():
    statements, shapes = statements_of("1MM"), {"A": (8, 8), "B": (8, 8)}
    for options, words in (
        ({"ranks": 0}, "ranks must be at least 1, got 0"),
        ({"ranks": 1, "memory_bytes": 0}, "memory_bytes must be at least 1"),
        ({"ranks": 1, "outputs": ["Z"]}, "no statement writes 'Z'; written are C"),
    ):
        with pytest.raises(ValueError, match=words):
            plan_einsums(statements, shapes, **options)
    with pytest.raises(ValueError, match="no statements"):
        plan_einsums([], shapes, 2)
    with pytest.raises(ValueError, match="index 'j' has size 8 in operand 0"):
        plan_einsums(statements, {"A": (8, 8), "B": (9, 8)}, 2)
