"""Statements read from a program, evaluated one by one with NumPy, give the result of the program."""

from __future__ import annotations

from typing import Any

import dace
import einsum_programs
import numpy as np
import pytest
from einsum_programs import PROGRAMS, SIZES, N
from linear_systems import solved

from dace_redist.einsum.statement import Statement
from dace_redist.transformations.distribute import rewritten
from dace_redist.transformations.distribute.ir import Block, operations
from dace_redist.transformations.distribute.read.frontend import parse
from dace_redist.transformations.distribute.read.statements import read_statements
from dace_redist.transformations.distribute.rewrite import rewrite
from dace_redist.transformations.distribute.rewrite.rules import equal_types, fold_transposes
from dace_redist.transformations.distribute.shapes import logical_shape


def interpret(body: Any, arrays: dict[str, np.ndarray], outer: int = 1) -> None:
    for item in body:
        if isinstance(item, Block):
            repeats = next(operations(item.bodies[0])).repeats  # of the loops around it, too, of which no body is empty
            for _ in range(repeats // outer):
                interpret(item.bodies[0], arrays, repeats)
        else:
            compute(item, arrays)


def compute(statement: Statement, arrays: dict[str, np.ndarray]) -> None:
    operands, einsum = [arrays[name] for name in statement.operands], statement.einsum
    if statement.solves:
        arrays[statement.result][...] = solved(str(einsum), *operands)
        return
    if not statement.elementwise:
        arrays[statement.result][...] = float(statement.alpha) * np.einsum(str(einsum), *operands)
        return
    names = {}
    for name, indices, operand in zip(statement.code.inputs, einsum.operands, operands, strict=False):
        aligned = np.einsum(f"{indices}->{''.join(i for i in einsum.result if i in indices)}", operand)
        shape = zip(einsum.result, arrays[statement.result].shape, strict=True)
        names[name] = aligned.reshape([n if i in indices else 1 for i, n in shape])
    exec(statement.code.text, {"sqrt": np.sqrt}, names)
    arrays[statement.result][...] = names[statement.code.output]


def run(sdfg: dace.SDFG, body: Any, given: dict[str, Any]) -> dict[str, np.ndarray]:
    arrays = {}
    for name, array in sdfg.arrays.items():
        shape = [int(dace.symbolic.evaluate(n, SIZES)) for n in logical_shape(array)]
        arrays[name] = np.array(given[name], float) if name in given else np.full(shape, np.nan)
    interpret(body, arrays)
    return arrays


@pytest.mark.slow
@pytest.mark.parametrize("fold", [False, True], ids=["as read", "transposes folded"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_statements_compute_what_the_program_does(name, fold):
    program = PROGRAMS[name]
    given = einsum_programs.arguments(program)
    returned, after = einsum_programs.expected(program, given)
    sdfg = parse(program)
    body = rewrite(read_statements(sdfg, SIZES), [equal_types(sdfg)])
    if fold:
        body = rewrite(body, [fold_transposes], [n for n, array in sdfg.arrays.items() if not array.transient])
    arrays = run(sdfg, body, given)
    for argument, value in after.items():
        np.testing.assert_allclose(arrays[argument], value, rtol=1e-12, err_msg=argument)
    if returned is not None:
        many = returned if isinstance(returned, tuple) else (returned,)
        names = ["__return"] if len(many) == 1 else [f"__return_{k}" for k in range(len(many))]
        for result, value in zip(names, many, strict=True):
            np.testing.assert_allclose(arrays[result], value, rtol=1e-12, err_msg=result)


def test_transposed_operands_are_not_copied():
    sdfg = parse(PROGRAMS["sweeps"])
    einsums = [str(s.einsum) for s in operations(rewrite(read_statements(sdfg, SIZES), [fold_transposes]))]
    assert not any(text in ("ij->ji", "ab->ba") for text in einsums)
    assert einsums.count("ba,bc->ac") == 2  # A.T @ A and B.T @ B


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
