"""Warnings of sums and means whose types in DaCe and NumPy differ; types may be written as in NumPy."""

import warnings

import dace
import numpy as np
import pytest
from distributed_simulation import SimulatedRanks
from results import by_numpy, check

from dace_redist import distribute

N = dace.symbol("N", dace.int64)


@dace.program
def mean_of_integers(A: dace.int64[N, N]):
    return np.mean(A, axis=1)


@dace.program
def sum_of_integers(A: dace.int32[N, N]):
    return np.sum(A)


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (mean_of_integers, r"py:\d+: return np.mean\(A, axis=1\): the mean of A is int64 here, but float64 in NumPy"),
        (sum_of_integers, r"py:\d+: return np.sum\(A\): the sum of A is int32 here, but int64 in NumPy"),
    ],
)
def test_differences_are_named(program, match):
    with pytest.warns(UserWarning, match=match):
        distribute(program, 2, dict(N=4))


@dace.program
def as_in_numpy(A: dace.float64[N, N], B: dace.int64[N, N]):
    return np.sum(B), np.mean(A)


def test_what_numpy_does_too_is_not():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*NumPy", category=UserWarning)
        distribute(as_in_numpy, 2, dict(N=4))


@dace.program
def converted(A: dace.float32[N, N], B: dace.float64[N, N], a: dace.float32):
    C = A.astype("float64") @ B
    return (C + B.astype(np.float32)).astype(float), a.astype(np.float64) * B.astype(np.complex128)


def test_types_by_name():
    rng = np.random.default_rng(0)
    given = {"A": rng.random((5, 5)).astype("float32"), "B": rng.random((5, 5)), "a": np.float32(0.5)}
    found = SimulatedRanks(distribute(converted, 3, dict(N=5))).run(**given)
    check(found, by_numpy(converted.f, given), tolerance=1e-6)
