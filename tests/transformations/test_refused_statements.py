"""Statements that cannot be distributed, or differ from NumPy, are named when a program is read."""

import dace
import numpy as np
import pytest
from einsum_programs import SIZES, N

from dace_redist import distribute
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
def every_second(A: dace.float64[N, N]):
    for i, j in dace.map[0:N:2, 0:N]:
        A[i, j] = 2.0 * A[i, j]


@dace.program
def factor_inside(A: dace.float64[N, N]):
    return np.einsum(",ij->ij", 2.0, A)


@dace.program
def called_within(A: dace.float64[N, N]):
    return A * np.cross(A, A)


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


@dace.program
def complex_to_real(A: dace.complex128[N, N], B: dace.float64[N, N]):
    B[:] = A + B


@dace.program
def printed(A: dace.float64[N, N]):
    B = A @ A
    print(B)
    return B


@dace.program
def with_a_step(A: dace.float64[N, N]):
    return A[::2] @ A


@dace.program
def returned_with_a_step(A: dace.float64[N, N]):
    return A[1::2]


@dace.program
def shrinking(A: dace.float64[N, N]):
    for k in range(N - 1):
        A[k + 1 :, k] /= A[k, k]


@dace.program
def growing(A: dace.float64[N, N]):
    for k in range(1, N):
        t = np.zeros((k,))
        A += np.sum(t)


@dace.program
def two_names(A: dace.float64[N, N], r: dace.float64[N]):
    residual = A @ r
    p = residual
    for _ in range(2):
        residual = residual - A @ p
    return p


@dace.program
def total_of_floats(A: dace.float64[N, N]):
    total = 0
    for i in range(N):
        total += np.sum(A[i])
    return total * A


@dace.program
def best_of_floats(A: dace.complex128[N, N]):
    best = 0.0
    best = A[0, 0]
    return best * A


@dace.program
def variable_before_a_loop(A: dace.float64[N, N]):
    i = 5
    A *= i
    for i in range(3):
        A += i
    return A * i


@dace.program
def counter_changed(A: dace.float64[N, N]):
    for i in range(3):
        i = i + 1
        A *= i


@dace.program
def view_with_a_new_value(A: dace.float64[N, N]):
    a = A[0:1, 0]
    a = a + 1.0
    return a * A


@dace.program
def one_element_with_two_names(A: dace.float64[N, N]):
    a = np.zeros((1,))
    b = a
    b[0] = 5.0
    return a * A


@dace.program
def elements_of_a_call(A: dace.float64[N, N], x: dace.float64[N]):
    (a, (b, c)) = A @ x, x[0:2]
    return a * b + c


@dace.program
def factor_changed(A: dace.float64[N, N], s: dace.float64):
    s *= 2.0
    return s * A


@dace.program
def constant_changed(A: dace.float64[N, N]):
    return factor_changed(A, 3.0)


@dace.program
def changed_before_a_new_value(x: dace.float64[N]):
    x += 1.0
    x = 2.0 * x
    return x


@dace.program
def changed_after_a_branch(x: dace.float64[N], s: dace.float64):
    if s > 0.0:
        x = 2.0 * x
    x[0] = 1.0
    return x


@dace.program
def product_with_output(A: dace.float64[N, N], B: dace.float64[N, N]):
    np.matmul(A, A, out=B)


@dace.program
def running_sum(x: dace.float64[N]):
    return np.cumsum(x)


@dace.program
def variance_of_integers(k: dace.int64[N]):
    return np.var(k)


@dace.program
def index_of_an_array(A: dace.float64[N, N], x: dace.float64[N]):
    k = np.argmax(x)
    return A[k] * 2.0, k


@dace.program
def choice_of_numbers(A: dace.float64[N, N], s: dace.float64):
    a = 2.0 if s > 0 else 3.0
    return a * A


@dace.program
def product_in_place(A: dace.float64[N, N], B: dace.float64[N, N]):
    A @= B


@dace.program
def two_comparisons(A: dace.float64[N, N], s: dace.float64):
    if -1.0 < s < 1.0:
        A += 1.0


@dace.program
def halves(A: dace.float64[N, N]):
    a, b = 1, 1
    for _ in range(3):
        a, b = b, a * 0.5
    return a * A


@dace.program
def pairs_of_axes(A: dace.float64[N, N]):
    return np.tensordot(A, A, axes=([0, 2], [1, 0]))


@dace.program
def returned_early(A: dace.float64[N, N], s: dace.float64):
    if s > 0.0:
        return A @ A
    return A + s


@dace.program
def in_place_with_halves(k: dace.int64[N]):
    k += 0.5


@dace.program
def roots_of_bytes(b: dace.uint8[N]):
    return np.sqrt(b)


@dace.program
def weak_or_not(x: dace.float32[N], s: dace.float64):
    return x * s


@dace.program
def before_the_first(x: dace.float64[N]):
    for i in range(N):
        x[i] += x[i - 1]


REFUSED = {
    in_place_with_halves: r"k \+= 0\.5: a \+= b computes elements of float64, which int64 cannot hold, .*; write a = a",
    roots_of_bytes: r"np\.sqrt\(b\): np\.sqrt computed with float16 .*; convert the array first",
    weak_or_not: r"x \* s: .* float32 if the scalar argument is a number of Python, and of float64 .*: declare it as",
    before_the_first: r"x\[i - 1\]: the index i - 1 is negative at i = 0, .*; write such iterations before the loop",
    returned_early: r"return A @ A: a return in a branch or loop cannot be distributed; assign the result to a var",
    returned_with_a_step: r"return A\[1::2\]: cannot be distributed: it takes \[1:N:2, 0:N\], a slice with a step",
    shrinking: r"A\[k \+ 1 :, k\] /= A\[k, k\]: cannot be distributed: the extents \(N - k - 1, 1\) of a slice of A",
    growing: r"t = np\.zeros\(\(k,\)\): cannot be distributed: the extents \(k,\) of t change while the program runs",
    two_names: r"residual and p are one array, so a new value of residual .*; write p = np\.copy\(residual\) before",
    total_of_floats: r"total \+= np.*: total holds int64 .* a value of float64 is assigned; write .* such as 0\.0",
    best_of_floats: r"best = A\[0, 0\]: best holds float64 .* a value of complex128 is assigned; write .* such as 0j",
    variable_before_a_loop: r"i in range\(3\):: i has values other than .*: give the loop's variable another name",
    counter_changed: r"for i in range\(3\):: i has values other than those of the loop over it",
    view_with_a_new_value: r"a = a \+ 1\.0: a is a view of another array, .*; give the result another name",
    one_element_with_two_names: r"b\[0\] = 5\.0: b and a are one array in NumPy, but two here, .*; use one name, or",
    elements_of_a_call: r"\(b, c\) takes the elements of one value: assign \(b, c\) in a statement of its own",
    constant_changed: r"s \*= 2\.0: DaCe cannot read it \(.*constant \"s\".*; assign it to another variable first",
    index_of_an_array: r"return A\[k\] \* 2\.0, k: cannot be .*: its index \w+ is computed from an array; .* np\.where",
    choice_of_numbers: r"a = 2\.0 if s > 0 else 3\.0: .*; write a choice as np\.where\(s > 0, 2\.0, 3\.0\)",
    changed_before_a_new_value: r"x \+= 1\.0: x may still be the array of the caller, .*; give the new value",
    changed_after_a_branch: r"x\[0\] = 1\.0: x may still be the array of the caller",
    product_with_output: r"np\.matmul\(A, A, out=B\): .*; assign the result, as in C\[:\] = np\.matmul\(A, B\)",
    running_sum: r"return np\.cumsum\(x\): .*; write it as np\.tril\(np\.ones\(\(N, N\)\)\) @ x, or as a loop",
    variance_of_integers: r"np\.var is known for real floating-point numbers, got int64; convert the array",
    product_in_place: r"A @= B: .*; write A @= B as A\[:\] = A @ B",
    two_comparisons: r"if -1\.0 < s < 1\.0:: .*; compare two values at a time, as in 0 < a and a < 1",
    halves: r"a, b = b, a \* 0\.5: b holds int64 .* a value of float64 is assigned; write .* such as 0\.0",
    pairs_of_axes: r"np\.tensordot\(A.*: np\.tensordot: axes must be a number, or as many axes of .*, got \(\[0, 2\]",
    by_a_value: r"bounds of a loop .* depend on n: make it a dace\.symbol",
    not_written: r"T \+= A: reads (T|__return) before anything is written to it",
    on_the_diagonal: r"A\[i, i\] = x\[i\]: cannot be distributed: it writes A\[i, i\]",
    every_second: r"for i, j in dace.map.*: its index i runs over 0:N:2, with a step",
    factor_inside: r"np\.einsum.*operand 0 of np\.einsum is 2\.0: expected an array.*factors outside",
    called_within: r"A \* np\.cross\(A, A\): .*DaCe does not know this function \(np\.cross\).*write it as np\.einsum",
    returned_twice: r"return T, T: it returns T more than once; return it once, or np\.copy\(T\)",
    outer_of_matrices: r"np\.outer\(A, A\): np\.outer is known for 1-D, 1-D without options, got 2-D, 2-D; write it as",
    no_such_axis: r"np\.sum\(A, axis=2, keepdims=True\): np\.sum: A has no axis 2, but 2 dimensions",
    cholesky: r"np\.linalg\.cholesky\(A\): cannot be distributed: Cholesky is neither an einsum nor a linear system",
    complex_to_real: r"B\[:\] = A \+ B: complex numbers would be written to elements of float64.*np.real",
    printed: r"py:\d+: print\(B\): cannot be distributed: .* take it out",
    with_a_step: r"A\[::2\] @ A: cannot be distributed: it takes \[0:N:2, 0:N\], a slice with a step",
    oblong: r"np\.linalg\.inv\(A\): np\.linalg\.inv takes a square matrix, got \(4, 6\)",
}


@pytest.mark.parametrize("program", REFUSED, ids=lambda program: program.f.__name__)
def test_what_cannot_be_distributed_is_named(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=REFUSED[program]) as refused:
        sdfg = parse(program)
        rewritten(read_statements(sdfg, SIZES), sdfg)
    assert "\n" not in str(refused.value) and not list(tmp_path.iterdir())


def test_early_returns_of_an_sdfg_are_named():
    with pytest.raises(ValueError, match=r"return_if_\w+: a return in a branch or loop cannot .* at the end"):
        distribute(returned_early.to_sdfg(simplify=False), 2, dict(N=4))


def test_variables_of_loops_are_no_missing_sizes():
    with pytest.raises(ValueError, match=REFUSED[shrinking]):
        distribute(shrinking, 2, dict(N=4))
