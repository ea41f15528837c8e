"""Kernels as their users write them, plain DaCe programs of NumPy calls, besides those of Deinsum in ``examples``."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

import dace
import numpy as np
from deinsum_kernels import I, J, K, OfJ, OfK, Order3, P, Q, T

O, V, W = (dace.symbol(name, dace.int64) for name in "OVW")  # noqa: E741
SWEEPS, NEWTON_SCHULZ = 3, 20


@dace.program
def snapshots(U: dace.float64[T, I, J, K]):
    """Correlations of T snapshots of a field: proper orthogonal decomposition by the method of snapshots."""
    return np.einsum("tijk,sijk->ts", U, U)


@dace.program
def rings(v: dace.float64[O, V, V, O], t: dace.float64[O, O, V, V]):
    """Coupled cluster: the ring diagrams, v_icak t_kjcb, of O occupied and V virtual orbitals."""
    return np.einsum("icak,kjcb->ijab", v, t)


@dace.program
def ladder(v: dace.float64[W, V, V, V], t: dace.float64[V, V, O, O]):
    """Coupled cluster: the particle-particle ladder, v_abcd t_cdij, for W of the orbitals a; v is made in slices."""
    return np.einsum("abcd,cdij->abij", v, t)


@dace.program
def tucker(X: Order3, A: dace.float64[I, P], B: dace.float64[J, Q], C: OfK):
    """
    Tucker decomposition by sweeps of higher-order orthogonal iteration, with the core at the end.

    A factor should become the leading left singular vectors of its TTMc, Y. Here it takes one step there: ``Y Y^T A``
    (orthogonal iteration), made orthonormal by Newton-Schulz steps, for DaCe has neither SVD nor QR that could be
    distributed. Left to the user: to say when it has converged, and a QR where more steps than these are needed.
    """
    for _ in range(SWEEPS):
        YA = np.einsum("ijk,jq,kr->iqr", X, B, C)
        A[:] = np.einsum("iqr,lqr,lp->ip", YA, YA, A)
        A[:] = A / np.sqrt(np.einsum("ip,ip->", A, A))
        for _a in range(NEWTON_SCHULZ):
            A[:] = 1.5 * A - 0.5 * (A @ (A.T @ A))
        YB = np.einsum("ijk,ip,kr->jpr", X, A, C)
        B[:] = np.einsum("jpr,lpr,lq->jq", YB, YB, B)
        B[:] = B / np.sqrt(np.einsum("jq,jq->", B, B))
        for _b in range(NEWTON_SCHULZ):
            B[:] = 1.5 * B - 0.5 * (B @ (B.T @ B))
        YC = np.einsum("ijk,ip,jq->kpq", X, A, B)
        C[:] = np.einsum("kpq,lpq,lr->kr", YC, YC, C)
        C[:] = C / np.sqrt(np.einsum("kr,kr->", C, C))
        for _c in range(NEWTON_SCHULZ):
            C[:] = 1.5 * C - 0.5 * (C @ (C.T @ C))
    return np.einsum("ijk,ip,jq,kr->pqr", X, A, B, C)


@dace.program
def cp(X: Order3, B: OfJ, C: OfK):
    """
    CP decomposition by sweeps of alternating least squares: returns the first factor, for which none is needed before.

    A factor becomes the best one for the others: its MTTKRP times the inverse of the R x R product of their Gram
    matrices. Left to the user: to say when it has converged, and to normalise the columns if there are many sweeps.
    """
    GB, GC = B.T @ B, C.T @ C
    for _ in range(SWEEPS):
        A = np.einsum("ijk,ja,ka->ia", X, B, C) @ np.linalg.inv(GB * GC)
        GA = A.T @ A
        B[:] = np.einsum("ijk,ia,ka->ja", X, A, C) @ np.linalg.inv(GA * GC)
        GB[:] = B.T @ B
        C[:] = np.einsum("ijk,ia,ja->ka", X, A, B) @ np.linalg.inv(GA * GB)
        GC[:] = C.T @ C
    return A
