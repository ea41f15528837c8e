"""A chain of redistributions that ``dace.autodiff`` differentiates, and NumPy's values and derivatives.

Annotations are not postponed: DaCe would look for their names among the globals.
"""

from typing import Any

import dace
import numpy as np

import dace_redist
from dace_redist import Distribution

SHAPE, BOX = (8, 6), (4, 4)
REGION = ((1, 2), (0, 0), BOX)


def sides(ranks: int) -> tuple[Distribution, ...]:
    """Return rows, replicas, columns of the transposed tensor, rows of a box of that, over some ranks."""
    return (
        Distribution(SHAPE, (ranks,)),
        Distribution.replicated(SHAPE, ranks),
        Distribution(SHAPE[::-1], (1, ranks)),
        Distribution(BOX, (ranks,)),
    )


def chain_sdfg(ranks: int) -> dace.SDFG:
    """Return a program and its backward pass: replicas, partial sums, a transposition, a region, a reshape, factors."""
    from dace.autodiff import add_backward_pass

    rows, everywhere, columns, box = sides(ranks)
    merged = Distribution.split((48,), 0, ranks)
    m, n, k = SHAPE[0] // ranks, SHAPE[1], BOX[0] // ranks

    @dace.program
    def chain(
        A: dace.float64[m, n], W: dace.float64[8, 6], V: dace.float64[k, 4], U: dace.float64[m, n], S: dace.float64[1]
    ):
        B = dace_redist.redistribute(A**2, rows, everywhere)
        C = np.sin(B) * W
        D = dace_redist.redistribute(C, everywhere, columns, axes=(1, 0), op="sum", alpha=0.5)
        E = dace_redist.redistribute(D**2, columns, box, region=((1, 2), (0, 0), (4, 4)))
        F = dace_redist.redistribute(B**2, everywhere, rows)
        G = dace_redist.redistribute(F**2, rows, merged, reshape=(48,))
        S[0] = np.sum(E * V) + np.sum(F * U) + np.sum(G**2)

    sdfg = chain.to_sdfg()
    add_backward_pass(sdfg, outputs=["S"], inputs=["A", "W"])
    return sdfg


def loss(A: Any, W: Any, V: Any, U: Any) -> Any:
    """Return the sum of the results of all ranks; ``W`` has the weights of each rank."""
    B = A * A
    D = 0.5 * (np.sin(B) * W).sum(axis=0).T
    box = tuple(slice(low, low + extent) for low, extent in zip(REGION[0], BOX, strict=True))
    return ((D * D)[box] * V).sum() + (B * B * U).sum() + (B**8).sum()


def derivative(of: int, *arrays: Any) -> np.ndarray:
    """Return the derivative of the loss with respect to an argument, by complex steps."""
    step, found = 1e-30, np.zeros(arrays[of].shape)
    for index in np.ndindex(found.shape):
        moved = [array.astype(complex) for array in arrays]
        moved[of][index] += 1j * step
        found[index] = loss(*moved).imag / step
    return found
