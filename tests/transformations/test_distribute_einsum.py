"""Programs of einsums are planned and emitted without MPI; what cannot be distributed is refused."""

import itertools
from functools import cache
from typing import Any

import dace
import numpy as np
import pytest
from dace.libraries.blas.nodes import BatchedMatMul, Dot, Gemm, Gemv, Ger, MatMul
from dace.libraries.linalg import TensorDot, TensorTranspose, Transpose
from dace.libraries.standard.nodes import Reduce
from distributed_simulation import SimulatedRanks
from programs import tagged
from programs.einsums import I, J, K, R
from programs.program import simulate
from results import check

import dace_redist
from dace_redist.library_nodes import JointRedistribute, Redistribute
from dace_redist.transformations.distribute.read.frontend import parse
from dace_redist.transformations.distribute.read.library_nodes import statement_of
from dace_redist.transformations.patterns import redistributions

ALL, PROGRAMS = tagged("einsum", "gallery", "statement"), tagged("einsum")
#: Programs of which some moves leave loops.
IN_LOOPS = ("arguments_with_new_values", "cp_als_normalised", "lanczos", "newton_schulz", "sinkhorn")

pytestmark = pytest.mark.usefixtures("small_transients_share_memory")


@cache
def parsed(name: str) -> dace.SDFG:
    """Return the SDFG of a program, cached: parsing takes longer than the rest."""
    return parse(PROGRAMS[name].program)


def distributed(name: str, ranks: int) -> Any:
    return dace_redist.distribute(parsed(name), ranks, PROGRAMS[name].sizes)


def test_planning_needs_no_mpi_and_prints():
    program = dace_redist.distribute(PROGRAMS["mttkrp"].program, 8, PROGRAMS["mttkrp"].sizes)
    text = str(program)
    assert isinstance(program, dace_redist.DistributedProgram) and "8 ranks" in text and "ijk,ja,ka->ia" in text
    assert program.inputs["X"].distribution.shape == (7, 6, 5)
    others = dict(reversed(program.sizes.items()))  # a rank may name the sizes in another order
    other = dace_redist.distribute(PROGRAMS["mttkrp"].program, 8, others)
    assert repr(other.identity) == repr(program.identity)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [4, *(pytest.param(ranks, marks=pytest.mark.full) for ranks in (2, 3, 12))])
def test_what_moves_is_in_the_plan(ranks, monkeypatch):
    monkeypatch.setenv("DACE_REDIST_EXCHANGE_SECONDS", "0")
    left = 0
    for name in (*PROGRAMS, *IN_LOOPS):
        program = dace_redist.distribute(ALL[name].program, ranks, ALL[name].sizes, memory_bytes="1GiB")
        nodes = [(n, state) for n, state in program.sdfg.all_nodes_recursive() if isinstance(n, Redistribute)]
        moves = [(n.label, loops_around(state)) for n, state in nodes if n.label.startswith("redistribute_")]
        plan = program.plan
        assert sorted(moves) == sorted((f"redistribute_{one.tensor}", len(one.loops)) for one in plan.moves), name
        left += sum(move.repeats < plan.repeats(move.group) for move in plan.moves)
    assert left > 2 or ranks < 4  # moves that leave loops


def loops_around(state: Any) -> int:
    """Return the number of loops around a state: branches are two, the condition and one of them."""
    region = state.parent_graph
    return 0 if isinstance(region, dace.SDFG) else 1 + loops_around(region)


@pytest.mark.slow
def test_other_sizes_get_another_program_only_if_need_be():
    program = distributed("functions", 4)
    others = [program.with_sizes(I=n).sdfg for n in range(5, 10)]
    assert any(sdfg is not program.sdfg for sdfg in others) and any(sdfg is program.sdfg for sdfg in others)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ranks", "first"),
    [
        ("attention_by_einsum", 6, {"T": 6, "D": 5}),
        ("cp_als", 8, {"I": 2, "J": 8, "K": 8, "R": 8}),
        ("inverse_iteration", 8, {"N": 6}),
        ("sinkhorn", 6, {"N": 8, "M": 6}),
    ],
)
def test_other_sizes_take_other_moves(name, ranks, first):
    one = ALL[name]
    planned = dace_redist.distribute(one.program, ranks, first)
    program, given = planned.with_sizes(**one.sizes), one.arguments()
    counts = [sum(1 for _ in redistributions(made.sdfg)) for made in (planned, program)]
    assert counts[0] < counts[1]
    check(SimulatedRanks(program).run(**given), one.expected(), given, name, tolerance=1e-7)


def strategies(program: Any) -> set[tuple[str, Any]]:
    moves = [n for n, _ in program.sdfg.all_nodes_recursive() if isinstance(n, Redistribute | JointRedistribute)]
    return {(node.strategy, node.options.get("chunk_bytes")) for node in moves}


@pytest.mark.slow
def test_strategies_survive_other_sizes_and_a_changed_program_has_another_name():
    program = distributed("functions", 4)
    name = program.identity[0]
    assert program.identity[0] == name
    dace_redist.set_strategy(program.sdfg, "Pipelined", chunk_bytes=1 << 12)
    assert program.identity[0] != name  # by which it is compiled and loaded
    others = [program.with_sizes(I=n) for n in range(5, 10)]
    assert any(other.sdfg is not program.sdfg for other in others)
    assert all(strategies(other) <= {("Pipelined", 1 << 12)} for other in others)
    (label, *_) = sorted(n.label for n, _ in program.sdfg.all_nodes_recursive() if isinstance(n, Redistribute))
    dace_redist.set_strategy(program.sdfg, "Pack", label)
    back = program.built_in(dace.SDFG("again"), program.sizes)
    assert strategies(back) == strategies(program) == {("Pipelined", 1 << 12), ("Pack", None)}
    kinds = {n.label: n.strategy for n, _ in back.sdfg.all_nodes_recursive() if isinstance(n, Redistribute)}
    assert kinds[label] == "Pack"
    name = program.identity[0]
    next(iter(program.sdfg.arrays.values())).storage = dace.StorageType.CPU_Heap
    assert program.identity[0] != name


def test_what_cannot_be_distributed_is_refused():
    mttkrp = PROGRAMS["mttkrp"].program
    full = dict(I=4, J=4, K=4, R=2)
    twisted = dace_redist.Distribution((4, 4, 8), (2,), dims=[0, None, None])
    for match, arguments, kind in (
        (r"sizes of K, R are missing", dict(ranks=2, sizes=dict(I=4, J=4)), ValueError),
        (r"has no size Q", dict(ranks=2, sizes={**full, "Q": 3}), ValueError),
        (r"ranks must be an integer of at least 1, got 0", dict(ranks=0, sizes=full), ValueError),
        (r"programs_einsums_mttkrp|einsums\.py.*memory", dict(ranks=2, sizes=full, memory_bytes=100), MemoryError),
        (r"nothing", dict(ranks=2, sizes=full, overrides={"nothing": {"i": 2}}), ValueError),
        (r"must be an amount such as 4GiB.*, got '1XB'", dict(ranks=2, sizes=full, memory_bytes="1XB"), ValueError),
        (r"X has shape \(4, 4, 4\), but", dict(ranks=2, sizes=full, placements={"X": twisted}), ValueError),
        (r"overrides\['X'\] must be a dict, got 4", dict(ranks=2, sizes=full, overrides={"X": 4}), TypeError),
        (
            r"X: expected a distribution or a Placement, got",
            dict(ranks=2, sizes=full, placements={"X": (2, 2)}),
            TypeError,
        ),
    ):
        with pytest.raises(kind, match=match):
            dace_redist.distribute(mttkrp, **arguments)
    for array in (3, np.zeros((4, 4))):
        with pytest.raises(TypeError, match=r"expected a @dace.program or an SDFG, got .*dace_redist.scatter\(array"):
            dace_redist.distribute(array, dace_redist.Distribution((4, 4), (2,)))


@dace.program
def reductions(A: dace.float64[I, I], B: dace.float64[I, I], v: dace.float64[I]):
    t = np.trace(A @ B)
    for _ in range(2):
        v += np.einsum("ii->i", 2.0 * np.einsum("ij,kj->ik", A, B)) + np.sum(np.einsum("ij,kj->ik", A, B), axis=0)
        A[:] = A @ B
    C = A @ B
    D = B @ A
    B[:] = C
    return t, np.sum(C, axis=1), np.trace(D), C


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4, 7])
def test_products_of_which_only_sums_or_diagonals_are_used(ranks):
    """They are not computed, but for those that are used otherwise, or whose operands have changed meanwhile."""
    program = simulate(reductions, ranks, {"I": 9}, tolerance=1e-12)
    computed = [str(statement.einsum) for statement in program.plan.statements]
    assert "ia,ai->" in computed and "ac,bc->b" in computed


@dace.program
def repeats(A: dace.float64[I, I], B: dace.float64[I, I], v: dace.float64[I]):
    C = A @ B
    D = np.einsum("jk,ij->ik", B, A) + A
    s = np.trace(A @ B) + np.trace(A @ B)
    for _ in range(2):
        v[:] = (A.T @ A) @ v + (A.T @ A) @ v
        B[:] = 0.1 * (A @ B)
    F = A @ B
    G = A @ B
    return C, D, s, F, G, np.einsum("ij,jk,kl->il", A, F, B), np.einsum("ij,jk,kl->il", A, F, C)


@dace.program
def triangle(A: dace.float64[I, I], v: dace.float64[I]):
    for _ in range(4):
        for k in range(I):
            for _j in range(k):
                v[:] = A @ v + v
        for _k in range(1, I, 3):
            v[:] = A @ v


def test_iterations_of_a_loop_whose_bounds_depend_on_another_are_counted_in_the_mean():
    program = dace_redist.distribute(triangle, 2, {"I": 16})
    counts = {program.plan.repeats(number) for number in range(len(program.plan.groups))}
    assert counts == {4 * 120, 4 * 5}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4, 7])
def test_what_is_written_twice_is_computed_once(ranks):
    program = simulate(repeats, ranks, {"I": 9}, tolerance=1e-12)
    products = [g for g in program.plan.groups if not g.elementwise and {"A", "B"} == set(g.operands)]
    assert len(products) == 4  # C, the trace, in the loop, F
    assert sum(group.operands == ("A", "A") for group in program.plan.groups) == 1


@dace.program
def two_results(A: dace.float64[I, J], B: dace.float64[J, K]):
    C = np.einsum("ij,jk->ik", A, B)
    D = np.einsum("ik,jk->ij", C, B)
    return D, C


def test_what_is_returned_may_be_called_by_its_variable_and_sizes_by_their_symbols():
    sizes, rows = {I: 8, J: 8, K: 8}, dace_redist.Distribution((8, 8), (4, 1))
    options = dict(overrides={"C": {"k": 4}, "D": {"j": 4}}, placements={"D": rows})
    program = dace_redist.distribute(two_results, 4, sizes, **options)
    assert [(g.result, g.grid) for g in program.plan.groups] == [("__return_1", (1, 1, 4)), ("__return_0", (1, 1, 4))]
    assert program.outputs["__return_0"].distribution.local_shape(0) == (2, 8)
    with pytest.raises(ValueError, match="two of C, __return_1 are one tensor"):
        dace_redist.distribute(two_results, 4, sizes, overrides={"C": {}, "__return_1": {}})


@pytest.mark.slow
def test_the_transformation_rewrites_in_place():
    import dace_redist

    sdfg = parse(PROGRAMS["sweeps"].program)
    rewrite = dace_redist.transformations.DistributeEinsum(4, {I: 7, "J": 6, K: 5, R: 3})
    assert rewrite.apply_pass(sdfg, {}) == len(rewrite.distributed.plan.groups)
    kinds = {type(node).__name__ for node, _ in sdfg.all_nodes_recursive()}
    assert {"Contraction", "Redistribute"} <= kinds and "Einsum" not in kinds
    sdfg.validate()
    assert rewrite.distributed.sdfg is sdfg
    assert sdfg.name == "programs_einsums_sweeps"


@pytest.mark.parametrize(
    ("node", "shapes", "result"),
    [
        *(
            (
                kind("node", transA=a, transB=b, alpha=2, beta=beta),
                {"_a": (3, 4)[:: -1 if a else 1], "_b": (4, 5)[:: -1 if b else 1], added: (3, 5)},
                lambda A, B, C, a=a, b=b, beta=beta: 2 * (A.T if a else A) @ (B.T if b else B) + beta * C,
            )
            for kind, added in ((Gemm, "_c"), (MatMul, "_cin"))
            for a, b, beta in itertools.product((False, True), (False, True), (0, -3))
        ),
        (
            Gemv("n", transA=True, alpha=2, beta=3),
            {"_A": (4, 3), "_x": (4,), "_y": (3,)},
            lambda A, x, y: 2 * x @ A + 3 * y,
        ),
        (Gemv("node", transA=False), {"_A": (4, 3), "_x": (3,)}, lambda A, x: A @ x),
        (Ger("node", alpha=2), {"_x": (3,), "_y": (4,), "_A": (3, 4)}, lambda x, y, A: 2 * np.outer(x, y) + A),
        (BatchedMatMul("node"), {"_a": (6, 3, 4), "_b": (1, 4, 5)}, np.matmul),
        (MatMul("node"), {"_a": (2, 1, 3, 4), "_b": (6, 4, 5)}, np.matmul),
        (Dot("node"), {"_x": (4,), "_y": (4,)}, np.dot),
        (Transpose("node"), {"_inp": (3, 4)}, np.transpose),
        (TensorTranspose("node", [1, 2, 0], alpha=2), {"_inp_tensor": (3, 4, 5)}, lambda A: 2 * A.transpose(1, 2, 0)),
        (
            TensorDot("node", [0, 2], [1, 0], [2, 0, 1]),
            {"_left_tensor": (3, 4, 5), "_right_tensor": (5, 3, 2, 6)},
            lambda A, B: np.tensordot(A, B, ([0, 2], [1, 0])).transpose(2, 0, 1),
        ),
        (Reduce("node", "lambda a, b: a + b", [0, 2], identity=0), {"_in": (3, 4, 5)}, lambda A: A.sum((0, 2))),
    ],
)
def test_statements_of_the_library_nodes_of_dace(node, shapes, result):
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    found = statement_of(node, shapes)
    value = float(found.alpha) * np.einsum(str(found.einsum), *(arrays[name] for name in found.operands))
    if found.beta != 0:
        value = value + float(found.beta) * arrays[found.added]
    np.testing.assert_allclose(value, result(*arrays.values()), rtol=1e-12)
