"""A program for each kind of statement: parts, branches, loops, reductions, elements by index, types."""

import dace
import numpy as np

from programs.program import Program, sizes_of

I, J, K, N, n0 = (dace.symbol(name, dace.int64) for name in ("I", "J", "K", "N", "n0"))  # noqa: E741
SIZES = {"I": 7, "J": 5, "K": 6, "N": 6, "n0": 5}


@dace.program
def by_index(A: dace.float64[N, N], B: dace.float64[N, N]):
    for i, j in dace.map[0:N, 0:N]:
        B[i, j] = A[i, j] * i


@dace.program
def parts(A: dace.float64[I, J], B: dace.float64[I, J]):
    B[2:4, 1:3] = A[4:6, :2]
    B[:, 3] = A[0, 0] * A[:, 4] + B[1, 3]
    B[0] *= 2.0
    C = A[1:, :] - A[:-1, :]
    return C @ B[1, :], B[2, 1]


@dace.program
def transformed(x: dace.complex128[N], A: dace.float64[I, J]):
    y = np.empty_like(x)
    for k in range(N):
        y[k] = np.sum(x * np.exp(2j * np.pi * k / N))
    for d in range(A.ndim):
        A += d
    return y, np.sqrt(1j * N) * x, A / A.ndim


@dace.program
def at_most_a_half(s: dace.float64):
    r = s
    if s > 0.5:
        r = 0.5
    return r


@dace.program
def of_a_function_with_a_condition(A: dace.float64[I, J]):
    t = 2 * np.sum(A)
    u = 0.01 * t
    return at_most_a_half(t), at_most_a_half(u), at_most_a_half(t - 100)


@dace.program
def ones(A: dace.float64[1, N], B: dace.float64[N, 1], C: dace.float64[1, 1, 1], s: dace.float64[1]):
    P = A @ B
    Q = B @ A
    B += A[0, :, None] * s
    return P, Q, np.einsum("ij,klm->jm", A, C), A[0], C * s, np.sum(B, axis=0), np.amax(A, axis=1), B[:, 0]


@dace.program
def positions(A: dace.float64[I, J], n: dace.int64[I, J]):
    B = n * n  # several elements are extreme
    return np.argmax(A), np.argmin(B, axis=0), A.argmax(axis=-1), np.argmin(B), n.argmin(axis=1)


@dace.program
def while_and_branches(A: dace.float64[N, N], x: dace.float64[N], flag: dace.int64):
    steps = 0
    size = np.linalg.norm(x)
    while size < 1000.0:
        x[:] = A @ x + x
        size = np.linalg.norm(x)
        if steps == 1:
            x[0] = 3.0
        elif flag > 0:
            x *= 2.0
        else:
            x += 1.0
        if steps > 3:
            break
        steps = steps + 1
    return x, size


@dace.program
def axes_and_methods(A: dace.float64[I, J, N], x: dace.float64[J]):
    B = np.moveaxis(A, (0, 1), (2, 0)) + np.swapaxes(np.swapaxes(A, 0, 2), 0, 1)
    return B, A.sum(axis=(0, 2)).dot(x), A.mean(axis=1, keepdims=True), x.copy() @ A[0]


@dace.program
def dimensions_of_one(A: dace.float64[1, N], B: dace.float64[N, 1], C: dace.float64[N, N, 1], s: dace.float64[1]):
    s[0] = 2.0 * s[0]
    C[:, :, 0] += A[0]
    C[:, 0, :] *= 2.0
    return A[:, :] * 2.0, A.T @ A, np.transpose(C, (2, 0, 1)), np.einsum("i,j->ij", s, A[0]), B[..., 0], A[0:1, 1:] * s


@dace.program
def symbols_by_name(A: dace.int64[N, N], s: dace.int64):
    A[:, 1] = s * 3
    t = s - 1
    return t, A


@dace.program
def infinite(A: dace.float64[N, N]):
    B = np.log(A * 0.0)
    return np.max(B, axis=0), np.min(-B), np.max(B)


@dace.program
def unused(A: dace.float64[N, N], x: dace.float64[N]):
    for _ in range(2):
        B = A - x[:, None]  # noqa: F841
        A[:] = A * 2.0
    return A


@dace.program
def mixed(A: dace.float32[N, N], B: dace.float64[N, N], C: dace.int32[N, N]):
    return np.einsum("ij,jk->ik", A, B), (B @ C).T @ A


@dace.program
def broadcast(A: dace.float64[N, J], row: dace.float64[J], column: dace.float64[N, 1], B: dace.float64[N, J]):
    for i, j in dace.map[0:N, 0:J]:
        A[i, j] += 2.0 * row[j]
    B[:] = row
    column[:] = 2.0 * column + 1.0
    return A + column + B


@dace.program
def diagonal(A: dace.float64[N, N], x: dace.float64[N]):
    for i in dace.map[0:N]:
        x[i] = 2.0 * A[i, i] + x[i]


@dace.program
def summed_along_an_axis_of_none(A: dace.float64[N, N], C: dace.float64[N, N]):
    for i, _j, k in dace.map[0:N, 0:N, 0:N]:
        C[i, k] += 2.0 * A[i, k]


@dace.program
def transposed_in_a_loop(A: dace.float64[N, N], B: dace.float64[N, N]):
    for _ in range(2):
        T = B.T
        A[:] = T @ A
    return T @ A


@dace.program
def one_element(A: dace.float64[N, 1], x: dace.float64[1], s: dace.float64):
    t = 1.0 / s
    return t * np.einsum(",ij->ij", t, A), A @ x


@dace.program
def same_twice(A: dace.float64[N, N], B: dace.float64[N, N]):
    C = np.empty_like(A)
    np.einsum("ij,jk->ik", A, B, out=C)
    return A, C


@dace.program
def overwritten(A: dace.float64[I, K], B: dace.float64[J, J], C: dace.float64[I, I]):
    A += 0.1 * (C @ A)
    B[:] = 0.3 * np.einsum("ik,ik,jm->mj", A, A, B)
    A[:] = np.einsum("li,lk->ik", C, A)


@dace.program
def named_like_extents(n1: dace.float64[n0, n0], B: dace.float64[n0, n0]):
    for n2 in range(2):
        B[:] = n1 @ B + n2


@dace.program
def converted(A: dace.float32[N, N], B: dace.float64[N, N], a: dace.float32):
    C = A.astype("float64") @ B
    return (C + B.astype(np.float32)).astype(float), a.astype(np.float64) * B.astype(np.complex128)


@dace.program
def loops_of_one_variable(A: dace.float64[N, N], x: dace.float64[N]):
    for _ in range(3):
        x += 1.0
        for _ in range(2):
            x[:] = 0.3 * (A @ x)
    for i in range(3):
        x += A[i]
        for i in range(2):
            x *= A[i, 0]
        x -= A[:, i]


@dace.program
def last_rows_added(A: dace.float64[N, N], x: dace.float64[N]):
    for i in range(2):
        x += A[i]
    x += A[i]


@dace.program
def variables_after_their_loops(A: dace.float64[N, N], x: dace.float64[N]):
    for i in range(3):
        x += A[i]
    x[i] = 7.0
    x -= A[i] * i
    for k in range(N - 1, 0, -2):
        x += A[k]
        if np.sum(x) > 0.0:
            break
    for i in range(2):
        last_rows_added(A, x)
        x *= A[:, i]
    last = i
    for i in range(2):
        x -= A[i]
    return np.where(A[k] > 0, x, last + k), i


@dace.program
def last_rows_added_in_a_loop(A: dace.float64[N, N], x: dace.float64[N]):
    for i in range(2):
        last_rows_added(A, x)
        x += A[:, i]


@dace.program
def conditions_assigned(x: dace.float64[N]):
    first, second = np.sum(x) > 0.0, np.sum(x) <= 0.0
    old = first
    first = False
    first, second = [second, first]
    count = 0.0
    while old or first:
        count += 1.0
        old, first = False, False
    return count, second


@dace.program
def scalars_and_arrays_assigned(A: dace.float64[N, N], x: dace.float64[N]):
    value = np.dot(x, A @ x)
    old = value
    change = 0.0
    a, b = np.sum(A), np.trace(A)
    P, Q = A @ A, A @ A.T
    P, Q = Q, P
    one = np.zeros((1,))
    one = one
    one[0] = 2.0
    for _ in range(3):
        x[:] = A @ x
        value = np.dot(x, x)
        change += value - old
        old = value
        a, b = b, a + b
    return change, a, b, P, Q, one


@dace.program
def chosen(
    A: dace.float32[N, J], B: dace.float64[N, J], c: dace.float64[N], k: dace.int64[N, 1], Z: dace.complex128[N, J]
):
    positive = (A > 0.2).T
    B[A < 0] *= 3.0
    B[B > 0.5] = 1.5
    return (
        np.where(A > 0, A, 1.0),
        np.where(k > 0, A, -A),
        np.where(c[:, None] > 0, 0, Z),
        np.where(positive, 1, 0),
        np.where(c > c[0], c, 2),
        np.where(c > 0, N, c),
        positive,
    )


@dace.program
def shapes_in_other_words(A: dace.float64[I, J, K], B: dace.float64[I, K, J]):
    C = np.empty((I, J * K))
    C[:] = A.reshape(I, -1)
    pairs = np.tensordot(A, B, axes=([-1, 1], [1, -1]))
    x = B[0, :, 0]
    flat = C.reshape(-1) @ np.reshape(B, I * J * K)
    return flat, A @ x, x @ B, pairs, np.tensordot(A, B, axes=(0, 0)), np.tensordot(C, C.T, 1)


@dace.program
def numbers_from_numbers(A: dace.float64[N, N], b: dace.float64[1], c: dace.float64[1]):
    c[:] = A[0, :1] * 0.5
    first = A[1, :1] * 0.5
    second = first * 3.0
    size = A[1, 1] * 0.5
    twice = size * 2.0
    if size > -2.0:
        b += c * 2.0
    return first, second, twice


@dace.program
def rolled(A: dace.float64[I, J, N], x: dace.float64[N]):
    for _ in range(2):
        A[:] = 0.5 * (np.roll(A, 1, axis=0) + np.roll(A, -2, 1)) - np.roll(A, 3, axis=-1)
        x[:] = np.roll(x, 0) + np.roll(x, -5)
    return np.roll(x, -1)


@dace.program
def running_sums(A: dace.float64[I, J, N], q: dace.int32[N], x: dace.float32[N]):
    for _ in range(2):
        A[:] = A - 0.25 * np.cumsum(A, axis=1)
    return np.cumsum(x), q[1:].cumsum(), np.cumsum(A, -1) + np.cumsum(A, axis=0)


@dace.program
def loops_up_to_scalars(steps: dace.int64, first: dace.int32, A: dace.float64[N, N], x: dace.float64[N]):
    for t in range(1, steps):
        x[1:-1] = 0.5 * (x[:-2] + x[2:])
        A[1:-1, 1:-1] = A[1:-1, :-2] * t + A[2:, 1:-1]
    last = steps + first
    for i in range(first, last):
        x[i] = A[i, 0] + x[i - 1]
        for j in range(i, N):
            A[i, j] *= 2.0
    for _ in range(steps - 9, first):
        x *= 3.0


@dace.program
def steps(A: dace.float64[2 * I, J], B: dace.float64[I, J], x: dace.float64[I], y: dace.float64[2 * I]):
    y[::2] += x
    A[::2, 1:] += B[:, 1:]
    A[1::2] *= A[::2]
    A[1, ::2] = x[1] * A[0, ::2]
    for m in range(2):
        A[m::2, 1] -= x
    for i in dace.map[0:I]:
        y[2 * i + 1] = x[I - 1 - i] + i
    for k in dace.map[0:I]:
        A[2 * I - 1 - 2 * k, 0] = B[k, 0] * k
    for j in dace.map[1 : 2 * I : 3]:
        y[j] = j + y[j]
    C = A[::2] > 0.0
    A[::2] = np.where(C, A[::2], 1.0)
    return A[::2] @ A[1::3, :].T, A[1::5, 0:2:2], y[::2] - x, y[: 2 * I - 1 : 2]


@dace.program
def reversals(A: dace.float64[N, K], x: dace.float64[N]):
    x[:] = np.flip(x) - 0.5 * x
    A[1:] -= np.flip(A[:-1], axis=-1)
    return np.flip(A), np.flip(A, (0,)), x @ np.flip(x)


@dace.program
def growing_parts(A: dace.float64[N, N], B: dace.float64[N, N, K], x: dace.float64[N]):
    total = np.zeros_like(x)
    for i in range(1, N):
        A[i, :i] = np.flip(A[:i, i]) * 2.0
        A[:i:2, 0] = A[i, 1]
        A[i - 1, : N - i] = 0.5 * i
        for j in range(i):
            B[i, j:i, 1:] += B[j:i, i, :-1] - np.mean(A[: j + 1, j])
        t = A[:i, :i] @ x[:i] + np.max(B[i, :i], axis=1)
        x[:i] += t * np.sum(A[i:])
        total[i] = np.trace(A[:i, :i]) + np.min(A[i - 1, :i])
    return total


@dace.program
def by_arrays_of_indices(w: dace.float64[N, 5], v: dace.float32[N], q: dace.int64[I], p: dace.int32[I, J]):
    for i in range(3):
        v[i] += np.sum(v[q])
    return w[q], v[p] * v[0], w[:, 1][q], w[q, p[:, 1]], w[1:, 2:4][q] + 1.0, v[q + 1][1:]


@dace.program
def even_and_odd(w: dace.float64[K], A: dace.float64[K, I]):
    w[:-1] *= 2.0
    return w[1::2] - w[::2] * w[1::2], A[::2] + A[1::2, :1]


@dace.program
def returned_and_reshaped(A: dace.float64[N, K]):
    B = A * 2.0
    C = np.reshape(B, (N * K,))
    return C * C, B, np.sum(C)


@dace.program
def even_and_odd_of_an_odd_size(w: dace.float64[N]):
    return w[1::2] + w[::2]


@dace.program
def more_than_there_are(w: dace.float64[N]):
    return w[: N - 5] + w[4 : N - 1]


PROGRAMS = [
    Program(program, sizes_of(program, SIZES))
    for program in (
        by_index,
        parts,
        ones,
        positions,
        while_and_branches,
        axes_and_methods,
        dimensions_of_one,
        symbols_by_name,
        infinite,
        unused,
        mixed,
        broadcast,
        diagonal,
        summed_along_an_axis_of_none,
        transposed_in_a_loop,
        one_element,
        transformed,
        of_a_function_with_a_condition,
        same_twice,
        overwritten,
        named_like_extents,
        converted,
        loops_of_one_variable,
        variables_after_their_loops,
        last_rows_added_in_a_loop,
        conditions_assigned,
        scalars_and_arrays_assigned,
        chosen,
        shapes_in_other_words,
        numbers_from_numbers,
        rolled,
        running_sums,
        steps,
        reversals,
        growing_parts,
        by_arrays_of_indices,
        even_and_odd,
        returned_and_reshaped,
    )
]
PROGRAMS += [
    Program(even_and_odd_of_an_odd_size, {"N": 7}, refused="with these sizes it takes elements 0 to 4 of 3"),
    Program(more_than_there_are, {"N": 4}, refused=r"with these sizes .* x\[:-k\]"),
]
PROGRAMS += [Program(loops_up_to_scalars, {"N": 6}, lambda sizes, rng: {"steps": 4, "first": 1})]
