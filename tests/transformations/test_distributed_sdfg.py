"""Programs of all ranks, simulated without compiler and MPI, give NumPy's result."""

from typing import Any

import dace
import numpy as np
import pytest
from dace.libraries.blas.nodes.einsum import Einsum
from dace.sdfg.state import LoopRegion
from distributed_simulation import SimulatedRanks
from einsum_programs import PROGRAMS, I, J, K, N, arguments, linear_systems, sizes_of
from hypothesis import given, settings
from hypothesis import strategies as st
from results import by_numpy, check

from dace_redist import distribute

steps = dace.symbol("steps", dace.int64)
alpha = dace.symbol("alpha", dace.float64)
n0 = dace.symbol("n0", dace.int64)


pytestmark = pytest.mark.usefixtures("small_transients_share_memory")


def simulate(program: Any, ranks: int, **more: float) -> None:
    """Compare all results of a program with NumPy."""
    sizes = {**sizes_of(program), **more}
    wholes = arguments(program, sizes)
    wanted = by_numpy(program.f, wholes, sizes)
    check(SimulatedRanks(distribute(program, ranks, sizes)).run(**wholes), wanted)


@dace.program
def maybe_written(A: dace.float64[N, N], B: dace.float64[N, N]):
    for _ in range(steps):
        A[:] = B @ B
    return A @ B


@dace.program
def never_read(A: dace.float64[N, N], B: dace.float64[N, N]):
    for _ in range(steps):
        A[:] = B @ B


@pytest.mark.parametrize("program", [maybe_written, never_read], ids=lambda program: program.f.__name__)
@pytest.mark.parametrize("rounds", [0, 2])
def test_what_a_loop_may_leave_alone_is_an_input(program, rounds):
    simulate(program, 3, steps=rounds)


@dace.program
def read_in_a_loop_only(A: dace.float64[N, N], B: dace.float64[N, N]):
    kept = A @ B
    for _ in range(steps):
        inner = kept @ A
        B[:] = 0.1 * (inner @ A)
    return B @ A


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_memory_is_not_used_for_something_else_too_early(rounds):
    simulate(read_in_a_loop_only, 3, steps=rounds)


@dace.program
def scaled(A: dace.float64[N, N], B: dace.float64[N, N]):
    for i in range(steps):
        B[:] = alpha * A + i * (A @ B)


def test_symbols_besides_those_of_shapes_are_sizes():
    simulate(scaled, 3, steps=2, alpha=2.5)
    program = distribute(scaled, 3, dict(N=7, steps=2, alpha=2.5))
    assert program.sdfg.symbols["alpha"] == dace.float64
    for sizes, match in (
        (dict(N=7, alpha=1.5), "sizes of steps are missing"),
        (dict(N=7.5, alpha=1.5, steps=1), "size N must be an integer, got 7.5"),
        (dict(N=7, alpha="1", steps=1), "size alpha must be a number, got '1'"),
    ):
        with pytest.raises(ValueError, match=match):
            distribute(scaled, 3, sizes)


@dace.program
def named_like_extents(n1: dace.float64[n0, n0], B: dace.float64[n0, n0]):
    for n2 in range(2):
        B[:] = n1 @ B + n2


def test_names_of_local_extents_clash_with_nothing():
    simulate(named_like_extents, 3, n0=5)


@dace.program
def mixed(A: dace.float32[N, N], B: dace.float64[N, N], C: dace.int32[N, N]):
    return np.einsum("ij,jk->ik", A, B), (B @ C).T @ A


def test_operands_of_different_types():
    simulate(mixed, 3)


@dace.program
def broadcast(A: dace.float64[N, J], row: dace.float64[J], column: dace.float64[N, 1], B: dace.float64[N, J]):
    for i, j in dace.map[0:N, 0:J]:
        A[i, j] += 2.0 * row[j]
    B[:] = row
    column[:] = 2.0 * column + 1.0
    return A + column + B


def test_rows_and_columns_are_broadcast():
    simulate(broadcast, 4)


@dace.program
def diagonal(A: dace.float64[N, N], x: dace.float64[N]):
    for i in dace.map[0:N]:
        x[i] = 2.0 * A[i, i] + x[i]


def test_diagonals_in_expressions():
    simulate(diagonal, 3)


@dace.program
def summed_along_an_axis_of_none(A: dace.float64[N, N], C: dace.float64[N, N]):
    for i, _j, k in dace.map[0:N, 0:N, 0:N]:
        C[i, k] += 2.0 * A[i, k]


def test_a_sum_counts_indices_that_no_operand_has():
    simulate(summed_along_an_axis_of_none, 3)


@dace.program
def transposed_in_a_loop(A: dace.float64[N, N], B: dace.float64[N, N]):
    for _ in range(2):
        T = B.T
        A[:] = T @ A
    return T @ A


def test_a_transpose_that_is_read_after_its_loop_is_kept():
    simulate(transposed_in_a_loop, 3)


@dace.program
def one_element(A: dace.float64[N, 1], x: dace.float64[1], s: dace.float64):
    t = 1.0 / s
    return t * np.einsum(",ij->ij", t, A), A @ x


def test_scalars_and_arrays_of_one_element():
    simulate(one_element, 3)


@dace.program
def same_twice(A: dace.float64[N, N], B: dace.float64[N, N]):
    C = np.empty_like(A)
    np.einsum("ij,jk->ik", A, B, out=C)
    return A, C


def test_an_input_is_returned_and_an_output_is_named():
    simulate(same_twice, 3)


@dace.program
def traces(A: dace.float64[I, K], B: dace.float64[J, K]):
    T = B @ B.T
    return np.einsum("mm,jm,mk->km", T, T, B * B), A.T @ A


@pytest.mark.slow
def test_ranks_that_hold_nothing_of_some_tensors():
    """Every tensor has ranks that hold nothing of it; what they hold nothing of has extents that fit."""
    for ranks in (3, 4, 7):
        for sizes in (dict(I=1, J=1, K=4), dict(I=7, J=4, K=7), dict(I=2, J=5, K=3)):
            simulate(traces, ranks, **sizes)


@dace.program
def overwritten(A: dace.float64[I, K], B: dace.float64[J, J], C: dace.float64[I, I]):
    A += 0.1 * (C @ A)
    B[:] = 0.3 * np.einsum("ik,ik,jm->mj", A, A, B)
    A[:] = np.einsum("li,lk->ik", C, A)


def test_what_is_read_and_overwritten_in_one_state_is_read_first():
    simulate(overwritten, 3)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_every_program_of_einsums(program):
    simulate(program, 3)


@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_linear_systems(ranks):
    simulate(linear_systems, ranks)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mttkrp", "sweeps", "in_place", "linear_systems"])
def test_extents_of_0(name):
    """Each symbol in turn, and all: a sum over nothing is zero, as in NumPy."""
    symbols = sizes_of(PROGRAMS[name])
    for empty in [*symbols, tuple(symbols)]:
        simulate(PROGRAMS[name], 4, **dict.fromkeys(empty, 0))


PRODUCTS = ("ij,jk->ik", "ij,kj->ki", "ij->ji", "ij,ij->ij", "ij,jk,kl->il", "ii,ij->ij", "ij,k->ki")
MATRICES = ("A", "B", "C", "D")
STATEMENTS = st.tuples(st.sampled_from(PRODUCTS), st.lists(st.sampled_from(MATRICES), min_size=4, max_size=4))
BLOCKS = st.tuples(st.sampled_from([None, None, 0, 1, 2]), st.lists(STATEMENTS, min_size=1, max_size=3))


def operands_of(einsum: str, names: list[str]) -> list[str]:
    terms = einsum.split("->")[0].split(",")
    return ["x" if len(term) == 1 else name for term, name in zip(terms, names, strict=False)]


def contraction(sdfg: dace.SDFG, einsum: str, names: list[str]) -> dace.SDFGState:
    """A state that writes half an einsum to the last tensor."""
    state, operands = dace.SDFGState("contract", sdfg), operands_of(einsum, names)
    node = Einsum("einsum", inputs={f"_{k}" for k in range(len(operands))}, outputs={"_result"})
    node.einsum_str, node.alpha = einsum, 0.5
    state.add_node(node)
    for number, name in enumerate(operands):
        memlet = dace.Memlet.from_array(name, sdfg.arrays[name])
        state.add_edge(state.add_read(name), None, node, f"_{number}", memlet)
    result = dace.Memlet.from_array(names[-1], sdfg.arrays[names[-1]])
    state.add_edge(node, "_result", state.add_write(names[-1]), None, result)
    return state


def in_a_row(region: Any, blocks: list[Any]) -> Any:
    for number, block in enumerate(blocks):
        region.add_node(block, is_start_block=number == 0, ensure_unique_name=True)
        if number:
            region.add_edge(blocks[number - 1], block, dace.InterstateEdge())
    return region


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.lists(BLOCKS, min_size=1, max_size=3), st.integers(1, 6), st.integers(1, 5))
def test_random_programs_with_loops(blocks, ranks, size):
    sdfg = dace.SDFG("random")
    wholes = {name: np.random.default_rng(k).uniform(-1, 1, (size, size)) for k, name in enumerate(MATRICES)}
    wholes["x"] = np.linspace(-1, 1, size)
    for name, array in wholes.items():
        sdfg.add_array(name, [N] * array.ndim, dace.float64)
    after, items = {name: np.copy(array) for name, array in wholes.items()}, []
    for number, (rounds, statements) in enumerate(blocks):
        states = [contraction(sdfg, *statement) for statement in statements]
        index = f"t{number}"
        loop = LoopRegion(f"loop{number}", f"{index} < {rounds}", index, f"{index} = 0", f"{index} = {index} + 1")
        items += states if rounds is None else [in_a_row(loop, states)]
        for einsum, names in statements * (1 if rounds is None else rounds):
            after[names[-1]] = 0.5 * np.einsum(einsum, *(after[name] for name in operands_of(einsum, names)))
    results = SimulatedRanks(distribute(in_a_row(sdfg, items), ranks, dict(N=size))).run(**wholes)
    check(results, after)
