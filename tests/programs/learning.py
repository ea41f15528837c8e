"""Machine learning, graphs and statistics, as their users write them."""

import dace
import numpy as np

from programs.program import Program

B, H, T, D, N, M, K = (dace.symbol(name, dace.int64) for name in "BHTDNMK")


@dace.program
def attention(Q: dace.float64[B, H, T, D], Kt: dace.float64[B, H, D, T], V: dace.float64[B, H, T, D]):
    scores = Q @ Kt / np.sqrt(8.0)
    weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return (weights / np.sum(weights, axis=-1, keepdims=True)) @ V


@dace.program
def attention_by_einsum(q: dace.float32[T, D], k: dace.float32[T, D], v: dace.float32[T, D]):
    e = np.exp(np.einsum("td,sd->ts", q, k))
    p = e / np.sum(e, axis=1)[:, None]
    return np.einsum("ts,sd->td", p, v)


@dace.program
def softmax_regression(X: dace.float64[N, D], Y: dace.float64[N, K], W: dace.float64[D, K]):
    for _ in range(5):
        logits = X @ W
        e = np.exp(logits - np.max(logits, axis=1)[:, np.newaxis])
        p = e / np.sum(e, axis=1)[:, np.newaxis]
        W -= 0.1 * (X.T @ (p - Y)) / X.shape[0]


@dace.program
def two_layer_network(X: dace.float64[N, D], W1: dace.float64[D, M], b1: dace.float64[M], W2: dace.float64[M, K]):
    hidden = np.maximum(X @ W1 + b1, 0)
    return np.tanh(hidden @ W2)


@dace.program
def kernel_ridge_regression(X: dace.float64[N, D], y: dace.float64[N], Z: dace.float64[M, D], ridge: dace.float64):
    norms = np.sum(X * X, axis=1)
    G = np.exp(-0.5 * (norms[:, None] + norms[None, :] - 2 * X @ X.T))
    weights = np.linalg.solve(G + ridge * np.eye(X.shape[0]), y)
    distances = np.sum(Z * Z, axis=1)[:, None] + norms[None, :] - 2 * Z @ X.T
    return np.exp(-0.5 * distances) @ weights


@dace.program
def ridge_regression(X: dace.float64[N, D], y: dace.float64[N], ridge: dace.float64):
    w = np.linalg.solve(X.T @ X + ridge * np.eye(X.shape[1]), X.T @ y)
    error = y - X @ w
    return w, np.mean(error**2)


@dace.program
def pagerank(A: dace.float64[N, N], r: dace.float64[N]):
    out = np.sum(A, axis=0)
    n = A.shape[0]
    for _ in range(30):
        r[:] = 0.85 * (A / out) @ r + 0.15 / n
        r /= np.sum(r)


@dace.program
def pagerank_until_converged(A: dace.float64[N, N], r: dace.float64[N]):
    P = A / A.sum(axis=0)
    change = np.sum(np.abs(r))
    steps = 0
    while change > 1e-9 and steps < 100:
        new = 0.85 * P.dot(r) + 0.15 / A.shape[0]
        change = np.sum(np.abs(new - r))
        r[:] = new
        steps = steps + 1


@dace.program
def k_means_step(X: dace.float64[N, D], C: dace.float64[K, D]):
    distances = np.sum(X * X, axis=1)[:, None] + np.sum(C * C, axis=1)[None, :] - 2 * X @ C.T
    nearest = np.min(distances, axis=1)
    member = (distances <= nearest[:, None]).astype(np.float64)
    C[:] = (member.T @ X) / np.sum(member, axis=0)[:, None]
    return np.sum(nearest)


@dace.program
def k_means_labels(X: dace.float64[N, D], C: dace.float64[K, D]):
    distances = np.sum(X * X, axis=1)[:, None] + np.sum(C * C, axis=1)[None, :] - 2 * X @ C.T
    return np.argmin(distances, axis=1)


@dace.program
def sinkhorn(cost: dace.float64[N, M], a: dace.float64[N], b: dace.float64[M]):
    G = np.exp(-cost / 0.5)
    u = np.ones((N,))
    v = np.ones((M,))
    for _ in range(20):
        u[:] = a / (G @ v)
        v[:] = b / (G.T @ u)
    plan = u[:, None] * G * v[None, :]
    return plan, np.sum(plan * cost)


@dace.program
def covariance(X: dace.float64[N, D]):
    X -= np.mean(X, axis=0)
    return X.T @ X / (X.shape[0] - 1)


@dace.program
def principal_component(X: dace.float64[N, D], v: dace.float64[D]):
    centred = X - np.mean(X, axis=0)
    C = centred.T @ centred / (X.shape[0] - 1)
    for _ in range(20):
        v[:] = C @ v
        v /= np.linalg.norm(v)
    return centred @ v, v @ C @ v / np.trace(C)


@dace.program
def standardised(X: dace.float64[N, D]):
    mean = X.mean(axis=0)
    deviation = np.sqrt(np.mean((X - mean) ** 2, axis=0))
    Z = (X - mean) / deviation
    return Z.T @ Z / X.shape[0], Z.min(), Z.max()


@dace.program
def singular_value_decomposition(X: dace.float64[N, D]):
    U, s, Vt = np.linalg.svd(X)
    return s


@dace.program
def gaussian_mixture_step(X: dace.float64[N, D], means: dace.float64[K, D], weights: dace.float64[K]):
    squared = np.sum(X**2, axis=1, keepdims=True) - 2 * X @ means.T + np.sum(means**2, axis=1)
    p = weights * np.exp(-0.5 * squared)
    p /= np.sum(p, axis=1, keepdims=True)
    total = np.sum(p, axis=0)
    means[:] = p.T @ X / total[:, None]
    weights[:] = total / X.shape[0]


PROGRAMS = (
    Program(attention, dict(B=2, H=3, T=5, D=4)),
    Program(attention_by_einsum, dict(T=7, D=4)),
    Program(softmax_regression, dict(N=9, D=4, K=3)),
    Program(two_layer_network, dict(N=9, D=4, M=5, K=3)),
    Program(kernel_ridge_regression, dict(N=7, D=3, M=5), lambda s, r: {"ridge": 0.1}),
    Program(ridge_regression, dict(N=9, D=4), lambda s, r: {"ridge": 0.1}),
    Program(pagerank, dict(N=9), positive=True),
    Program(pagerank_until_converged, dict(N=9), positive=True),
    Program(k_means_step, dict(N=9, D=3, K=2), lambda s, r: {"C": 0.1 * r.uniform(-1, 1, (2, 3))}),
    Program(k_means_labels, dict(N=9, D=3, K=2)),
    Program(sinkhorn, dict(N=6, M=8), positive=True),
    Program(covariance, dict(N=9, D=4)),
    Program(principal_component, dict(N=9, D=4)),
    Program(standardised, dict(N=9, D=4)),
    Program(singular_value_decomposition, dict(N=9, D=4), refused="svd"),
    Program(gaussian_mixture_step, dict(N=9, D=3, K=2), positive=True),
)
