"""Factorisations of tensors and of nonnegative matrices, as their users write them."""

import dace
import numpy as np

from programs.program import Program

I, J, K, L, R, S = (dace.symbol(name, dace.int64) for name in "IJKLRS")  # noqa: E741
SIZES = dict(I=7, J=6, K=5, R=3)


@dace.program
def cp_als(X: dace.float64[I, J, K], A: dace.float64[I, R], B: dace.float64[J, R], C: dace.float64[K, R]):
    norm_X = np.sqrt(np.sum(X * X))
    fit = np.zeros((3,))
    ridge = 1e-3 * np.eye(A.shape[1])
    for sweep in range(3):
        A[:] = np.einsum("ijk,jr,kr->ir", X, B, C) @ np.linalg.inv((B.T @ B) * (C.T @ C) + ridge)
        B[:] = np.einsum("ijk,ir,kr->jr", X, A, C) @ np.linalg.inv((A.T @ A) * (C.T @ C) + ridge)
        C[:] = np.einsum("ijk,ir,jr->kr", X, A, B) @ np.linalg.inv((A.T @ A) * (B.T @ B) + ridge)
        residual = X - np.einsum("ir,jr,kr->ijk", A, B, C)
        fit[sweep] = 1 - np.linalg.norm(residual) / norm_X
    return fit


@dace.program
def cp_als_normalised(X: dace.float64[I, J, K], A: dace.float64[I, R], B: dace.float64[J, R], C: dace.float64[K, R]):
    weights = np.ones((A.shape[1],))
    for _ in range(3):
        G = (B.T @ B) * (C.T @ C)
        A[:] = np.linalg.solve(G, np.einsum("ijk,jr,kr->ri", X, B, C)).T
        weights[:] = np.sqrt(np.sum(A**2, axis=0))
        A /= weights
        H = (A.T @ A) * (C.T @ C)
        B[:] = np.linalg.solve(H, np.einsum("ijk,ir,kr->rj", X, A, C)).T
        B /= np.linalg.norm(B, axis=0)
    return weights


@dace.program
def nonnegative_cp(X: dace.float64[I, J, K], A: dace.float64[I, R], B: dace.float64[J, R], C: dace.float64[K, R]):
    for _ in range(4):
        A *= np.einsum("ijk,jr,kr->ir", X, B, C) / (A @ ((B.T @ B) * (C.T @ C)) + 1e-9)
        B *= np.einsum("ijk,ir,kr->jr", X, A, C) / (B @ ((A.T @ A) * (C.T @ C)) + 1e-9)
        C *= np.einsum("ijk,ir,jr->kr", X, A, B) / (C @ ((A.T @ A) * (B.T @ B)) + 1e-9)


@dace.program
def mttkrp_by_unfolding(X: dace.float64[I, J, K], B: dace.float64[J, R], C: dace.float64[K, R]):
    unfolded = X.reshape(X.shape[0], X.shape[1] * X.shape[2])
    khatri_rao = np.einsum("jr,kr->jkr", B, C).reshape(B.shape[0] * C.shape[0], B.shape[1])
    return unfolded @ khatri_rao


@dace.program
def tucker_hooi(X: dace.float64[I, J, K], U: dace.float64[I, R], V: dace.float64[J, R], W: dace.float64[K, R]):
    for _ in range(2):
        Y = np.einsum("ijk,jb,kc->ibc", X, V, W)
        G = np.einsum("ibc,jbc->ij", Y, Y)
        for _power in range(3):
            Z = G @ U
            for r in range(U.shape[1]):
                for q in range(r):
                    Z[:, r] -= np.dot(Z[:, q], Z[:, r]) * Z[:, q]
                Z[:, r] /= np.linalg.norm(Z[:, r])
            U[:] = Z
    return np.einsum("ijk,ia,jb,kc->abc", X, U, V, W)


@dace.program
def tucker_reconstruction(
    G: dace.float64[R, R, R], U: dace.float64[I, R], V: dace.float64[J, R], W: dace.float64[K, R]
):
    X = np.tensordot(G, U, axes=([0], [1]))
    Y = np.tensordot(X, V, axes=([0], [1]))
    Z = np.tensordot(Y, W, axes=([0], [1]))
    return Z, np.linalg.norm(Z)


@dace.program
def nonnegative_matrix_factorisation(V: dace.float64[I, J], W: dace.float64[I, R], H: dace.float64[R, J]):
    for _ in range(5):
        H *= (W.T @ V) / (W.T @ W @ H + 1e-9)
        W *= (V @ H.T) / (W @ H @ H.T + 1e-9)
    return np.linalg.norm(V - W @ H)


@dace.program
def mode_products(X: dace.float64[I, J, K], U: dace.float64[R, J]):
    Y = np.moveaxis(np.tensordot(U, X, axes=([1], [1])), 0, 1)
    return Y, np.swapaxes(Y, 0, 2)


PROGRAMS = (
    Program(cp_als, SIZES),
    Program(cp_als_normalised, SIZES),
    Program(nonnegative_cp, SIZES, positive=True),
    Program(mttkrp_by_unfolding, SIZES),
    Program(tucker_hooi, SIZES),
    Program(tucker_reconstruction, SIZES),
    Program(nonnegative_matrix_factorisation, dict(I=7, J=6, R=3), positive=True),
    Program(mode_products, SIZES),
)
