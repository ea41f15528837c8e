"""
Kernels of linear algebra, stencils, weather, learning and fluids, written from their mathematics, with the sizes that
the npbench suite calls S. Most compute less than a millisecond between two exchanges, many less than a microsecond.
"""

import dace
import numpy as np
from results import Results

from programs.program import Program

N, M, K, L, P, T = (dace.symbol(name, dace.int64) for name in "NMKLPT")
F8, C16 = dace.float64, dace.complex128


@dace.program
def gemm(alpha: F8, beta: F8, C: F8[N, M], A: F8[N, K], B: F8[K, M]):
    C[:] = alpha * A @ B + beta * C


@dace.program
def k2mm(alpha: F8, beta: F8, A: F8[N, K], B: F8[K, M], C: F8[M, L], D: F8[N, L]):
    D[:] = alpha * A @ B @ C + beta * D


@dace.program
def k3mm(A: F8[N, K], B: F8[K, M], C: F8[M, P], D: F8[P, L]):
    return A @ B @ C @ D


@dace.program
def mvt(x: F8[N], y: F8[N], u: F8[N], v: F8[N], A: F8[N, N]):
    x += A @ u
    y += v @ A


@dace.program
def atax(A: F8[M, N], x: F8[N]):
    return (A @ x) @ A


@dace.program
def bicg(A: F8[N, M], p: F8[M], r: F8[N]):
    return r @ A, A @ p


@dace.program
def gesummv(alpha: F8, beta: F8, A: F8[N, N], B: F8[N, N], x: F8[N]):
    return alpha * A @ x + beta * B @ x


@dace.program
def gemver(
    alpha: F8, beta: F8, A: F8[N, N], a: F8[N], b: F8[N], c: F8[N], d: F8[N], w: F8[N], x: F8[N], y: F8[N], z: F8[N]
):
    A += np.outer(a, b) + np.outer(c, d)
    x += beta * y @ A + z
    w += alpha * A @ x


@dace.program
def doitgen(A: F8[N, M, K], C: F8[K, K]):
    for r in range(N):
        A[r, :, :] = A[r] @ C


@dace.program
def jacobi_1d(A: F8[N], B: F8[N]):
    for _ in range(1, T):
        B[1:-1] = 0.33333 * (A[:-2] + A[1:-1] + A[2:])
        A[1:-1] = 0.33333 * (B[:-2] + B[1:-1] + B[2:])


@dace.program
def jacobi_2d(A: F8[N, N], B: F8[N, N]):
    for _ in range(1, T):
        B[1:-1, 1:-1] = 0.2 * (A[1:-1, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:] + A[2:, 1:-1] + A[:-2, 1:-1])
        A[1:-1, 1:-1] = 0.2 * (B[1:-1, 1:-1] + B[1:-1, :-2] + B[1:-1, 2:] + B[2:, 1:-1] + B[:-2, 1:-1])


@dace.program
def heat_3d(A: F8[N, N, N], B: F8[N, N, N]):
    for _ in range(1, T):
        B[1:-1, 1:-1, 1:-1] = (
            0.125 * (A[2:, 1:-1, 1:-1] - 2.0 * A[1:-1, 1:-1, 1:-1] + A[:-2, 1:-1, 1:-1])
            + 0.125 * (A[1:-1, 2:, 1:-1] - 2.0 * A[1:-1, 1:-1, 1:-1] + A[1:-1, :-2, 1:-1])
            + 0.125 * (A[1:-1, 1:-1, 2:] - 2.0 * A[1:-1, 1:-1, 1:-1] + A[1:-1, 1:-1, :-2])
            + A[1:-1, 1:-1, 1:-1]
        )
        A[1:-1, 1:-1, 1:-1] = (
            0.125 * (B[2:, 1:-1, 1:-1] - 2.0 * B[1:-1, 1:-1, 1:-1] + B[:-2, 1:-1, 1:-1])
            + 0.125 * (B[1:-1, 2:, 1:-1] - 2.0 * B[1:-1, 1:-1, 1:-1] + B[1:-1, :-2, 1:-1])
            + 0.125 * (B[1:-1, 1:-1, 2:] - 2.0 * B[1:-1, 1:-1, 1:-1] + B[1:-1, 1:-1, :-2])
            + B[1:-1, 1:-1, 1:-1]
        )


@dace.program
def fdtd_2d(ex: F8[N, M], ey: F8[N, M], hz: F8[N, M], source: F8[T]):
    for t in range(T):
        ey[0, :] = source[t]
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])


@dace.program
def seidel_2d(A: F8[N, N]):
    for _ in range(T):
        for i in range(1, N - 1):
            A[i, 1:-1] += A[i - 1, :-2] + A[i - 1, 1:-1] + A[i - 1, 2:] + A[i, 2:]
            A[i, 1:-1] += A[i + 1, :-2] + A[i + 1, 1:-1] + A[i + 1, 2:]
            for j in range(1, N - 1):
                A[i, j] = (A[i, j] + A[i, j - 1]) / 9.0


@dace.program
def adi(u: F8[N, N], a: F8, b: F8, d: F8, e: F8):
    v = np.empty_like(u)
    p = np.empty_like(u)
    q = np.empty_like(u)
    for _ in range(T):
        v[0, :] = 1.0
        p[:, 0] = 0.0
        q[:, 0] = v[0, :]
        for j in range(1, N - 1):
            p[1:-1, j] = -a / (a * p[1:-1, j - 1] + b)
            q[1:-1, j] = (-d * u[j, :-2] + (1.0 + 2.0 * d) * u[j, 1:-1] - d * u[j, 2:] - a * q[1:-1, j - 1]) / (
                a * p[1:-1, j - 1] + b
            )
        v[N - 1, :] = 1.0
        for j in range(N - 2, 0, -1):
            v[j, 1:-1] = p[1:-1, j] * v[j + 1, 1:-1] + q[1:-1, j]
        u[:, 0] = 1.0
        for j in range(1, N - 1):
            p[1:-1, j] = -d / (d * p[1:-1, j - 1] + e)
            q[1:-1, j] = (-a * v[:-2, j] + (1.0 + 2.0 * a) * v[1:-1, j] - a * v[2:, j] - d * q[1:-1, j - 1]) / (
                d * p[1:-1, j - 1] + e
            )
        u[:, N - 1] = 1.0
        for j in range(N - 2, 0, -1):
            u[1:-1, j] = p[1:-1, j] * u[1:-1, j + 1] + q[1:-1, j]


@dace.program
def gramschmidt(A: F8[M, N]):
    Q = np.zeros_like(A)
    R = np.zeros((N, N))
    for k in range(N):
        norm = np.sqrt(np.dot(A[:, k], A[:, k]))
        R[k, k] = norm
        Q[:, k] = A[:, k] / norm
        for j in range(k + 1, N):
            r = np.dot(Q[:, k], A[:, j])
            R[k, j] = r
            A[:, j] -= Q[:, k] * r
    return Q, R


@dace.program
def floyd_warshall(path: F8[N, N]):
    for k in range(N):
        path[:] = np.minimum(path, path[:, k][:, None] + path[k, :][None, :])


@dace.program
def go_fast(a: F8[N, N]):
    trace = 0.0
    for i in range(N):
        trace += np.tanh(a[i, i])
    return a + trace


@dace.program
def hdiff(field: F8[N + 4, M + 4, K], coefficient: F8[N, M, K]):
    lap = 4.0 * field[1:-1, 1:-1] - (field[2:, 1:-1] + field[:-2, 1:-1] + field[1:-1, 2:] + field[1:-1, :-2])
    x = lap[1:, 1:-1] - lap[:-1, 1:-1]
    fx = np.where(x * (field[2:-1, 2:-2] - field[1:-2, 2:-2]) > 0, 0, x)
    y = lap[1:-1, 1:] - lap[1:-1, :-1]
    fy = np.where(y * (field[2:-2, 2:-1] - field[2:-2, 1:-2]) > 0, 0, y)
    return field[2:-2, 2:-2] - coefficient * (fx[1:] - fx[:-1] + fy[:, 1:] - fy[:, :-1])


@dace.program
def vadv(u: F8[N, M, K], w: F8[N + 1, M, K], pos: F8[N, M, K], tens: F8[N, M, K], out: F8[N, M, K], dt: F8):
    c = np.empty_like(u)
    d = np.empty_like(u)
    for k in range(K):
        if k == 0:
            g = 0.25 * (w[1:, :, 1] + w[:-1, :, 1])
            c[:, :, 0] = g * 0.8
            d[:, :, 0] = (dt * pos[:, :, 0] + out[:, :, 0] + tens[:, :, 0] - g * (u[:, :, 1] - u[:, :, 0])) / (
                dt - c[:, :, 0]
            )
            c[:, :, 0] = c[:, :, 0] / (dt - c[:, :, 0])
        else:
            h = -0.25 * (w[1:, :, k] + w[:-1, :, k])
            e = 1.0 / (dt - h * 0.8 - c[:, :, k - 1] * h)
            c[:, :, k] = -h * 0.8 * e
            f = dt * pos[:, :, k] + out[:, :, k] + tens[:, :, k] - h * (u[:, :, k - 1] - u[:, :, k])
            d[:, :, k] = (f - d[:, :, k - 1] * h) * e
    for j in range(K - 2, -1, -1):
        d[:, :, j] = d[:, :, j] - c[:, :, j] * d[:, :, j + 1]
        out[:, :, j] = dt * (d[:, :, j] - pos[:, :, j])


@dace.program
def softmax(x: F8[N, N, M, M]):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


@dace.program
def mlp(x: F8[N, K], w1: F8[K, L], b1: F8[L], w2: F8[L, M], b2: F8[M], w3: F8[M, M], b3: F8[M]):
    y = np.maximum(x @ w1 + b1, 0)
    z = np.maximum(y @ w2 + b2, 0)
    v = z @ w3 + b3
    e = np.exp(v - np.max(v, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


@dace.program
def conv2d_bias(image: F8[N, K, K, 3], weights: F8[20, 20, 3, M], bias: F8[M]):
    out = np.zeros((N, K - 19, K - 19, M))
    for i in range(K - 19):
        for j in range(K - 19):
            out[:, i, j, :] = np.einsum("nabc,abcm->nm", image[:, i : i + 20, j : j + 20, :], weights)
    return out + bias


@dace.program
def compute(x: dace.int64[N, M], y: dace.int64[N, M], a: dace.int64, b: dace.int64, c: dace.int64):
    return np.clip(x, 2, 10) * a + y * b + c


@dace.program
def arc_distance(a: F8[N], b: F8[N], c: F8[N], d: F8[N]):
    t = np.sin((c - a) / 2) ** 2 + np.cos(a) * np.cos(c) * np.sin((d - b) / 2) ** 2
    return 2 * np.arctan2(np.sqrt(t), np.sqrt(1 - t))


@dace.program
def cavity_flow(u: F8[N, N], v: F8[N, N], p: F8[N, N], dt: F8, dx: F8):
    for _ in range(T):
        b = np.zeros_like(p)
        ux = (u[1:-1, 2:] - u[1:-1, :-2]) / (2 * dx)
        vy = (v[2:, 1:-1] - v[:-2, 1:-1]) / (2 * dx)
        uy = (u[2:, 1:-1] - u[:-2, 1:-1]) / (2 * dx)
        vx = (v[1:-1, 2:] - v[1:-1, :-2]) / (2 * dx)
        b[1:-1, 1:-1] = (ux + vy) / dt - ux * ux - 2 * uy * vx - vy * vy
        for _ in range(5):
            pn = np.copy(p)
            p[1:-1, 1:-1] = (pn[1:-1, 2:] + pn[1:-1, :-2] + pn[2:, 1:-1] + pn[:-2, 1:-1]) / 4 - dx * dx / 4 * b[
                1:-1, 1:-1
            ]
            p[:, N - 1] = p[:, N - 2]
            p[0, :] = p[1, :]
            p[:, 0] = p[:, 1]
            p[N - 1, :] = 0
        un = np.copy(u)
        vn = np.copy(v)
        u[1:-1, 1:-1] = (
            un[1:-1, 1:-1]
            - un[1:-1, 1:-1] * dt / dx * (un[1:-1, 1:-1] - un[1:-1, :-2])
            - vn[1:-1, 1:-1] * dt / dx * (un[1:-1, 1:-1] - un[:-2, 1:-1])
            - dt / (2 * dx) * (p[1:-1, 2:] - p[1:-1, :-2])
        )
        v[1:-1, 1:-1] = (
            vn[1:-1, 1:-1]
            - un[1:-1, 1:-1] * dt / dx * (vn[1:-1, 1:-1] - vn[1:-1, :-2])
            - vn[1:-1, 1:-1] * dt / dx * (vn[1:-1, 1:-1] - vn[:-2, 1:-1])
            - dt / (2 * dx) * (p[2:, 1:-1] - p[:-2, 1:-1])
        )
        u[N - 1, :] = 1
        v[:, 0] = 0


@dace.program
def channel_flow(u: F8[N, N], v: F8[N, N], p: F8[N, N], dt: F8, dx: F8, force: F8, tolerance: F8):
    # With the columns that periodicity adds before the first one and after the last one.
    un = np.empty((N, N + 2))
    vn = np.empty((N, N + 2))
    pn = np.empty((N, N + 2))
    change = 1.0
    while change > tolerance:
        un[:, 1:-1] = u
        un[:, 0] = u[:, N - 1]
        un[:, N + 1] = u[:, 0]
        vn[:, 1:-1] = v
        vn[:, 0] = v[:, N - 1]
        vn[:, N + 1] = v[:, 0]
        ux = (un[1:-1, 2:] - un[1:-1, :-2]) / (2 * dx)
        vy = (v[2:] - v[:-2]) / (2 * dx)
        uy = (u[2:] - u[:-2]) / (2 * dx)
        vx = (vn[1:-1, 2:] - vn[1:-1, :-2]) / (2 * dx)
        b = (ux + vy) / dt - ux * ux - 2 * uy * vx - vy * vy
        for _ in range(5):
            pn[:, 1:-1] = p
            pn[:, 0] = p[:, N - 1]
            pn[:, N + 1] = p[:, 0]
            p[1:-1] = (pn[1:-1, 2:] + pn[1:-1, :-2] + pn[2:, 1:-1] + pn[:-2, 1:-1]) / 4 - dx * dx / 4 * b
            p[N - 1] = p[N - 2]
            p[0] = p[1]
        u[1:-1] = (
            un[1:-1, 1:-1]
            - un[1:-1, 1:-1] * dt / dx * (un[1:-1, 1:-1] - un[1:-1, :-2])
            - vn[1:-1, 1:-1] * dt / dx * (un[1:-1, 1:-1] - un[:-2, 1:-1])
            - dt / (2 * dx) * (pn[1:-1, 2:] - pn[1:-1, :-2])
            + force * dt
        )
        v[1:-1] = (
            vn[1:-1, 1:-1]
            - un[1:-1, 1:-1] * dt / dx * (vn[1:-1, 1:-1] - vn[1:-1, :-2])
            - vn[1:-1, 1:-1] * dt / dx * (vn[1:-1, 1:-1] - vn[:-2, 1:-1])
            - dt / (2 * dx) * (pn[2:, 1:-1] - pn[:-2, 1:-1])
        )
        change = (np.sum(u) - np.sum(un[:, 1:-1])) / np.sum(u)


@dace.program
def scattering_self_energies(
    near: F8[M, L, M],
    dH: C16[M, L, 3, P, P],
    G: C16[K, N, M, P, P],
    D: C16[K, T, M, L, 3, 3],
    sigma: C16[K, N, M, P, P],
):
    shifted = np.zeros((K, N + T, M, L, P, P), np.complex128)
    shifted[:, T:] = np.einsum("abc,kecmn->keabmn", near, G)
    for w in range(T):
        sigma += np.einsum("keabmn,abinp,abjpq,labij->keamq", shifted[:, T - w : T - w + N], dH, dH, D[:, w])


@dace.program
def contour_integral(H: C16[3, N, N], z: C16[K], Y: C16[N, M]):
    total = np.zeros_like(Y)
    first = np.zeros_like(Y)
    for k in range(K):
        A = z[k] * H[0] + H[1] + H[2] / z[k]
        X = np.linalg.solve(A, Y)
        total += X
        first += z[k] * X
    return total, first


def _factors(sizes: dict[str, int], rng: np.random.Generator) -> Results:
    return {"alpha": 1.5, "beta": 1.2}


def _flow(sizes: dict[str, int], rng: np.random.Generator) -> Results:
    return {"dt": 0.001, "dx": 2 / (sizes["N"] - 1)}


def _channel(sizes: dict[str, int], rng: np.random.Generator) -> Results:
    still = {name: np.zeros((sizes["N"],) * 2) for name in "uvp"}
    return {**still, "dt": 0.1 / (sizes["N"] - 1) ** 2, "dx": 2 / (sizes["N"] - 1), "force": 1.0, "tolerance": 0.001}


def _ring(sizes: dict[str, int], rng: np.random.Generator) -> Results:
    return {"z": np.exp(2j * np.pi * (np.arange(sizes["K"]) + 0.5) / sizes["K"])}


PROGRAMS = [
    Program(gemm, dict(N=1000, M=1100, K=1200), _factors),
    Program(k2mm, dict(N=800, M=850, K=900, L=950), _factors),
    Program(k3mm, dict(N=800, M=850, K=900, L=950, P=1000)),
    Program(mvt, dict(N=5500)),
    Program(atax, dict(M=4000, N=5000)),
    Program(bicg, dict(N=5000, M=4000)),
    Program(gesummv, dict(N=2000), _factors),
    Program(gemver, dict(N=1000), _factors),
    Program(doitgen, dict(N=60, M=60, K=128)),
    Program(jacobi_1d, dict(T=800, N=3200)),
    Program(jacobi_2d, dict(T=50, N=150)),
    Program(heat_3d, dict(T=25, N=25)),
    Program(fdtd_2d, dict(T=20, N=200, M=220)),
    Program(seidel_2d, dict(T=8, N=50)),
    Program(adi, dict(T=20, N=100), lambda s, r: dict(a=-0.2, b=1.4, d=-0.3, e=1.6)),
    Program(gramschmidt, dict(M=70, N=60)),
    Program(floyd_warshall, dict(N=200), positive=True),
    Program(go_fast, dict(N=2000)),
    Program(hdiff, dict(N=64, M=64, K=60)),
    Program(vadv, dict(N=60, M=60, K=40), lambda s, r: {"dt": 3.0}),
    Program(softmax, dict(N=16, M=128)),
    Program(mlp, dict(N=8, K=3, L=30000, M=2000)),
    Program(conv2d_bias, dict(N=8, K=32, M=16)),
    Program(compute, dict(N=2000, M=2000), lambda s, r: dict(
        {n: r.integers(0, 1000, (s["N"], s["M"])) for n in "xy"}, a=4, b=3, c=9)),
    Program(arc_distance, dict(N=100000)),
    Program(cavity_flow, dict(T=25, N=61), _flow),
    Program(channel_flow, dict(N=61), _channel),
    Program(scattering_self_energies, dict(K=2, N=4, T=2, M=6, L=2, P=3)),
    Program(contour_integral, dict(N=50, K=32, M=50), _ring),
]  # fmt: skip
