"""Statements that cannot be distributed are named when a program is read."""

import dace
import numpy as np
import pytest
from einsum_programs import SIZES, N

from dace_redist.transformations.distribute import rewritten
from dace_redist.transformations.distribute.read import read_statements
from dace_redist.transformations.distribute.read.frontend import parse


@dace.program
def cholesky(A: dace.float64[N, N]):
    return np.linalg.cholesky(A)


@dace.program
def oblong(A: dace.float64[4, 6]):
    return np.linalg.inv(A)


@dace.program
def by_a_value(A: dace.float64[N, N], n: dace.int64):
    for _ in range(n):
        A[:] = 0.1 * (A @ A)


@dace.program
def not_written(A: dace.float64[N, N]):
    T = np.empty_like(A)
    T += A
    return T


@dace.program
def on_the_diagonal(x: dace.float64[N], A: dace.float64[N, N]):
    for i in dace.map[0:N]:
        A[i, i] = x[i]


@dace.program
def factor_inside(A: dace.float64[N, N]):
    return np.einsum(",ij->ij", 2.0, A)


@dace.program
def called_within(A: dace.float64[N, N]):
    return A * np.kron(A, A)


@dace.program
def returned_twice(A: dace.float64[N, N]):
    T = A @ A
    return T, T


@dace.program
def outer_of_matrices(A: dace.float64[N, N]):
    return np.outer(A, A)


@dace.program
def no_such_axis(A: dace.float64[N, N]):
    return np.sum(A, axis=2, keepdims=True)


REFUSED = {
    by_a_value: r"bounds of a loop .* depend on n: make it a dace\.symbol",
    not_written: r"T \+= A: reads (T|__return) before anything is written to it",
    on_the_diagonal: r"A\[i, i\] = x\[i\]: cannot be distributed: it writes A\[i, i\]",
    factor_inside: r"np\.einsum.*operand 0 of np\.einsum is 2\.0: expected an array.*factors outside",
    called_within: r"A \* np\.kron\(A, A\): .*DaCe does not know this function \(np\.kron\).*write it as np\.einsum",
    returned_twice: r"return T, T: it returns T more than once; return it once, or np\.copy\(T\)",
    outer_of_matrices: r"np\.outer\(A, A\): np\.outer is known for 1-D, 1-D without options, got 2-D, 2-D; write it as",
    no_such_axis: r"np\.sum\(A, axis=2, keepdims=True\): np\.sum: A has no axis 2, but 2 dimensions",
    cholesky: r"np\.linalg\.cholesky\(A\): cannot be distributed: Cholesky is neither an einsum nor a linear system",
    oblong: r"np\.linalg\.inv\(A\): np\.linalg\.inv takes a square matrix, got \(4, 6\)",
}


@pytest.mark.parametrize("program", REFUSED, ids=lambda program: program.f.__name__)
def test_what_cannot_be_distributed_is_named(program):
    with pytest.raises(ValueError, match=REFUSED[program]):
        sdfg = parse(program)
        rewritten(read_statements(sdfg, SIZES), sdfg)
