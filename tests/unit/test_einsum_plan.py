"""The planner of einsums: right results on every number of ranks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from einsum_simulation import Simulation
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_statements import PROGRAMS, E, check_results, shapes_of, statements_of

from dace_redist import Distribution
from dace_redist.einsum import Einsum, Statement, plan_einsums
from dace_redist.einsum.pieces import pieces
from dace_redist.einsum.placement import home_of, schedule_of
from dace_redist.einsum.statement import Loop


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 12])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_numpys(name, ranks):
    statements = statements_of(name)
    check_results(plan_einsums(statements, shapes_of(statements), ranks), statements)


def loops_after(loops, number):
    """Return the loops that may be around a statement after another one: the same, outer, new inner ones, branches."""
    outer = [loops[:depth] for depth in range(len(loops) + 1) if not loops[depth:] or not loops[depth].is_branch]
    found = [loops, *outer]
    for around in outer if len(loops) < 3 else ():
        found.append((*around, Loop(f"loop {number}", 2)))
        found.append((*around, Loop(f"if {number}"), Loop(f"branch {number}", 1, True)))
    if loops and loops[-1].is_branch:
        found.append((*loops[:-1], Loop(f"branch {number}", 1, True)))
    return found


@st.composite
def random_programs(draw):
    sizes = {index: draw(st.integers(0, 9)) for index in "ijkl"}
    known = {name: draw(st.text("ijkl", min_size=1, max_size=3)) for name in "AB"}
    statements, shapes = [], {name: tuple(sizes[i] for i in indices) for name, indices in known.items()}
    loops = ()
    for number, result in enumerate(draw(st.lists(st.sampled_from("ABCD"), min_size=1, max_size=5))):
        loops = draw(st.sampled_from(loops_after(loops, number)))
        operands = draw(st.lists(st.sampled_from(sorted(known)), min_size=1, max_size=3))
        letters = "".join(dict.fromkeys("".join(known[name] for name in operands)))
        kept = known.get(result, "".join(i for i in letters if draw(st.booleans())))
        if set(kept) <= set(letters) and len(set(kept)) == len(kept):
            einsum = Einsum(tuple(known[n] for n in operands), kept)
            statements.append(Statement(einsum, tuple(operands), result, loops=loops))
            known[result] = kept
    return statements, shapes


@pytest.mark.slow
@given(random_programs(), st.integers(1, 9))
@settings(max_examples=120, deadline=None, derandomize=True)
def test_results_of_random_programs(program, ranks):
    statements, shapes = program
    if statements:
        check_results(plan_einsums(statements, shapes, ranks), statements)


@pytest.mark.parametrize(
    ("einsum", "shape", "ranks", "halved"),
    [
        ("ij,kj->ik", (2000, 2000), 1, True),
        ("ij,kj->ik", (2000, 2000), 2, True),
        ("ij,ik->jk", (200_000, 400), 64, True),
        ("bij,bkj->bik", (6, 50, 900), 3, True),
        ("ijab,klab->ijkl", (7, 8, 90, 100), 2, True),
        ("ij,kj->ik", (8192, 8192), 512, False),  # a rank has blocks of rows and other columns
        ("ij,jk->ik", (2000, 2000), 2, False),
        ("ij,kl->ijkl", (30, 40), 2, False),
    ],
)
def test_a_product_of_a_tensor_with_itself_is_half_the_work(einsum, shape, ranks, halved):
    parsed = E(einsum)
    plan = plan_einsums([Statement(parsed, ("A", "A"), "r")], {"A": shape}, ranks)
    other = plan_einsums([Statement(parsed, ("A", "B"), "r")], {"A": shape, "B": shape}, ranks)
    assert plan.flops == (other.flops // 2 if halved else other.flops)


@pytest.mark.parametrize("ranks", [4, 7, 16])
@pytest.mark.parametrize("einsum", ["ii->", "ii->i", "iij->ij", "iij,jk->k"])
def test_a_rank_has_no_more_than_its_part_of_what_a_diagonal_is_taken_of(einsum, ranks):
    sizes = {"i": 112, "j": 112, "k": 3}
    parsed = E(einsum)
    shapes = {name: tuple(sizes[i] for i in term) for name, term in zip("AB", parsed.operands, strict=False)}
    plan = plan_einsums([Statement(parsed, tuple(shapes), "r")], shapes, ranks)
    result = math.prod(plan.sizes["r"])
    others = sum(math.prod(shape) for name, shape in plan.sizes.items() if name != "A")
    assert plan.homes["A"].block_bytes(shapes["A"], 8) <= math.ceil(math.prod(shapes["A"]) / ranks) * 8
    assert plan.memory_bytes <= (math.prod(shapes["A"]) / ranks + result + others) * 8
    assert plan.bytes_per_rank <= others * 8 and not [move for move in plan.moves if move.tensor == "A"]
    assert "where a = i" in str(plan)


def test_indices_that_only_one_operand_has_are_summed_over_first():
    statement = Statement(E("ij,kl->i"), ("A", "B"), "x")
    plan = plan_einsums([statement], {"A": (400, 400), "B": (400, 400)}, 16)
    assert [str(group.einsum) for group in plan.groups] == ["ij->i", "kl->", "i,->i"]
    assert plan.bytes_per_rank <= 16 * 8 and not plan.moves
    assert plan.flops <= 2.1 * 400 * 400 / 16


@pytest.mark.parametrize("ranks", [4, 8])
def test_sums_take_two_steps_only_if_that_moves_less(ranks):
    """By the schedules of both ways; some plans have two steps, and most have one."""

    def busiest(source, target, shape, op=None):
        totals = schedule_of(source, target, shape, "float64", op).totals
        return int(max(totals.sent.max(), totals.received.max()))

    in_one, in_two = 0, 0
    for i, j, k in itertools.product((16, 64, 1024), repeat=3):
        shape = (i, k)
        targets = [Distribution(shape, grid) for grid in ((ranks, 1), (1, ranks))]
        targets += [Distribution(shape, (ranks,), dims=[None, None]), Distribution(shape, (ranks, 1), block=(4, None))]
        for target in (*map(home_of, targets), home_of(Distribution.on_rank(shape, 0))):
            statement = Statement(E("ij,jk->ik"), ("A", "B"), "C")
            plan = plan_einsums([statement], {"A": (i, j), "B": (j, k)}, ranks, placements={"C": target})
            (group,) = plan.groups
            if group.reduction is None or group.least_placement.is_equivalent_to(target, shape):
                continue
            one = busiest(group.partial_placement, target, shape, "sum")
            two = busiest(group.partial_placement, group.least_placement, shape, "sum")
            two += busiest(group.least_placement, target, shape)
            assert (group.sums_at == target) == (one <= two)
            assert len(plan.moves) == (one > two)
            in_one, in_two = in_one + (one <= two), in_two + (one > two)
    assert in_one > in_two > 0


@pytest.mark.parametrize("ranks", [1, 4, 6])
def test_equal_intermediates_are_computed_once(ranks):
    """Whatever their indices and the order of their operands are called; not if an operand was written meanwhile."""
    statements = [
        Statement(E("ij,jk,kl->il"), ("A", "B", "C"), "D"),
        Statement(E("kj,ik,jm->im"), ("B", "A", "F"), "G"),
        Statement(E("ij,kl->i"), ("D", "G"), "x"),
        Statement(E("i,jk->i"), ("x", "G"), "y"),
        Statement(E("ij,jk->ik"), ("C", "C"), "A"),
        Statement(E("ij,jk,kl->il"), ("A", "B", "F"), "H"),
    ]
    shapes = dict.fromkeys("ABCF", (40, 40))
    plan = plan_einsums(statements, shapes, ranks, outputs=["D", "H", "y"])
    reading = [(group.operands, str(group.einsum)) for group in plan.groups]
    assert sum(set(operands) == {"A", "B"} for operands, _ in reading) == 2  # before and after A is written
    assert sum(operands == ("G",) for operands, _ in reading) == 1
    check_results(plan, statements)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 20), st.integers(0, 9)), max_size=12))
def test_arrays_that_share_memory_are_not_live_together(drawn):
    lifetimes = [(first, first + length) for _, first, length in drawn]
    numbers = pieces([size for size, _, _ in drawn], lifetimes)
    assert {*numbers} == {*range(len({*numbers}))}
    live = [
        [n for n, (first, last) in zip(numbers, lifetimes, strict=True) if first <= now <= last] for now in range(30)
    ]
    assert all(len(there) == len({*there}) for there in live)
    assert len({*numbers}) < 2 or any(len(there) > 1 for there in live)


@pytest.mark.parametrize("ranks", [3, 8])
def test_loops(ranks):
    statements = statements_of("sweep", loops=(Loop("sweep", 3),))
    shapes = {"X": (21, 18, 27), "B": (18, 5), "C": (27, 5)}
    plan = plan_einsums(statements, shapes, ranks, outputs=["A", "B", "C"])
    assert not any(move.tensor == "X" for move in plan.moves)
    check_results(plan, statements)


def test_a_copy_made_before_a_loop_that_writes_the_tensor_is_not_reused():
    inside = {"loops": (Loop("loop", 2),)}
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


def test_a_move_in_one_branch_of_what_another_one_writes_stays_in_it():
    around = Loop("if")
    first, second = ((around, Loop(name, 1, True)) for name in ("then", "else"))
    statements = [
        Statement(E("kj,ik->ij"), ("E", "D"), "A", loops=first),
        Statement(E("ij,jk->ik"), ("A", "B"), "C", loops=second),
        Statement(E("ij,jk->ik"), ("B", "E"), "F", loops=second),
    ]
    shapes = {"A": (7, 6), "B": (6, 9), "D": (7, 9), "E": (9, 6)}
    plan = plan_einsums(statements, shapes, 4, overrides={0: {"i": 4}, 1: {"k": 4}, 2: {"k": 4}})
    assert {(move.tensor, move.loops) for move in plan.moves} == {("A", second), ("B", ()), ("E", ())}
    check_results(plan, statements)


def test_elementwise_statements_follow_their_operands():
    product = Statement(E("ij,jk->ik"), ("A", "B"), "C")
    statements = [product, Statement(E("ik,ik->ik"), ("C", "D"), "E", elementwise=True)]
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
    assert solution.flops == 6**3 + 2 * 6**2 * math.ceil(23 / ranks)
    assert not [move for move in plan.moves if move.tensor == "H"]  # it is already where C is computed
    inputs = {name: rng.random(shape) for name, shape in shapes.items()}
    simulation = Simulation(plan, inputs)
    gram, _, found = inputs["A"].T @ inputs["A"], simulation.run(), simulation.run()
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
