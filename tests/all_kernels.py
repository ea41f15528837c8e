"""All kernels of the benchmarks as statements of a few programs, since each program is compiled separately."""

import types
from typing import Any

import dace
import einsum_kernels as kernels
import numpy as np
from einsum_kernels import I, J, K, L, M, O, P, Q, R, T, V, W  # noqa: E741

SIZES = dict(I=9, J=7, K=6, L=5, M=4, P=3, Q=2, R=4, T=3, O=3, V=5, W=4)


@dace.program
def all_kernels(
    F: dace.float64[I, J],
    G: dace.float64[J, K],
    H: dace.float64[K, L],
    N: dace.float64[L, M],
    Y: dace.float64[I, J, K],
    X: dace.float64[I, J, K, L, M],
    A: dace.float64[I, R],
    B: dace.float64[J, R],
    C: dace.float64[K, R],
    D: dace.float64[L, R],
    E: dace.float64[M, R],
    BP: dace.float64[J, P],
    CQ: dace.float64[K, Q],
    ET: dace.float64[M, T],
    v: dace.float64[O, V, V, O],
    t: dace.float64[O, O, V, V],
    w: dace.float64[W, V, V, V],
    u: dace.float64[V, V, O, O],
):
    return (
        kernels.mm1(F, G),
        kernels.mm2(F, G, H),
        kernels.mm3(F, G, H, N),
        kernels.mttkrp3_0(Y, B, C),
        kernels.mttkrp3_1(Y, A, C),
        kernels.mttkrp3_2(Y, A, B),
        kernels.mttkrp5_0(X, B, C, D, E),
        kernels.mttkrp5_2(X, A, B, D, E),
        kernels.mttkrp5_4(X, A, B, C, D),
        kernels.ttmc(X, BP, CQ, D, ET),
        kernels.rings(v, t),
        kernels.ladder(w, u),
    )


@dace.program
def sweeps(
    X: dace.float64[I, J, K],
    A: dace.float64[I, P],
    B: dace.float64[J, Q],
    C: dace.float64[K, R],
    Y: dace.float64[I, J, K],
    BR: dace.float64[J, R],
    CR: dace.float64[K, R],
):
    core = kernels.tucker(X, A, B, C)
    return core, kernels.cp(Y, BR, CR)


@dace.program
def other_types(
    A: dace.float32[I, J],
    B: dace.float32[J, K],
    C: dace.float32[K, L],
    Y: dace.float32[I, J, K],
    U: dace.float32[J, R],
    V_: dace.float32[K, R],
    AC: dace.complex128[I, J],
    BC: dace.complex128[J, K],
    CC: dace.complex128[K, L],
    YC: dace.complex128[I, J, K],
    UC: dace.complex128[J, R],
    VC: dace.complex128[K, R],
    G: dace.float32[R, R],
    H: dace.float32[R, Q],
    GS: dace.complex64[R, R],
    GC: dace.complex128[R, R],
):
    return (
        np.einsum("ij,jk,kl->il", A, B, C),
        np.einsum("ijk,ja,ka->ia", Y, U, V_),
        np.einsum("ijk,jr->irk", Y, U),
        np.einsum("ij,jk,kl->il", AC, BC, CC),
        np.einsum("ijk,ja,ka->ia", YC, UC, VC),
        np.einsum("ijk,jr->irk", YC, UC),
        np.linalg.solve(G, H),
        np.linalg.inv(GS),
        np.linalg.solve(GC.T, UC.T),
    )


PROGRAMS = {program.f.__name__: program for program in (all_kernels, sweeps, other_types)}


def in_python(program: Any) -> Any:
    """Return the Python function of a program, which calls the Python functions of the kernels: NumPy only."""
    plain = types.SimpleNamespace(**{name: getattr(kernel, "f", kernel) for name, kernel in vars(kernels).items()})
    return types.FunctionType(program.f.__code__, {**program.f.__globals__, "kernels": plain})
