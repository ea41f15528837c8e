"""Eigenvalues and singular values, as their users write them."""

import dace
import numpy as np

from programs.program import Program, orthonormal, positive_definite

M, N, K = (dace.symbol(name, dace.int64) for name in "MNK")


@dace.program
def power_iteration(A: dace.float64[N, N], x: dace.float64[N]):
    for _ in range(20):
        y = A @ x
        x[:] = y / np.linalg.norm(y)
    return np.dot(x, A @ x)


@dace.program
def power_iteration_until_converged(A: dace.float64[N, N], x: dace.float64[N], tolerance: dace.float64):
    value = np.dot(x, A @ x) / np.dot(x, x)
    change = np.abs(value)
    while change > tolerance:
        y = A @ x
        x[:] = y / np.linalg.norm(y)
        new = np.dot(x, A @ x)
        change = np.abs(new - value)
        value = new
    return value


@dace.program
def inverse_iteration(A: dace.float64[N, N], x: dace.float64[N], shift: dace.float64):
    shifted = A - shift * np.eye(A.shape[0])
    for _ in range(5):
        y = np.linalg.solve(shifted, x)
        x[:] = y / np.linalg.norm(y)
    return x @ A @ x


@dace.program
def subspace_iteration(A: dace.float64[N, N], Q: dace.float64[N, K]):
    for _ in range(4):
        Y = A @ Q
        for k in range(K):
            for j in range(k):
                Y[:, k] -= np.dot(Y[:, j], Y[:, k]) * Y[:, j]
            Y[:, k] /= np.linalg.norm(Y[:, k])
        Q[:] = Y
    return np.diag(Q.T @ A @ Q)


@dace.program
def lanczos(A: dace.float64[N, N], v: dace.float64[N]):
    alpha = np.zeros((6,))
    beta = np.zeros((6,))
    previous = np.zeros_like(v)
    current = v / np.linalg.norm(v)
    for k in range(6):
        w = A @ current
        alpha[k] = np.dot(w, current)
        w -= alpha[k] * current
        if k > 0:
            w -= beta[k - 1] * previous
        beta[k] = np.linalg.norm(w)
        previous[:] = current
        current[:] = w / beta[k]
    return alpha, beta


@dace.program
def gram_schmidt_qr(A: dace.float64[M, N]):
    Q = np.zeros_like(A)
    R = np.zeros((A.shape[1], A.shape[1]))
    for k in range(A.shape[1]):
        v = np.copy(A[:, k])
        for j in range(k):
            R[j, k] = np.dot(Q[:, j], A[:, k])
            v -= R[j, k] * Q[:, j]
        R[k, k] = np.linalg.norm(v)
        Q[:, k] = v / R[k, k]
    return Q, R


@dace.program
def range_finder(A: dace.float64[M, N], G: dace.float64[N, K]):
    Y = A @ (A.T @ (A @ G))
    Q = np.zeros_like(Y)
    for k in range(G.shape[1]):
        v = Y[:, k] - Q @ (Q.T @ Y[:, k])
        Q[:, k] = v / np.linalg.norm(v)
    B = Q.T @ A
    return Q, B, np.linalg.norm(A - Q @ B)


@dace.program
def jacobi_rayleigh_quotients(A: dace.float64[N, N], V: dace.float64[N, K]):
    AV = A @ V
    values = np.sum(V * AV, axis=0) / np.sum(V * V, axis=0)
    residual = AV - V * values
    return values, np.sqrt(np.sum(residual * residual, axis=0))


def _symmetric(sizes, rng):
    return {"A": positive_definite(sizes["N"], rng), "x": rng.uniform(0.5, 1, sizes["N"])}


PROGRAMS = (
    Program(power_iteration, dict(N=9), _symmetric),
    Program(power_iteration_until_converged, dict(N=9), lambda s, r: _symmetric(s, r) | {"tolerance": 1e-8}),
    Program(inverse_iteration, dict(N=9), lambda s, r: _symmetric(s, r) | {"shift": 0.3}),
    Program(
        subspace_iteration,
        dict(N=9, K=3),
        lambda s, r: {"A": positive_definite(s["N"], r), "Q": orthonormal(s["N"], s["K"], r)},
    ),
    Program(lanczos, dict(N=9), lambda s, r: {"A": positive_definite(s["N"], r), "v": r.uniform(0.5, 1, s["N"])}),
    Program(gram_schmidt_qr, dict(M=9, N=4)),
    Program(range_finder, dict(M=9, N=8, K=3)),
    Program(jacobi_rayleigh_quotients, dict(N=8, K=3)),
)
