"""Long sums are as exact as NumPy's: of einsums, of partial results, of distributed programs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import dace
import numpy as np
import pytest
from builds import planned
from seeds import seed, some

from dace_redist import DistributedArray, Distribution, einsum, redistribute

N, M = (dace.symbol(name, dace.int64) for name in "NM")
EINSUMS = ["i->", "ij->", "ij->i", "ij->j", "ijk->", "ijk->j", "ijk->k", "i,i->", "ij,ij->", "ij,ij->i", "ij,ij->j"]


@dace.program
def reductions(A: dace.float32[N, M]):
    return np.sum(A), np.mean(A), np.std(A), np.sum(A, axis=0), np.sum(A, axis=1), np.einsum("ij,ij->", A, A)


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return equal numbers, numbers from 0 to 1, or numbers with a large offset; both parts of complex ones."""
    same = rng.random()
    low, high = [(same, same), (0, 1), (1000, 1001)][rng.integers(3)]
    made = rng.uniform(low, high, (2, *shape))
    return np.asarray(made[0] + 1j * made[1] if np.dtype(dtype).kind == "c" else made[0]).astype(dtype)


def random_shape(rng: np.random.Generator, ndim: int) -> tuple[int, ...]:
    """Return extents for 1000 to 2,000,000 elements, now and then for 10,000,000."""
    digits = rng.uniform(3, 6.3) if rng.integers(20) else 7
    return tuple(np.rint(10 ** np.diff([0, *np.sort(rng.uniform(0, digits, ndim - 1)), digits])).astype(int).tolist())


def sums(axis: Any) -> Callable[..., Any]:
    """Return a function that sums products along axes."""
    return lambda *arrays: np.sum(functools.reduce(np.multiply, arrays), axis=axis)


def check(found: Any, reduce: Callable[..., Any], arrays: list[np.ndarray], what: Any) -> None:
    """Check that the error is at most 4 times NumPy's, or 4 units in the last place."""
    wide, largest = np.result_type(arrays[0], np.longdouble), np.max(np.abs(arrays[0]))
    exact = reduce(*(array.astype(wide) for array in arrays))
    of_numpy, error = (np.max(np.abs(one - exact)) for one in (reduce(*arrays), found))
    most = 4 * max(of_numpy, np.finfo(arrays[0].dtype).eps * max(largest, np.max(np.abs(exact))))
    assert error <= most, f"{what}: the error is {error:.3}, that of NumPy {of_numpy:.3}, of {np.max(np.abs(exact)):.3}"


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[1, 3], full=[2], timeout=1800)
def test_einsums_and_partial_results(comm):
    rng = np.random.default_rng(seed(3))
    for _ in range(some(60)):
        expression, dtype = rng.choice(EINSUMS), rng.choice(["f4", "f8", "c8", "c16"])
        terms, result = expression.split("->")
        term, count = terms.split(",")[0], terms.count(",") + 1
        axis, shape = tuple(k for k, index in enumerate(term) if index not in result), random_shape(rng, len(term))
        wholes, what = [drawn(rng, shape, dtype) for _ in range(count)], (expression, dtype, shape)
        where = Distribution.split(shape, int(rng.integers(len(shape))), comm.size)
        arrays = [DistributedArray(where.local(whole, comm.rank), where, comm) for whole in wholes]
        found = einsum(expression, *arrays).gather()
        addends, copies = drawn(rng, (comm.size, *shape), dtype), Distribution.replicated(shape, comm.size)
        added = redistribute(addends[comm.rank], copies, where, comm=comm, op="sum")
        whole = DistributedArray(added, where, comm).gather()
        if comm.rank == 0:
            check(found, sums(axis), wholes, what)
            check(whole, sums(0), [addends], what)


@pytest.mark.dace
@pytest.mark.compile
@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[2], full=[1, 3], timeout=1800)
def test_distributed_programs(comm, monkeypatch):
    monkeypatch.setenv("DACE_REDIST_EXCHANGE_SECONDS", "0")
    reductions_by_numpy = [sums(None), np.mean, np.std, sums(0), sums(1), lambda A: np.sum(A * A)]
    rng, made = np.random.default_rng(seed(5)), planned(comm, reductions, {"N": 100, "M": 100})
    for _ in range(some(20)):
        n, m = random_shape(rng, 2)
        A = drawn(rng, (n, m), "f4")
        results = made.with_sizes(N=n, M=m)(A=A)
        if comm.rank == 0:
            for found, reduce in zip(results, reductions_by_numpy, strict=True):
                check(found, reduce, [A], (A.shape, reduce))
