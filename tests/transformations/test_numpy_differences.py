"""Warnings of statements whose results in DaCe and NumPy differ; types may be written as in NumPy."""

import warnings

import dace
import numpy as np
import pytest
from distributed_simulation import SimulatedRanks
from results import by_numpy, check

from dace_redist import distribute
from dace_redist.transformations.distribute.read.numpy_differences import warn_of_names

N = dace.symbol("N", dace.int64)


@dace.program
def rebound(A: dace.float64[N, N], B: dace.float64[N, N]):
    A = A @ B
    return A @ B


@dace.program
def stale_view(A: dace.float64[N, N]):
    B = A.T
    A[:] = A @ A
    return B @ A


@dace.program
def written_slice(A: dace.float64[N, N]):
    b = A[:, 1]
    b -= 1.0
    return b @ A


@dace.program
def mean_of_integers(A: dace.int64[N, N]):
    return np.mean(A, axis=1)


@dace.program
def sum_of_integers(A: dace.int32[N, N]):
    return np.sum(A)


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (rebound, r"test_numpy_differences.py:\d+: A = A @ B: writes into the argument A"),
        (stale_view, r"py:\d+: B = A.T: B is a copy of A here, but shares its elements in NumPy"),
        (mean_of_integers, r"py:\d+: return np.mean\(A, axis=1\): the mean of A is int64 here, but float64 in NumPy"),
        (sum_of_integers, r"py:\d+: return np.sum\(A\): the sum of A is int32 here, but int64 in NumPy"),
    ],
)
def test_differences_are_named(program, match):
    with pytest.warns(UserWarning, match=match):
        distribute(program, 2, dict(N=4))


def test_slices_that_are_written_are_named():
    with pytest.warns(UserWarning, match=r"py:\d+: b = A\[:, 1\]: b is a copy of A here"):
        warn_of_names(written_slice.f)


@dace.program
def as_in_numpy(A: dace.float64[N, N], B: dace.int64[N, N], C: dace.float64[N, N]):
    kept = A @ C
    kept = kept + A
    T = A.T
    kept = kept + T @ np.copy(A[:, 0:N])
    C[:] = kept
    C += np.mean(A)
    return np.sum(B)


def test_what_numpy_does_too_is_not():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*(NumPy|argument)", category=UserWarning)
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
