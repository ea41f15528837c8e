"""Linear systems and functions of matrices, as their users write them."""

import dace
import numpy as np

from programs.program import Program, positive_definite

N, K = (dace.symbol(name, dace.int64) for name in "NK")
POINTS, WEIGHTS = np.polynomial.legendre.leggauss(8)


@dace.program
def conjugate_gradients(A: dace.float64[N, N], b: dace.float64[N], tolerance: dace.float64):
    x = np.zeros_like(b)
    r = b - A @ x
    p = np.copy(r)
    rr = np.dot(r, r)
    while rr > tolerance:
        Ap = A @ p
        alpha = rr / np.dot(p, Ap)
        x += alpha * p
        r -= alpha * Ap
        new = np.dot(r, r)
        p[:] = r + (new / rr) * p
        rr = new
    return x


@dace.program
def conjugate_gradients_with_limit(A: dace.float64[N, N], b: dace.float64[N]):
    x = np.zeros_like(b)
    r = np.copy(b)
    p = np.copy(b)
    rr = r @ r
    for _ in range(50):
        if np.sqrt(rr) < 1e-8:
            break
        Ap = A @ p
        alpha = rr / (p @ Ap)
        x += alpha * p
        r -= alpha * Ap
        new = r @ r
        p = r + new / rr * p
        rr = new
    return x


@dace.program
def jacobi_solver(A: dace.float64[N, N], b: dace.float64[N]):
    d = np.diag(A)
    x = np.zeros_like(b)
    for _ in range(30):
        x[:] = x + (b - A @ x) / d
    return x


@dace.program
def richardson(A: dace.float64[N, N], B: dace.float64[N, K], omega: dace.float64):
    X = np.zeros_like(B)
    for _ in range(10):
        X += omega * (B - A @ X)
    return X, np.linalg.norm(B - A @ X)


@dace.program
def newton_schulz(A: dace.float64[N, N]):
    X = A.T / np.trace(A @ A.T)
    for _ in range(30):
        X[:] = X @ (2.0 * np.eye(A.shape[0]) - A @ X)
    return X


@dace.program
def newton_schulz_sign(A: dace.float64[N, N]):
    X = A / np.linalg.norm(A)
    for _ in range(10):
        X[:] = 1.5 * X - 0.5 * X @ X @ X
    return X


@dace.program
def exponential_by_series(A: dace.float64[N, N]):
    term = np.identity(A.shape[0])
    total = np.identity(A.shape[0])
    for k in range(1, 12):
        term[:] = term @ A / k
        total += term
    return total


@dace.program
def gradient_descent(A: dace.float64[N, K], b: dace.float64[N], step: dace.float64):
    x = np.zeros((A.shape[1],))
    for _ in range(20):
        gradient = A.T @ (A @ x - b)
        x -= step * gradient
        if np.max(np.abs(gradient)) < 1e-10:
            break
    return x, np.sum((A @ x - b) ** 2)


@dace.program
def gauss_legendre(F: dace.float64[N, 8]):
    mean = 0.5 * (F @ WEIGHTS)
    return mean, np.einsum("nq,q,q->n", F - mean[:, None], POINTS, WEIGHTS)


def _system(sizes, rng, b="b"):
    return {"A": positive_definite(sizes["N"], rng), b: rng.uniform(-1, 1, [*sizes.values()])}


PROGRAMS = (
    Program(conjugate_gradients, dict(N=9), lambda s, r: _system(s, r) | {"tolerance": 1e-16}),
    Program(conjugate_gradients_with_limit, dict(N=9), _system),
    Program(jacobi_solver, dict(N=9), _system),
    Program(richardson, dict(N=8, K=3), lambda s, r: _system(s, r, "B") | {"omega": 0.3}),
    Program(newton_schulz, dict(N=7), lambda s, r: {"A": positive_definite(s["N"], r)}),
    Program(newton_schulz_sign, dict(N=7), lambda s, r: {"A": positive_definite(s["N"], r)}),
    Program(exponential_by_series, dict(N=7)),
    Program(gradient_descent, dict(N=9, K=4), lambda s, r: {"A": r.random((9, 4)), "b": r.random(9), "step": 0.05}),
    Program(gauss_legendre, dict(N=9)),
)
