"""Statements other than einsums: parts, shapes with ones, branches, reductions, elements by their index."""

import dace
import numpy as np
import pytest
from distributed_simulation import SimulatedRanks
from results import by_numpy, check

from dace_redist import distribute
from dace_redist.transformations.distribute.read.frontend import parse

I, J, N = (dace.symbol(name, dace.int64) for name in "IJN")  # noqa: E741
SIZES = {"I": 7, "J": 5, "N": 6}


pytestmark = pytest.mark.usefixtures("small_transients_share_memory")


@dace.program
def by_index(A: dace.float64[N, N], B: dace.float64[N, N]):
    for i, j in dace.map[0:N, 0:N]:
        B[i, j] = A[i, j] * i


@dace.program
def reshaped(A: dace.float64[4, 6]):
    return np.reshape(A, (24,))


@dace.program
def parts(A: dace.float64[I, J], B: dace.float64[I, J]):
    B[2:4, 1:3] = A[4:6, :2]
    B[:, 3] = A[0, 0] * A[:, 4] + B[1, 3]
    B[0] *= 2.0
    C = A[1:, :] - A[:-1, :]
    return C @ B[1, :], B[2, 1]


@dace.program
def ones(A: dace.float64[1, N], B: dace.float64[N, 1], C: dace.float64[1, 1, 1], s: dace.float64[1]):
    P = A @ B
    Q = B @ A
    B += A[0, :, None] * s
    return P, Q, np.einsum("ij,klm->jm", A, C), A[0], C * s, np.sum(B, axis=0), np.max(A, axis=1), B[:, 0]


@dace.program
def extremes(A: dace.float64[I, J], n: dace.int64[I, J]):
    return np.max(A), np.min(A, axis=0), np.amax(A, axis=1, keepdims=True), A.min(axis=-1), np.max(n, axis=0)


@dace.program
def positions(A: dace.float64[I, J], n: dace.int64[I, J]):
    B = n * n  # several elements are extreme
    return np.argmax(A), np.argmin(B, axis=0), A.argmax(axis=-1), np.argmin(B), n.argmin(axis=1)


@dace.program
def while_and_branches(A: dace.float64[N, N], x: dace.float64[N], flag: dace.int64):
    steps = 0
    size = np.linalg.norm(x)
    while size < 1000.0:
        x[:] = A @ x + x
        size = np.linalg.norm(x)
        if steps == 1:
            x[0] = 3.0
        elif flag > 0:
            x *= 2.0
        else:
            x += 1.0
        if steps > 3:
            break
        steps = steps + 1
    return x, size


@dace.program
def axes_and_methods(A: dace.float64[I, J, N], x: dace.float64[J]):
    B = np.moveaxis(A, (0, 1), (2, 0)) + np.swapaxes(np.swapaxes(A, 0, 2), 0, 1)
    return B, A.sum(axis=(0, 2)).dot(x), A.mean(axis=1, keepdims=True), x.copy() @ A[0]


@dace.program
def identities(x: dace.float64[N], A: dace.float64[N, N]):
    return (
        np.eye(A.shape[0]) * 2.0 + np.identity(A.shape[0]),
        np.diag(x) @ A,
        np.diag(A),
        np.diagonal(A) @ x,
        np.trace(A @ A),
    )


@dace.program
def variables_in_conditions(A: dace.float64[N, N], x: dace.float64[N]):
    new = A @ x
    size = np.linalg.norm(new)
    this = 0
    while size > 1.0 and this < 5:
        new = 0.5 * new
        size = np.linalg.norm(new)
        this = this + 1
    first = new[0] * 2.0
    if first > 0.0:
        new += first
    return new, size


@dace.program
def dimensions_of_one(A: dace.float64[1, N], B: dace.float64[N, 1], C: dace.float64[N, N, 1], s: dace.float64[1]):
    s[0] = 2.0 * s[0]
    C[:, :, 0] += A[0]
    C[:, 0, :] *= 2.0
    return A[:, :] * 2.0, A.T @ A, np.transpose(C, (2, 0, 1)), np.einsum("i,j->ij", s, A[0]), B[..., 0], A[0:1, 1:] * s


@dace.program
def symbols_by_name(A: dace.int64[N, N], s: dace.int64):
    A[:, 1] = s * 3
    t = s - 1
    return t, A


@dace.program
def infinite(A: dace.float64[N, N]):
    B = np.log(A * 0.0)
    return np.max(B, axis=0), np.min(-B), np.max(B)


@dace.program
def unused(A: dace.float64[N, N], x: dace.float64[N]):
    for _ in range(2):
        B = A - x[:, None]  # noqa: F841
        A[:] = A * 2.0
    return A


WEIGHTS = np.linspace(-1, 1, 6)


@dace.program
def closure(A: dace.float64[6, 6]):
    return A @ WEIGHTS, A + WEIGHTS[:, None]


PROGRAMS = (
    *(variables_in_conditions, dimensions_of_one, symbols_by_name, infinite, unused, closure, by_index, reshaped),
    *(parts, ones, extremes, positions, while_and_branches, axes_and_methods, identities),
)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.f.__name__)
def test_they_give_what_numpy_gives(program):
    rng, given = np.random.default_rng(0), {}
    for name, kind in program.f.__annotations__.items():
        if isinstance(kind, dace.data.Array):
            shape = [int(dace.symbolic.evaluate(n, SIZES)) for n in kind.shape]
            given[name] = (10 * rng.uniform(-1, 1, shape)).astype(kind.dtype.as_numpy_dtype())
        else:
            given[name] = 1
    wanted = by_numpy(program.f, given, SIZES)
    sizes = {name: SIZES[name] for name in map(str, parse(program).free_symbols) if name in SIZES}
    for ranks in (3, 4):
        found = SimulatedRanks(distribute(program, ranks, sizes)).run(**given)
        check(found, wanted, f"on {ranks} ranks")


@dace.program
def complex_to_real(A: dace.complex128[N, N], B: dace.float64[N, N]):
    B[:] = A + B


@dace.program
def printed(A: dace.float64[N, N]):
    B = A @ A
    print(B)
    return B


@dace.program
def with_a_step(A: dace.float64[N, N]):
    return A[::2] @ A


@dace.program
def changed_closure(A: dace.float64[6, 6]):
    WEIGHTS[:] = A[0]
    return A @ WEIGHTS


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (complex_to_real, r"B\[:\] = A \+ B: complex numbers would be written to elements of float64.*np.real"),
        (printed, r"py:\d+: print\(B\): cannot be distributed: .* take it out"),
        (with_a_step, r"A\[::2\] @ A: cannot be distributed: it takes \[0:N:2, 0:N\], a slice with a step"),
    ],
)
def test_refusals_name_the_statement_and_the_way_out(program, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=match) as refused:
        distribute(program, 3, {} if program is changed_closure else {"N": 6})
    assert "\n" not in str(refused.value) and not list(tmp_path.iterdir())
