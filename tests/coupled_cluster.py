"""Coupled-cluster amplitudes (CCSD) in spin orbitals, after Stanton, Gauss, Watts and Bartlett, JCP 94, 4334 (1991)."""

import dace
import numpy as np

N, M = dace.symbol("N", dace.int64), dace.symbol("M", dace.int64)  # occupied, virtual
F8 = dace.float64


@dace.program
def coupled_cluster(
    foo: F8[N, N],
    fov: F8[N, M],
    fvv: F8[M, M],
    oooo: F8[N, N, N, N],
    ooov: F8[N, N, N, M],
    oovo: F8[N, N, M, N],
    oovv: F8[N, N, M, M],
    ovov: F8[N, M, N, M],
    ovvo: F8[N, M, M, N],
    ovoo: F8[N, M, N, N],
    ovvv: F8[N, M, M, M],
    vovv: F8[M, N, M, M],
    vvvo: F8[M, M, M, N],
    vvvv: F8[M, M, M, M],
    D1: F8[N, M],
    D2: F8[N, N, M, M],
    t1: F8[N, M],
    t2: F8[N, N, M, M],
):
    outer = np.einsum("ia,jb->ijab", t1, t1)
    swapped = np.einsum("ib,ja->ijab", t1, t1)
    ttau = t2 + 0.5 * (outer - swapped)
    tau = t2 + outer - swapped
    Fae = fvv - 0.5 * np.einsum("me,ma->ae", fov, t1)
    Fae += np.einsum("mf,mafe->ae", t1, ovvv)
    Fae -= 0.5 * np.einsum("mnaf,mnef->ae", ttau, oovv)
    Fmi = foo + 0.5 * np.einsum("ie,me->mi", t1, fov)
    Fmi += np.einsum("ne,mnie->mi", t1, ooov)
    Fmi += 0.5 * np.einsum("inef,mnef->mi", ttau, oovv)
    Fme = fov + np.einsum("nf,mnef->me", t1, oovv)
    P = np.einsum("je,mnie->mnij", t1, ooov)
    Wmnij = oooo + P
    Wmnij -= np.einsum("mnij->mnji", P)
    Wmnij += 0.25 * np.einsum("ijef,mnef->mnij", tau, oovv)
    Q = np.einsum("mb,amef->abef", t1, vovv)
    Wabef = vvvv - Q
    Wabef += np.einsum("abef->baef", Q)
    Wabef += 0.25 * np.einsum("mnab,mnef->abef", tau, oovv)
    jnfb = 0.5 * t2 + np.einsum("jf,nb->jnfb", t1, t1)
    Wmbej = ovvo + np.einsum("jf,mbef->mbej", t1, ovvv)
    Wmbej -= np.einsum("nb,mnej->mbej", t1, oovo)
    Wmbej -= np.einsum("jnfb,mnef->mbej", jnfb, oovv)
    R1 = fov + np.einsum("ie,ae->ia", t1, Fae)
    R1 -= np.einsum("ma,mi->ia", t1, Fmi)
    R1 += np.einsum("imae,me->ia", t2, Fme)
    R1 -= np.einsum("nf,naif->ia", t1, ovov)
    R1 -= 0.5 * np.einsum("imef,maef->ia", t2, ovvv)
    R1 -= 0.5 * np.einsum("mnae,nmei->ia", t2, oovo)
    X = Fae - 0.5 * np.einsum("mb,me->be", t1, Fme)
    T = np.einsum("ijae,be->ijab", t2, X)
    R2 = oovv + T
    R2 -= np.einsum("ijab->ijba", T)
    Y = Fmi + 0.5 * np.einsum("je,me->mj", t1, Fme)
    U = np.einsum("imab,mj->ijab", t2, Y)
    R2 -= U
    R2 += np.einsum("ijab->jiab", U)
    R2 += 0.5 * np.einsum("mnab,mnij->ijab", tau, Wmnij)
    R2 += 0.5 * np.einsum("ijef,abef->ijab", tau, Wabef)
    Z = np.einsum("imae,mbej->ijab", t2, Wmbej)
    Z -= np.einsum("ie,ma,mbej->ijab", t1, t1, ovvo)
    R2 += Z
    R2 -= np.einsum("ijab->jiab", Z)
    R2 -= np.einsum("ijab->ijba", Z)
    R2 += np.einsum("ijab->jiba", Z)
    S = np.einsum("ie,abej->ijab", t1, vvvo)
    R2 += S
    R2 -= np.einsum("ijab->jiab", S)
    W = np.einsum("ma,mbij->ijab", t1, ovoo)
    R2 -= W
    R2 += np.einsum("ijab->ijba", W)
    return R1 / D1, R2 / D2
