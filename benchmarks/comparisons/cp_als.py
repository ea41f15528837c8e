"""A sweep of CP decomposition by alternating least squares: ``einsum``, plans, or NumPy and mpi4py by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

from comparisons.comparison import Comparison, UnsuitableError
from dace_redist import DistributedArray, Distribution, einsum, einsum_plan, replicated
from dace_redist.mpi.collective import together

MODES = ("ijk,ja,ka->ia", "ijk,ia,ka->ja", "ijk,ia,ja->ka")
RANK = 8


def _others(factors: list[Any], mode: int) -> list[Any]:
    return [factor for number, factor in enumerate(factors) if number != mode]


def _inverse(*factors: Any) -> Any:
    """Return the inverse of the product, element by element, of the factors' Gram matrices."""
    return np.linalg.pinv(np.prod([factor.T @ factor for factor in factors], axis=0))


def _distributed(X: DistributedArray, start: list[Any], contract: Callable[..., Any]) -> Callable[[], list[Any]]:
    """Return a sweep; the factors are on every rank. ``contract`` takes a mode and the operands."""
    factors = [replicated(factor.copy()) for factor in start]

    def sweep() -> list[Any]:
        for mode, factor in enumerate(factors):
            others = _others(factors, mode)
            product = contract(mode, X, *others, factor.distribution)
            factor.local[...] = product.local @ _inverse(*(one.local for one in others))
        return [factor.local for factor in factors]

    return sweep


def _by_hand(X: Any, mine: slice, start: list[Any], comm: MPI.Intracomm) -> Callable[[], list[Any]]:
    """Return a sweep with whole factors on each rank, of which the first belongs to the rows of a rank."""
    factors = [factor.copy() for factor in start]

    def sweep() -> list[Any]:
        for mode, expression in enumerate(MODES):
            others = _others(factors, mode)
            inverse = _inverse(*others)
            if mode > 0:
                others[0] = others[0][mine]
            product = np.einsum(expression, X, *others, optimize=True)
            if mode == 0:
                parts = comm.allgather(product @ inverse)
                factors[0] = np.concatenate(parts)
            else:
                comm.Allreduce(MPI.IN_PLACE, product)
                factors[mode] = product @ inverse
        return factors

    return sweep


def sweeps(comm: MPI.Intracomm, shape: tuple[int, ...]) -> Iterator[Comparison]:
    """Prepare a tensor in slabs, and factors of :data:`RANK` columns."""
    if len(shape) != 3 or min(shape) < comm.size:
        raise UnsuitableError(f"expected three lengths of at least {comm.size}, got {'x'.join(map(str, shape))}")
    rng = np.random.default_rng(1)
    true, start = ([rng.random((extent, RANK)) for extent in shape] for _ in range(2))
    slabs = Distribution.split(shape, 0, comm.size)
    whole = np.einsum("ia,ja,ka->ijk", *true)
    X = DistributedArray(np.ascontiguousarray(slabs.local(whole, comm.rank)), slabs, comm)
    factors = [replicated(factor) for factor in start]
    plans = [
        einsum_plan(expression, X, *_others(factors, mode), target=factors[mode].distribution)
        for mode, expression in enumerate(MODES)
    ]
    mine = slabs.slices(comm.rank)[0]
    methods = {
        "einsum": _distributed(X, start, lambda mode, *given: einsum(MODES[mode], *given[:-1], target=given[-1])),
        "einsum_plan": _distributed(X, start, lambda mode, *given: plans[mode](*given[:-1])),
        "mpi4py": _by_hand(X.local, mine, start, comm),
    }
    found = [sweep() for sweep in methods.values()]
    with together(comm):
        for other in found[1:]:
            for one, same in zip(found[0], other, strict=True):
                np.testing.assert_allclose(one, same, rtol=1e-6)
    yield Comparison(f"rank {RANK}", methods)
