"""Programs of einsums as a user would write them."""

import dace
import numpy as np

from programs.program import Program, sizes_of

I, J, K, L, R, N = (dace.symbol(name, dace.int64) for name in "IJKLRN")  # noqa: E741
SIZES = {"I": 7, "J": 6, "K": 5, "L": 4, "R": 3, "N": 7}


@dace.program
def mttkrp(X: dace.float64[I, J, K], B: dace.float64[J, R], C: dace.float64[K, R]):
    return np.einsum("ijk,ja,ka->ia", X, B, C)


@dace.program
def products(A: dace.float64[N, N], B: dace.float64[N, N], C: dace.float64[N, N], D: dace.float64[N, N]):
    T = A @ B
    U = 2.0 * T + C
    V = np.tensordot(U, B, axes=([1], [0]))
    D[:] = np.einsum("ij,jk->ik", V, T) + np.dot(A, U)
    D += A


@dace.program
def sweeps(X: dace.float64[I, J, K], A: dace.float64[I, R], B: dace.float64[J, R], C: dace.float64[K, R]):
    for _ in range(2):
        A[:] = 0.1 * np.einsum("ijk,ja,ka->ia", X, B, C)
        B[:] = 0.1 * np.einsum("ijk,ia,ka->ja", X, A, C)
        G = 0.01 * (A.T @ A) * (B.T @ B) + 0.5
        C[:] = 0.01 * np.einsum("ijk,ia,ja->ka", X, A, B) @ G + C


@dace.program
def scalars(A: dace.float64[N, N], x: dace.float64[N], alpha: dace.float64):
    y = A @ x
    s = np.dot(x, y)
    t = np.sum(A)
    z = np.sum(A, axis=0)
    return alpha * y + s * x + z / t


@dace.program
def in_place(A: dace.float64[N, N]):
    A[:] = A @ A
    B = A.T + A
    C = np.zeros_like(A)
    C += np.einsum("ii,ij->ij", A, B)
    return C, np.einsum("ij->", B)


@dace.program
def shared_operands(X: dace.float64[I, J, K, L], U: dace.float64[J, R], W: dace.float64[L, R]):
    T = np.einsum("ijkl,jr->irkl", X, U)
    P = np.einsum("irkl,ls->irks", T, W)
    Q = np.einsum("irkl,irkm->lm", T, T)
    return P, Q


@dace.program
def batched(A: dace.float64[I, J, K], B: dace.float64[I, K, L], v: dace.float64[L]):
    return np.einsum("ijl,l->ij", A @ B, v)


@dace.program
def transposed(A: dace.float64[I, J], B: dace.float64[K, J], X: dace.float64[I, J, K]):
    S = np.transpose(X, (2, 0, 1))
    return (A @ B.T).T @ np.einsum("kij->ij", S)


@dace.program
def nested_loops(A: dace.float64[N, N], B: dace.float64[N, N]):
    for _ in range(2):
        B[:] = 0.1 * (A @ B)
        for _inner in range(2):
            B[:] = B + 0.1 * (B @ A)
    return B @ B


@dace.program
def mapped(A: dace.float64[I, J], B: dace.float64[J, K], C: dace.float64[I, K]):
    for i, j, k in dace.map[0 : A.shape[0], 0 : A.shape[1], 0 : B.shape[1]]:
        C[i, k] += 2.0 * A[i, j] * B[j, k]


@dace.program
def functions(A: dace.float64[I, J], B: dace.float64[J, K], x: dace.float64[I], C: dace.float64[I, I]):
    P = np.matmul(A, B) / np.linalg.norm(A) - np.sum(A, axis=1, keepdims=True)
    C[:] = np.outer(x, x) * np.trace(C) + np.inner(A, A) * np.vdot(C, C)
    return P, np.inner(x, np.matmul(C, x))


@dace.program
def linear_systems(A: dace.float64[N, N], C: dace.float64[K, N], x: dace.float64[N]):
    H = np.linalg.inv(A)
    for _ in range(2):
        C[:] = np.linalg.solve(A.T, C.T).T
    A[:] = np.linalg.inv(A.T)
    return np.linalg.solve(A, x), C @ H


@dace.program
def diagonals(A: dace.float64[N, N], B: dace.float64[N, N], X: dace.float64[N, K, N, K]):
    C = A @ B
    D = C + A
    E = np.einsum("ii,ik,kk->i", A, B, D)
    F = np.einsum("ijkj->ik", X) * np.trace(D)
    return C, np.einsum("ii->i", C), np.einsum("ijij->ji", X), E, F, np.einsum("ij,kl->i", A, B)


@dace.program
def quotients(x: dace.float64[N], A: dace.float64[N, K]):
    step, ratio = 2.0 / (N - 1) ** 2, N / K
    if ratio > 1.2 and (N - 2) / 4 > 1.1:
        x += 1 / (N - 1) ** 2
    for i in range(3):
        x *= (i + 1) / 2
        x -= 2**-i
    A[:] = A * ratio - N // K
    return x * step, x * N**0.5, A * ((N - 1) // 2), (K - 2) / 2, x / (N + K) ** 2


@dace.program
def integers(A: dace.int64[4], k: dace.uint8):
    return k * A


@dace.program
def other_types(
    A: dace.float32[I, J],
    X: dace.float32[I, J, K],
    B: dace.float32[J, R],
    C: dace.float32[K, R],
    AC: dace.complex128[I, J],
    XC: dace.complex128[I, J, K],
    BC: dace.complex128[J, R],
    CC: dace.complex128[K, R],
    G: dace.float32[R, R],
    GS: dace.complex64[R, R],
    GC: dace.complex128[R, R],
):
    return (
        np.einsum("ij,ja,ka->ik", A, B, C),
        np.einsum("ijk,ja,ka->ia", X, B, C),
        np.einsum("ijk,jr->irk", X, B),
        np.einsum("ij,ja,ka->ik", AC, BC, CC),
        np.einsum("ijk,ja,ka->ia", XC, BC, CC),
        np.einsum("ijk,jr->irk", XC, BC),
        np.linalg.solve(G, B.T),
        np.linalg.inv(GS),
        np.linalg.solve(GC.T, BC.T),
    )


@dace.program
def odd_names(
    errno: dace.float64[6], unused: dace.float64[6], linux: dace.float64, _in: dace.float64[6], exp: dace.float64[6]
):
    stdin = np.exp(errno) * linux
    exp[:] = exp * 0.5 + _in
    return stdin - exp


@dace.program
def deinsum_kernels(
    A: dace.float64[I, J],
    B: dace.float64[J, K],
    C: dace.float64[K, L],
    D: dace.float64[L, I],
    X: dace.float64[I, J, K],
    Y: dace.float64[I, J, K, L, R],
    F: dace.float64[J, R],
    G: dace.float64[K, R],
):
    """2MM, 3MM, MTTKRP of order 3 and 5, TTMc."""
    return (
        A @ B @ C,
        (A @ B) @ (C @ D),
        np.einsum("ijk,ja,ka->ia", X, F, G),
        np.einsum("ijklm,ja,ka,la,ma->ia", Y, F, G, D @ A @ F, F.T @ F),
        np.einsum("ijk,ja,kb->iab", X, F, G),
    )


PROGRAMS = [
    Program(program, sizes_of(program, SIZES))
    for program in (
        mttkrp,
        products,
        sweeps,
        scalars,
        in_place,
        shared_operands,
        batched,
        transposed,
        nested_loops,
        mapped,
        functions,
        linear_systems,
        diagonals,
        quotients,
    )
]
