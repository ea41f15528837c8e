"""Where DaCe's frontend differs from Python and NumPy: types, sizes, names, arguments."""

import dace
import numpy as np

from programs.program import Program, sizes_of

K, N = (dace.symbol(name, dace.int64) for name in "KN")
SIZES = {"N": 7, "K": 5}


@dace.program
def types_of_integers(k: dace.int32[N], n: dace.int64[N], b: dace.uint8[N], x: dace.float32[N]):
    return k * 2, k // 3, k**2, n**3, b * 2, b * b, k * n, k / 2, x // 2, (k > 0) * (n > 0)


@dace.program
def types_of_sizes(k: dace.int32[N], x: dace.float32[N], s: dace.float32):
    for i in range(1, 4):
        x += x / i + i * x
    return x / N, N - x, k * N, s / N, x * (1 / (N - 1)), np.sum(x) / N, np.maximum(x, N // 2)


@dace.program
def types_of_literals(x: dace.float32[N], z: dace.complex64[N], y: dace.float64[N]):
    rate, decay, turn = 0.25, 2 * 0.5 / N, 1j
    m = 1.0 * x
    for step in range(1, 3):
        m = decay * m + (1 - decay) * x / (1 - rate**step)
    rate = rate * 2.0
    total = 1.0
    total = total + np.sum(y)
    return m, x * rate, z * (turn + 1), total * x, np.max(y) * x


@dace.program
def targets_of_tuples(A: dace.float64[N, N], x: dace.float64[N]):
    [a, b] = A @ x, A.T @ x
    (a, (b, c)) = b, (a, x * 2.0)
    [x[0], x[1]] = [x[1], x[0]]
    return a - 2.0 * b + c, (t := np.sum(x)) * t


@dace.program
def conditions_with_assignments(A: dace.float64[N, N], x: dace.float64[N]):
    while (size := np.linalg.norm(x)) < 100.0:
        x[:] = x * 2.0 + A @ x / size
    if (total := np.sum(x)) > -1000.0:
        x += total
    return size, x


@dace.program
def variables_of_loops_in_conditions(A: dace.float64[N, N], x: dace.float64[N]):
    for i in range(4):
        for j in range(i + 1):
            x += A[j]
        if np.sum(x) > 3.0 and i > 1:
            break
    for k in range(i, N):
        x[k] += 0.5 * k
    if i == 3:
        x *= 2.0
    n = 0
    while n < i + j:
        n += 1
        x += n
    return x


@dace.program
def normalised(v: dace.float64[N]):
    v = v / np.linalg.norm(v)
    v *= 2.0
    return v


@dace.program
def arguments_with_new_values(A: dace.float64[N, N], x: dace.float64[N], y: dace.float64[N], k: dace.int64):
    k = k + 6
    while k > 0:
        k -= 2
        x = A @ x + normalised(A[0])
        x += 1.0
    z = y + 1.0
    if x[0] > -1e6:
        y = normalised(z) + x
    return x, y, k


@dace.program
def names_of_functions(A: dace.float64[N, N], x: dace.float64[N]):
    diff, test = 1.0, 0
    trace = np.trace(A)
    while diff > 1e-3 and test + 1 < 20:
        y = A @ x / (np.linalg.norm(x) + trace * trace)
        diff = np.max(np.abs(y - x))
        x[:] = y
        test += 1
    return diff, test


@dace.program
def indices_in_variables(A: dace.float64[N, N], x: dace.float64[N], k: dace.int64):
    k = k * 0
    while k < 4:
        j = k
        k = k + 1
        x[j] += x[k] * j
        A[j, k] -= 2.0
        A[:, j] *= x


@dace.program
def statistics(A: dace.float64[N, K], B: dace.float32[N, K], C: dace.float64[N, K]):
    C[:] = (A - A.mean(axis=0)) / np.std(A, axis=0, ddof=1)
    large = A > 0.2
    spread = A.std(axis=1, keepdims=True)
    return np.var(A), spread, np.var(B, axis=(0, 1)), B.std(axis=-1), np.sum(large), large.mean(axis=0)


@dace.program
def blocks(A: dace.float64[N, N], B: dace.float64[N, K], x: dace.float64[N], y: dace.float64[K]):
    upper, clipped = np.triu(A, 1 - K), B.clip(-0.5, 0.5)
    sums = np.kron(A, np.eye(K)) @ np.kron(x, y)
    return np.tril(A), upper, np.tril(B, k=-1) + np.triu(B), np.kron(A, B), sums, clipped, A.trace()


@dace.program
def complex_norms(z: dace.complex128[N], Z: dace.complex64[N, K], x: dace.float64[N]):
    return np.vdot(z, x), np.vdot(Z, Z), np.linalg.norm(z), np.linalg.norm(Z, axis=0), z.conjugate()


PROGRAMS = [
    Program(program, sizes_of(program, SIZES))
    for program in (
        types_of_integers,
        types_of_sizes,
        types_of_literals,
        targets_of_tuples,
        conditions_with_assignments,
        variables_of_loops_in_conditions,
        arguments_with_new_values,
        names_of_functions,
        indices_in_variables,
        statistics,
        blocks,
        complex_norms,
    )
]
