"""Where DaCe's frontend differs from Python and NumPy: types, sizes, names, arguments."""

import math

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
def types_of_functions_of_python(x: dace.float32[N], y: dace.float64[N], s: float, n: dace.int32):
    share, most, total = float(N) / 3, max(N, 4) * 0.5, np.sum(y)
    sizes = share * x + most * x + abs(N - 9) * x + min(N, 3) * x + round(N / 3) * x + math.sqrt(N) * x
    return sizes, float(total) * x, abs(total) * x, abs(s) * x, float(n) * x, min(s, 2.0) * x


@dace.program
def conditions_in_turn(x: dace.float64[N], y: dace.float64[N]):
    for i in range(N):
        if i > 0 and x[i] < x[i - 1] and y[i - 1] > 0:
            x[i] = x[i - 1] * y[i - 1]
    for i in range(1, N):
        j, key = i - 1, x[i]
        while j >= 0 and x[j] > key:
            x[j + 1] = x[j]
            j -= 1
        x[j + 1] = key
    k, odd = 0, 0
    while k < N and y[k] < 2.0:
        k += 1
        if k % 2 == 0:
            continue
        odd += 1
    return k, odd


@dace.program
def truths(A: dace.float64[N, N], z: dace.complex64[N], k: dace.int32[N, N], x: dace.float64[N]):
    steps = 0
    while not np.all(np.abs(x) < 0.1):
        x *= 0.5
        steps += 1
    if np.any(k > 2) and not np.all(A > 0.2):
        x += 1
    return steps, np.any(A > 0.9), np.all(A > -0.9, axis=0), z.any(), np.all(k, axis=1, keepdims=True), (k > 2).any(1)


@dace.program
def equal_distances(x: dace.float64[N], s: dace.float64):
    y = np.zeros(1)
    for i in dace.map[0:1]:
        y[i] = x[i] + i * s
    return np.linspace(s, 3.0, N), np.linspace(s, 3.0, 1) + x, np.linspace(-1, s, 5), y


@dace.program
def without_a_value(x: dace.float64[N]):
    x *= 2.0
    return


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


@dace.program
def conditions_without_truth(x: dace.float64[N], k: dace.int64, s: dace.float64, flag: dace.bool_):
    steps = 0
    done = False
    if not (k > 1):
        x += 5
    if np.logical_and(k > 1, s > 5) or np.logical_xor(k > 1, flag):
        x *= 3
    if not flag:
        x += 1
    elif not (s < -5):
        x += 7
    while not done and steps < 10:
        x *= 0.5
        steps += 1
        if np.sum(x) < 0.1:
            done = True
    within = s > 0.2 and s < 0.9
    return x * within, steps


@dace.program
def equal_numbers(x: dace.float64[N], k: dace.int64, s: dace.float64, p: float):
    t = 0.0
    if s == 0.75 and p != 0.25:
        x += 1
    if k / 2 == 1.5:
        x += 2
    while t < 1.0:
        t += 0.25
        if t == 0.75:
            x += 4
    for i in range(4):
        if i * s != 1.5:
            x += 8
        if i // 2 == 1:
            x[i] += 16
    return x * 1.0


@dace.program
def quotients_of_literals(x: dace.float32[N, K], k: dace.int32[N]):
    n, m = x.shape
    rows = x.shape[0]
    y = x * 1
    y = 1 / 3 * y
    return y * (2 * np.pi), x / n - x.sum() / m, (2**0.5) * x, k * (rows // 2)


@dace.program
def arrays_that_swap_names(x: dace.float64[N], y: dace.float64[N]):
    old = x * 1
    new = y * 1
    for _ in range(3):
        old, new = new, old
        new[:] = old * 2 + new
    return old * 1, new * 1


PROGRAMS = [
    Program(program, sizes_of(program, SIZES))
    for program in (
        types_of_integers,
        types_of_sizes,
        types_of_literals,
        types_of_functions_of_python,
        conditions_in_turn,
        truths,
        without_a_value,
        targets_of_tuples,
        conditions_with_assignments,
        variables_of_loops_in_conditions,
        arguments_with_new_values,
        names_of_functions,
        indices_in_variables,
        statistics,
        blocks,
        complex_norms,
        quotients_of_literals,
        arrays_that_swap_names,
    )
]
PROGRAMS += [Program(equal_distances, {"N": size}) for size in (1, 7)]
PROGRAMS += [
    Program(program, {"N": 7}, lambda *_, values=values: values)
    for program, values in (
        (conditions_without_truth, {"k": 0, "s": 0.0, "flag": False}),
        (conditions_without_truth, {"k": 2, "s": 0.5, "flag": True}),
        (equal_numbers, {"k": 3, "s": 0.75, "p": 0.5}),
        (equal_numbers, {"k": 2, "s": 0.5, "p": 0.25}),
    )
]
