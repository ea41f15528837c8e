"""
Kernels of the npbench suite besides those of ``kernels.py``, written from their mathematics, with few elements: linear
algebra on triangles, whose slices grow or shrink in a loop, histograms, fractals, bodies, and networks.
"""

import dace
import numpy as np
from results import Results

from programs.program import Program, positive_definite

N, M, K, H, T = (dace.symbol(name, dace.int64) for name in "NMKHT")
S0, S1, S2, S3, S4 = (dace.symbol(f"S{number}", dace.int64) for number in range(5))
F4, F8, I4, I8 = dace.float32, dace.float64, dace.int32, dace.int64


@dace.program
def cholesky(A: F8[N, N]):
    A[0, 0] = np.sqrt(A[0, 0])
    for i in range(1, N):
        for j in range(i):
            A[i, j] -= np.dot(A[i, :j], A[j, :j])
            A[i, j] /= A[j, j]
        A[i, i] -= np.dot(A[i, :i], A[i, :i])
        A[i, i] = np.sqrt(A[i, i])


@dace.program
def correlation(n: F8, data: F8[N, M]):
    spread = np.std(data, axis=0)
    spread[spread <= 0.1] = 1.0
    data -= np.mean(data, axis=0)
    data /= np.sqrt(n) * spread
    corr = np.eye(M)
    for i in range(M - 1):
        corr[i, i + 1 : M] = data[:, i] @ data[:, i + 1 : M]
        corr[i + 1 : M, i] = corr[i, i + 1 : M]
    return corr


@dace.program
def covariance(n: F8, data: F8[N, M]):
    data -= np.mean(data, axis=0)
    cov = np.zeros((M, M))
    for i in range(M):
        cov[i, i:M] = data[:, i] @ data[:, i:M] / (n - 1.0)
        cov[i:M, i] = cov[i, i:M]
    return cov


@dace.program
def durbin(r: F8[N]):
    y = np.empty_like(r)
    alpha = -r[0]
    beta = 1.0
    y[0] = -r[0]
    for k in range(1, N):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return y


@dace.program
def lu(A: F8[N, N]):
    for i in range(N):
        for j in range(i):
            A[i, j] -= A[i, :j] @ A[:j, j]
            A[i, j] /= A[j, j]
        for j in range(i, N):
            A[i, j] -= A[i, :i] @ A[:i, j]


@dace.program
def ludcmp(A: F8[N, N], b: F8[N]):
    x = np.zeros_like(b)
    y = np.zeros_like(b)
    for i in range(N):
        for j in range(i):
            A[i, j] -= A[i, :j] @ A[:j, j]
            A[i, j] /= A[j, j]
        for j in range(i, N):
            A[i, j] -= A[i, :i] @ A[:i, j]
    for i in range(N):
        y[i] = b[i] - A[i, :i] @ y[:i]
    for i in range(N - 1, -1, -1):
        x[i] = (y[i] - A[i, i + 1 :] @ x[i + 1 :]) / A[i, i]
    return x, y


@dace.program
def nussinov(seq: I4[N]):
    table = np.zeros((N, N), np.int32)
    for i in range(N - 1, -1, -1):
        for j in range(i + 1, N):
            if j - 1 >= 0:
                table[i, j] = np.maximum(table[i, j], table[i, j - 1])
            if i + 1 < N:
                table[i, j] = np.maximum(table[i, j], table[i + 1, j])
            if j - 1 >= 0 and i + 1 < N:
                if i < j - 1:
                    table[i, j] = np.maximum(table[i, j], table[i + 1, j - 1] + (seq[i] + seq[j] == 3))
                else:
                    table[i, j] = np.maximum(table[i, j], table[i + 1, j - 1])
            for k in range(i + 1, j):
                table[i, j] = np.maximum(table[i, j], table[i, k] + table[k + 1, j])
    return table


@dace.program
def symm(alpha: F8, beta: F8, C: F8[M, N], A: F8[M, M], B: F8[M, N]):
    t = np.empty((N,))
    C *= beta
    for i in range(M):
        for j in range(N):
            C[:i, j] += alpha * B[i, j] * A[i, :i]
            t[j] = B[:i, j] @ A[i, :i]
        C[i, :] += alpha * B[i, :] * A[i, i] + alpha * t


@dace.program
def syr2k(alpha: F8, beta: F8, C: F8[N, N], A: F8[N, M], B: F8[N, M]):
    for i in range(N):
        C[i, : i + 1] *= beta
        for k in range(M):
            C[i, : i + 1] += A[: i + 1, k] * alpha * B[i, k] + B[: i + 1, k] * alpha * A[i, k]


@dace.program
def syrk(alpha: F8, beta: F8, C: F8[N, N], A: F8[N, M]):
    for i in range(N):
        C[i, : i + 1] *= beta
        for k in range(M):
            C[i, : i + 1] += alpha * A[i, k] * A[: i + 1, k]


@dace.program
def trisolv(L: F8[N, N], x: F8[N], b: F8[N]):
    for i in range(N):
        x[i] = (b[i] - L[i, :i] @ x[:i]) / L[i, i]


@dace.program
def trmm(alpha: F8, A: F8[M, M], B: F8[M, N]):
    for i in range(M):
        for j in range(N):
            B[i, j] += np.dot(A[i + 1 :, i], B[i + 1 :, j])
    B *= alpha


@dace.program
def deriche(alpha: F8, image: F8[N, M]):
    k = (1.0 - np.exp(-alpha)) * (1.0 - np.exp(-alpha)) / (1.0 + alpha * np.exp(-alpha) - np.exp(2.0 * alpha))
    a2 = k * np.exp(-alpha) * (alpha - 1.0)
    a3 = k * np.exp(-alpha) * (alpha + 1.0)
    a4 = -k * np.exp(-2.0 * alpha)
    b1 = 2.0 ** (-alpha)
    b2 = -np.exp(-2.0 * alpha)
    u = np.empty_like(image)
    u[:, 0] = k * image[:, 0]
    u[:, 1] = k * image[:, 1] + a2 * image[:, 0] + b1 * u[:, 0]
    for j in range(2, M):
        u[:, j] = k * image[:, j] + a2 * image[:, j - 1] + b1 * u[:, j - 1] + b2 * u[:, j - 2]
    v = np.empty_like(image)
    v[:, -1] = 0.0
    v[:, -2] = a3 * image[:, -1]
    for j in range(M - 3, -1, -1):
        v[:, j] = a3 * image[:, j + 1] + a4 * image[:, j + 2] + b1 * v[:, j + 1] + b2 * v[:, j + 2]
    out = u + v
    u[0, :] = k * out[0, :]
    u[1, :] = k * out[1, :] + a2 * out[0, :] + b1 * u[0, :]
    for i in range(2, N):
        u[i, :] = k * out[i, :] + a2 * out[i - 1, :] + b1 * u[i - 1, :] + b2 * u[i - 2, :]
    v[-1, :] = 0.0
    v[-2, :] = a3 * out[-1, :]
    for i in range(N - 3, -1, -1):
        v[i, :] = a3 * out[i + 1, :] + a4 * out[i + 2, :] + b1 * v[i + 1, :] + b2 * v[i + 2, :]
    out[:] = u + v
    return out


@dace.program
def crc16(data: dace.uint8[N]):
    crc = 0xFFFF
    for i in range(N):
        byte = 0xFF & data[i]
        for _ in range(8):
            if (crc & 1) ^ (byte & 1):
                crc = (crc >> 1) ^ 0x8408
            else:
                crc >>= 1
            byte >>= 1
    crc = ~crc & 0xFFFF
    crc = (crc << 8) | ((crc >> 8) & 0xFF)
    return crc & 0xFFFF


@dace.program
def azimint_naive(data: F8[N], radius: F8[N]):
    largest = np.max(radius)
    res = np.zeros((M,))
    for i in range(M):
        low = largest * i / M
        high = largest * (i + 1) / M
        mask = np.logical_and(low <= radius, radius < high)
        res[i] = np.sum(np.where(mask, data, 0.0)) / np.sum(mask)
    return res


@dace.program
def azimint_hist(data: F8[N], radius: F8[N]):
    low = np.min(radius)
    high = np.max(radius)
    bins = np.minimum(np.floor((radius - low) / (high - low) * M), M - 1.0)
    counts = np.zeros((M,))
    sums = np.zeros((M,))
    for i in range(M):
        inside = bins == i
        counts[i] = np.sum(inside)
        sums[i] = np.sum(np.where(inside, data, 0.0))
    return sums / counts


@dace.program
def mandelbrot1(xmin: F8, xmax: F8, ymin: F8, ymax: F8, steps: I8, horizon: F8):
    X = np.linspace(xmin, xmax, N)
    Y = np.linspace(ymin, ymax, M)
    C = X + Y[:, None] * 1j
    count = np.zeros((M, N), np.int64)
    Z = np.zeros((M, N), np.complex128)
    for n in range(steps):
        inside = np.abs(Z) < horizon
        count[inside] = n
        Z[:] = np.where(inside, Z * Z + C, Z)
    count[count == steps - 1] = 0
    return Z, count


@dace.program
def mandelbrot2(xmin: F8, xmax: F8, ymin: F8, ymax: F8, steps: I8, horizon: F8):
    X = np.linspace(xmin, xmax, N)
    Y = np.linspace(ymin, ymax, M)
    C = X[:, None] + Y * 1j
    count = np.zeros((N, M), np.int64)
    last = np.zeros((N, M), np.complex128)
    Z = np.zeros((N, M), np.complex128)
    active = np.ones((N, M), np.bool_)
    left = N * M
    k = 0
    while left > 0 and k < steps:
        Z[:] = np.where(active, Z * Z + C, Z)
        out = np.logical_and(active, np.abs(Z) > horizon)
        count[out] = k + 1
        last[:] = np.where(out, Z, last)
        active[:] = np.logical_and(active, np.logical_not(out))
        left = np.sum(active)
        k += 1
    return last.T, count.T


@dace.program
def acceleration(pos: F8[N, 3], mass: F8[N], G: F8, softening: F8):
    x = pos[:, 0]
    y = pos[:, 1]
    z = pos[:, 2]
    dx = x[None, :] - x[:, None]
    dy = y[None, :] - y[:, None]
    dz = z[None, :] - z[:, None]
    inv = dx**2 + dy**2 + dz**2 + softening**2
    inv[:] = np.where(inv > 0, inv ** (-1.5), inv)
    a = np.empty_like(pos)
    a[:, 0] = G * (dx * inv) @ mass
    a[:, 1] = G * (dy * inv) @ mass
    a[:, 2] = G * (dz * inv) @ mass
    return a


@dace.program
def energy(pos: F8[N, 3], vel: F8[N, 3], mass: F8[N], G: F8):
    kinetic = 0.5 * np.sum(mass[:, None] * vel**2)
    x = pos[:, 0]
    y = pos[:, 1]
    z = pos[:, 2]
    dx = x[None, :] - x[:, None]
    dy = y[None, :] - y[:, None]
    dz = z[None, :] - z[:, None]
    inv = np.sqrt(dx**2 + dy**2 + dz**2)
    inv[:] = np.where(inv > 0, 1.0 / inv, inv)
    potential = G * np.sum(np.triu(-(mass[:, None] * mass) * inv, 1))
    return kinetic, potential


@dace.program
def nbody(mass: F8[N], pos: F8[N, 3], vel: F8[N, 3], dt: F8, G: F8, softening: F8):
    vel -= np.mean(mass[:, None] * vel, axis=0) / np.mean(mass)
    acc = acceleration(pos, mass, G, softening)
    KE = np.empty((T + 1,))
    PE = np.empty((T + 1,))
    KE[0], PE[0] = energy(pos, vel, mass, G)
    for i in range(T):
        vel += acc * dt / 2.0
        pos += vel * dt
        acc[:] = acceleration(pos, mass, G, softening)
        vel += acc * dt / 2.0
        KE[i + 1], PE[i + 1] = energy(pos, vel, mass, G)
    return KE, PE


@dace.program
def spmv(rows: I8[N + 1], cols: I8[M], vals: F8[M], x: F8[K]):
    y = np.zeros((N,))
    for i in range(N):
        for k in range(rows[i], rows[i + 1]):
            y[i] += vals[k] * x[cols[k]]
    return y


@dace.program
def convolved(x: F4[S0, S1, S1, S2], w: F4[S3, S3, S2, S4]):
    out = np.empty((x.shape[0], x.shape[1] - w.shape[0] + 1, x.shape[2] - w.shape[1] + 1, w.shape[3]), np.float32)
    for i in range(x.shape[1] - w.shape[0] + 1):
        for j in range(x.shape[1] - w.shape[0] + 1):
            out[:, i, j, :] = np.einsum("nabc,abcm->nm", x[:, i : i + w.shape[0], j : j + w.shape[1], :], w)
    return out


@dace.program
def pooled(x: F4[S0, S1, S1, S2]):
    out = np.empty((x.shape[0], x.shape[1] // 2, x.shape[2] // 2, x.shape[3]), np.float32)
    for i in range(x.shape[1] // 2):
        for j in range(x.shape[2] // 2):
            out[:, i, j, :] = np.max(x[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, :], axis=(1, 2))
    return out


@dace.program
def lenet(
    x: F4[N, H, H, 1],
    c1: F4[5, 5, 1, 6],
    b1: F4[6],
    c2: F4[5, 5, 6, 16],
    b2: F4[16],
    w3: F4[((H - 4) // 2 - 4) // 2 * (((H - 4) // 2 - 4) // 2) * 16, 12],
    b3: F4[12],
    w4: F4[12, 10],
    b4: F4[10],
    w5: F4[10, 5],
    b5: F4[5],
):
    x1 = np.maximum(convolved(x, c1) + b1, 0)
    x2 = pooled(x1)
    x3 = np.maximum(convolved(x2, c2) + b2, 0)
    x4 = pooled(x3)
    x5 = np.reshape(x4, (N, ((H - 4) // 2 - 4) // 2 * (((H - 4) // 2 - 4) // 2) * 16))
    x6 = np.maximum(x5 @ w3 + b3, 0)
    x7 = np.maximum(x6 @ w4 + b4, 0)
    return x7 @ w5 + b5


@dace.program
def normalised(x: F4[S0, S1, S1, S2]):
    mean = np.mean(x, axis=0, keepdims=True)
    std = np.std(x, axis=0, keepdims=True)
    return (x - mean) / np.sqrt(std + np.float32(1e-5))


@dace.program
def resnet(x: F4[N, H, H, M], c1: F4[1, 1, M, K], c2: F4[3, 3, K, K], c3: F4[1, 1, K, M]):
    padded = np.zeros((N, H + 2, H + 2, K), np.float32)
    padded[:, 1:-1, 1:-1, :] = convolved(x, c1)
    y = np.maximum(normalised(padded), 0)
    z = np.maximum(normalised(convolved(y, c2)), 0)
    v = normalised(convolved(z, c3))
    return np.maximum(v + x, 0)


def _square(sizes: dict[str, int], rng: np.random.Generator) -> Results:
    return {"A": rng.uniform(-1, 1, (sizes["N"],) * 2) + sizes["N"] * np.eye(sizes["N"])}


def _plane(sizes: dict[str, int], rng: np.random.Generator) -> Results:
    return dict(xmin=-1.75, xmax=0.25, ymin=-1.0, ymax=1.0, steps=9, horizon=2.0)


def _bodies(sizes: dict[str, int], rng: np.random.Generator) -> Results:
    return dict(dt=0.01, G=1.0, softening=0.1, mass=rng.uniform(1, 2, sizes["N"]))


def _rows(sizes: dict[str, int], rng: np.random.Generator) -> Results:
    ends = np.sort(rng.integers(0, sizes["M"], sizes["N"] - 1))
    return {"rows": np.array([0, *ends, sizes["M"]]), "cols": rng.integers(0, sizes["K"], sizes["M"])}


PROGRAMS = [
    Program(cholesky, dict(N=5), lambda s, r: {"A": positive_definite(s["N"], r)}),
    Program(correlation, dict(N=9, M=7), lambda s, r: {"n": 9.0}),
    Program(covariance, dict(N=9, M=7), lambda s, r: {"n": 9.0}),
    Program(durbin, dict(N=8), lambda s, r: {"r": r.uniform(-0.3, 0.3, s["N"])}),
    Program(lu, dict(N=5), _square),
    Program(ludcmp, dict(N=5), _square),
    Program(nussinov, dict(N=6), lambda s, r: {"seq": r.integers(0, 4, s["N"]).astype(np.int32)}),
    Program(symm, dict(N=4, M=5)),
    Program(syr2k, dict(N=5, M=3)),
    Program(syrk, dict(N=5, M=3)),
    Program(trisolv, dict(N=8), lambda s, r: {"L": _square(s, r)["A"]}),
    Program(trmm, dict(N=4, M=5)),
    Program(deriche, dict(N=9, M=8), lambda s, r: {"alpha": 0.25}),
    Program(crc16, dict(N=5), lambda s, r: {"data": r.integers(0, 256, s["N"]).astype(np.uint8)}),
    Program(azimint_naive, dict(N=40, M=4), positive=True),
    Program(azimint_hist, dict(N=40, M=4), positive=True),
    Program(mandelbrot1, dict(N=9, M=7), _plane),
    Program(mandelbrot2, dict(N=9, M=7), _plane),
    Program(nbody, dict(N=5, T=2), _bodies),
    Program(spmv, dict(N=5, M=9, K=7), _rows),
    Program(lenet, dict(N=2, H=16)),
    Program(resnet, dict(N=3, H=4, M=4, K=3)),
]
