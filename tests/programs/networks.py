"""Tensor networks and quantum chemistry, as their users write them."""

import dace
import numpy as np

from programs.program import Program

D, P, X, O, V, N = (dace.symbol(name, dace.int64) for name in ("D", "P", "X", "O", "V", "N"))  # noqa: E741


@dace.program
def tensor_train_norm(A: dace.float64[P, D], B: dace.float64[D, P, D], C: dace.float64[D, P]):
    left = np.einsum("pa,pb->ab", A, A)
    middle = np.einsum("ab,apc,bpd->cd", left, B, B)
    return np.einsum("cd,cp,dp->", middle, C, C)


@dace.program
def tensor_train_of_equal_cores(cores: dace.float64[5, D, P, D]):
    left = np.eye(cores.shape[1])
    for site in range(5):
        left[:] = np.einsum("ab,apc,bpd->cd", left, cores[site], cores[site])
    return np.trace(left)


@dace.program
def tensor_train_full(A: dace.float64[P, D], B: dace.float64[D, P, D], C: dace.float64[D, P]):
    return np.einsum("pa,aqb,br->pqr", A, B, C)


@dace.program
def mera_layer(u: dace.float64[X, X, X, X], w: dace.float64[X, X, X], h: dace.float64[X, X, X, X]):
    raised = np.einsum("abij,ijkl,cdkl->abcd", u, h, u)
    return np.einsum("xap,ybp,abcd,zcq,wdq->xyzw", w, w, raised, w, w)


@dace.program
def peps_row(T: dace.float64[D, D, D, D], left: dace.float64[X, D, X], right: dace.float64[X, D, X]):
    absorbed = np.einsum("aib,ijkl->abjkl", left, T)
    norm = np.sqrt(np.sum(absorbed * absorbed))
    return np.einsum("abjkl,bjc->ackl", absorbed / norm, right)


@dace.program
def dmrg_effective_hamiltonian(
    L: dace.float64[X, D, X], W: dace.float64[D, D, P, P], R: dace.float64[X, D, X], psi: dace.float64[X, P, X]
):
    for _ in range(3):
        psi[:] = np.einsum("awb,wvpq,cvd,bqd->apc", L, W, R, psi)
        psi /= np.linalg.norm(psi)
    return np.einsum("apc,apc->", psi, psi)


@dace.program
def mp2_energy(ovov: dace.float64[O, V, O, V], occupied: dace.float64[O], unoccupied: dace.float64[V]):
    gap = (
        occupied[:, None, None, None]
        - unoccupied[None, :, None, None]
        + occupied[None, None, :, None]
        - unoccupied[None, None, None, :]
    )
    t = ovov / gap
    return np.sum(t * (2.0 * ovov - np.swapaxes(ovov, 1, 3)))


@dace.program
def coupled_cluster_doubles(
    t: dace.float64[V, V, O, O],
    oovv: dace.float64[O, O, V, V],
    vvvv: dace.float64[V, V, V, V],
    oooo: dace.float64[O, O, O, O],
    gap: dace.float64[V, V, O, O],
):
    energy = np.zeros((3,))
    for iteration in range(3):
        residual = np.transpose(oovv, (2, 3, 0, 1))
        residual = residual + 0.5 * np.einsum("abcd,cdij->abij", vvvv, t)
        residual = residual + 0.5 * np.einsum("klij,abkl->abij", oooo, t)
        residual = residual + 0.25 * np.einsum("klcd,cdij,abkl->abij", oovv, t, t)
        t[:] = residual / gap
        energy[iteration] = 0.25 * np.einsum("ijab,abij->", oovv, t)
    return energy


@dace.program
def integral_transformation(eri: dace.float64[N, N, N, N], C: dace.float64[N, O]):
    return np.einsum("pqrs,pi,qj,rk,sl->ijkl", eri, C, C, C, C)


@dace.program
def fock_matrix(eri: dace.float64[N, N, N, N], h: dace.float64[N, N], C: dace.float64[N, O]):
    density = 2.0 * C @ C.T
    F = h + np.einsum("pqrs,rs->pq", eri, density) - 0.5 * np.einsum("prqs,rs->pq", eri, density)
    return F, 0.5 * np.sum(density * (h + F))


@dace.program
def natural_occupations(t: dace.float64[V, V, O, O]):
    density = np.einsum("abij,cbij->ac", t, t)
    return np.diagonal(density), np.trace(density)


PROGRAMS = (
    Program(tensor_train_norm, dict(P=4, D=5)),
    Program(tensor_train_of_equal_cores, dict(P=4, D=5)),
    Program(tensor_train_full, dict(P=4, D=5)),
    Program(mera_layer, dict(X=3)),
    Program(peps_row, dict(D=3, X=4)),
    Program(dmrg_effective_hamiltonian, dict(X=5, D=3, P=2)),
    Program(mp2_energy, dict(O=3, V=5), positive=True),
    Program(coupled_cluster_doubles, dict(O=3, V=4), positive=True),
    Program(integral_transformation, dict(N=5, O=3)),
    Program(fock_matrix, dict(N=5, O=3)),
    Program(natural_occupations, dict(O=3, V=5)),
)
