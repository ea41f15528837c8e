"""Tunes the kernels of Deinsum (arXiv 2206.08301). Run: mpiexec -n 4 python examples/deinsum_kernels.py"""

import sys

import dace
import numpy as np
from mpi4py import MPI

import dace_redist

I, J, K, L, M, P, Q, R, T = (dace.symbol(name, dace.int64) for name in "IJKLMPQRT")  # noqa: E741
Order3, Order5 = dace.float64[I, J, K], dace.float64[I, J, K, L, M]
OfI, OfJ, OfK, OfL, OfM = (dace.float64[mode, R] for mode in (I, J, K, L, M))


@dace.program
def mm1(A: dace.float64[I, J], B: dace.float64[J, K]):
    return np.einsum("ij,jk->ik", A, B)


@dace.program
def mm2(A: dace.float64[I, J], B: dace.float64[J, K], C: dace.float64[K, L]):
    return np.einsum("ij,jk,kl->il", A, B, C)


@dace.program
def mm3(A: dace.float64[I, J], B: dace.float64[J, K], C: dace.float64[K, L], D: dace.float64[L, M]):
    return np.einsum("ij,jk,kl,lm->im", A, B, C, D)


@dace.program
def mttkrp3_0(X: Order3, B: OfJ, C: OfK):
    return np.einsum("ijk,ja,ka->ia", X, B, C)


@dace.program
def mttkrp3_1(X: Order3, A: OfI, C: OfK):
    return np.einsum("ijk,ia,ka->ja", X, A, C)


@dace.program
def mttkrp3_2(X: Order3, A: OfI, B: OfJ):
    return np.einsum("ijk,ia,ja->ka", X, A, B)


@dace.program
def mttkrp5_0(X: Order5, B: OfJ, C: OfK, D: OfL, E: OfM):
    return np.einsum("ijklm,ja,ka,la,ma->ia", X, B, C, D, E)


@dace.program
def mttkrp5_2(X: Order5, A: OfI, B: OfJ, D: OfL, E: OfM):
    return np.einsum("ijklm,ia,ja,la,ma->ka", X, A, B, D, E)


@dace.program
def mttkrp5_4(X: Order5, A: OfI, B: OfJ, C: OfK, D: OfL):
    return np.einsum("ijklm,ia,ja,ka,la->ma", X, A, B, C, D)


@dace.program
def ttmc(X: Order5, B: dace.float64[J, P], C: dace.float64[K, Q], D: OfL, E: dace.float64[M, T]):
    return np.einsum("ijklm,jb,kc,ld,me->ibcde", X, B, C, D, E)


#: Kernels, with the extents of tensors and of the ranks of factors.
KERNELS = {
    **dict.fromkeys((mm1, mm2, mm3), (512, 0)),
    **dict.fromkeys((mttkrp3_0, mttkrp3_1, mttkrp3_2), (96, 24)),
    **dict.fromkeys((mttkrp5_0, mttkrp5_2, mttkrp5_4, ttmc), (16, 12)),
}


def main() -> None:
    comm, rng = MPI.COMM_WORLD, np.random.default_rng(0)  # the same numbers on every rank
    for kernel, (extent, rank) in KERNELS.items():
        if sys.argv[1:] and kernel.f.__name__ not in sys.argv[1:]:
            continue
        arrays, seconds, results = kernel.f.__annotations__, [], []
        sizes = {str(s): rank if str(s) in "PQRT" else extent for array in arrays.values() for s in array.shape}
        program = dace_redist.distribute(kernel, comm.size, sizes)  # chooses distributions: print(program)
        whole = {name: rng.random([sizes[str(s)] for s in array.shape]) for name, array in arrays.items()}
        parts = program.scatter(**whole)
        for tuned in (False, True):
            dace_redist.set_strategy(program.sdfg, "Datatype")  # a transformation of the SDFG
            if tuned:
                found = dace_redist.tune(program.sdfg, symbols=sizes, limit_seconds=0.5, progress=False)
            results.append(program.gather(program.run(**parts)))  # the first run compiles
            comm.Barrier()
            start = MPI.Wtime()
            for _ in range(10):
                program.run(**parts)
            seconds.append(comm.allreduce(MPI.Wtime() - start, MPI.MAX) / 10)
        if comm.rank == 0:
            assert np.allclose(*results)
            print(f"{kernel.f.__name__:10} {1e3 * seconds[0]:8.2f} ms by Datatype {1e3 * seconds[1]:8.2f} ms tuned")
            for one in found:  # none: no redistribution
                print(f"    {', '.join(one.nodes)}: {one.best}, for {one.verdict}")


if __name__ == "__main__":
    main()
