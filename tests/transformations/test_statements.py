"""Loops that may not run, symbols besides those of shapes, ranks that hold nothing; what a part keeps."""

import ast

import dace
import numpy as np
import pytest
from programs.program import simulate

from dace_redist import distribute
from dace_redist.transformations.distribute.read.dace_repairs.assignments import sliced_axes

I, J, K, N, steps = (dace.symbol(name, dace.int64) for name in ("I", "J", "K", "N", "steps"))  # noqa: E741
alpha = dace.symbol("alpha", dace.float64)

pytestmark = pytest.mark.usefixtures("small_transients_share_memory")


@dace.program
def maybe_written(A: dace.float64[N, N], B: dace.float64[N, N]):
    for _ in range(steps):
        A[:] = B @ B
    return A @ B


@dace.program
def never_read(A: dace.float64[N, N], B: dace.float64[N, N]):
    for _ in range(steps):
        A[:] = B @ B


@dace.program
def read_in_a_loop_only(A: dace.float64[N, N], B: dace.float64[N, N]):
    kept = A @ B
    for _ in range(steps):
        inner = kept @ A
        B[:] = 0.1 * (inner @ A)
    return B @ A


@pytest.mark.parametrize(
    "program", [maybe_written, never_read, read_in_a_loop_only], ids=lambda program: program.f.__name__
)
@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_loops_that_may_not_run(program, rounds):
    """A tensor that such a loop writes is an input, and its memory is not used for something else too early."""
    simulate(program, 3, {"N": 7, "steps": rounds})


@dace.program
def scaled(A: dace.float64[N, N], B: dace.float64[N, N]):
    for i in range(steps):
        B[:] = alpha * A + i * (A @ B)


def test_symbols_besides_those_of_shapes_are_sizes():
    simulate(scaled, 3, {"N": 7, "steps": 2, "alpha": 2.5})
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
def traces(A: dace.float64[I, K], B: dace.float64[J, K]):
    T = B @ B.T
    return np.einsum("mm,jm,mk->km", T, T, B * B), A.T @ A


@pytest.mark.slow
def test_ranks_that_hold_nothing_of_some_tensors():
    """Every tensor has ranks that hold nothing of it; what they hold nothing of has extents that fit."""
    for ranks in (3, 4, 7):
        for sizes in (dict(I=1, J=1, K=4), dict(I=7, J=4, K=7), dict(I=2, J=5, K=3)):
            simulate(traces, ranks, sizes)


@pytest.mark.parametrize(
    "text", ["0", "1:", "...", "..., 0", "0, ...", "0, 1:, ..., 0", ":, ..., 1", "0, 1:", "..., :, 0, :"]
)
def test_axes_that_a_part_keeps(text):
    array = np.empty((2, 3, 4, 5))
    kept = sliced_axes(ast.parse(f"array[{text}]", mode="eval").body, array.ndim)
    assert [array.shape[axis] for axis in kept] == list(eval(f"array[{text.replace('1:', ':')}]").shape)
