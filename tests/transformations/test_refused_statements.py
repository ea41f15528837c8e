"""Statements that cannot be distributed, or differ from NumPy, are named when a program is read."""

import re

import dace
import numpy as np
import pytest
from distributed_simulation import SimulatedRanks
from programs.einsums import SIZES, N
from programs.program import simulate
from random_programs import load

from dace_redist import distribute
from dace_redist.transformations.distribute import rewritten
from dace_redist.transformations.distribute.read import read_statements
from dace_redist.transformations.distribute.read.frontend import parse

#: Arguments of the programs by name: matrices, vectors and scalars.
KINDS = {name: "dace.float64[N, N]" for name in "AB"} | {"R": "dace.float64[4, 6]", "Z": "dace.complex128[N, N]"}
KINDS |= {"x": "dace.float64[N]", "y": "dace.float32[N]", "q": "dace.int64[N]", "u": "dace.uint8[N]"}
KINDS |= {"w": "dace.int32[N]", "s": "dace.float64", "n": "dace.int64"}

#: Programs, each with the pattern of its error.
REFUSED = r"""
return np.linalg.cholesky(A)
# np\.linalg\.cholesky\(A\): cannot be distributed: DaCe's Cholesky is neither an einsum nor a linear system
return np.linalg.inv(R)
# np\.linalg\.inv\(R\): np\.linalg\.inv takes a square matrix, got \(4, 6\)
m = n + 1
for _ in range(m):
    A[:] = 0.1 * (A @ A)
    m = m - 1
# py:\d+: A\[:\] = 0\.1 \* \(A @ A\): the bounds of a loop .* but m of the loop around it changes in it: take another
for i in range(0, N, n):
    x[i] = 0.0
# x\[i\] = 0\.0: the bounds of a loop .* but n of the loop around it is its step: take another
for i in range(s):
    x[i] = 0.0
# x\[i\] = 0\.0: the bounds of a loop .* but s of the loop around it is no integer
return np.roll(A, 1) - A
# np\.roll\(A, 1\) - A: np\.roll is known for a number of places along one axis, as in np\.roll\(a, 1, axis=0\)
return np.add.outer(x, x)
# methods of np\.add cannot be distributed; .* outer\(x, y\) as np\.add\(x\[:, None\], y\)
x[q] = 1.0
# x\[q\] = 1\.0: cannot be distributed: it takes any of x\[0:N\] for an element, .*; write a loop
T = np.empty_like(A)
T += A
return T
# T \+= A: reads (T|__return) before anything is written to it
for i in dace.map[0:N]:
    A[i, i] = x[i]
# A\[i, i\] = x\[i\]: cannot be distributed: it writes A\[i, i\]
return np.einsum(",ij->ij", 2.0, A)
# np\.einsum.*operand 0 of np\.einsum is 2\.0: expected an array.*factors outside
return A * np.cross(A, A)
# A \* np\.cross\(A, A\): .*DaCe does not know this function \(np\.cross\).*write it as np\.einsum
T = A @ A
return T, T
# return T, T: it returns T more than once; return it once, or np\.copy\(T\)
return x / max(x)
# x / max\(x\): cannot be distributed: max of one argument; write np\.max for the elements of an array
return A[[1, 0]] + A
# return A\[\[1, 0\]\] \+ A: \[1, 0\] is a list of indices: assign q = np\.array\(\[1, 0\]\) outside the function
try:
    A *= 2.0
except ValueError:
    A *= 3.0
# py:\d+: program: .* disallowed keyword: Try.*; take this statement out of the program
assert N > 2
A *= 2.0
# py:\d+: program: .* N > 2.*; check sizes before the call, in Python
for k in range(4):
    if k in (1, 2):
        A *= 2.0
# if k in \(1, 2\).*; compare with each value, as in k == 1 or k == 2
return {"a": A}
# return \{"a": A\}: .*; return a tuple of arrays
return np.ravel(A) + A.size
# np\.ravel\(A\) \+ A\.size: .* \(np\.ravel\) .*; write a\.reshape\(a\.size\)
return A.foo + A * A.strides[0]
# reads the attribute (foo|strides) of an array; known are shape, size, ndim, dtype, T, real and imag
return np.outer(A, A)
# np\.outer\(A, A\): np\.outer is known for 1-D, 1-D without options, got 2-D, 2-D; write it as
return np.sum(A, axis=2, keepdims=True)
# np\.sum\(A, axis=2, keepdims=True\): np\.sum: A has no axis 2, but 2 dimensions
B[:] = Z + B
# B\[:\] = Z \+ B: complex numbers would be written to elements of float64.*np.real
T = A @ A
print(T)
return T
# py:\d+: print\(T\): cannot be distributed: .* take it out
return A[::-1]
# return A\[::-1\]: DaCe cannot read it .*; write A\[::-1\] as np\.flip\(A, axis=0\)
return np.linspace(0.0, s, N, endpoint=False)
# np\.linspace is known for float64, with start, stop and num; write it by np\.arange
for k in range(N):
    A[k + 2 :, k] = 0.0
# A\[k \+ 2 :, k\] = 0\.0: the slice has the elements k \+ 2 to N of N at k = 6, which NumPy would cut; write such
for i in range(1, N):
    for j in range(i + 3):
        A[:j, i] = x[:j]
# A\[:j, i\] = x\[:j\]: the slice has the elements 0 to j of N at .*i = 6, j = 8, which NumPy would cut
for k in range(1, N):
    t = np.zeros((k,))
    A += np.sum(t)
# t = np\.zeros\(\(k,\)\): cannot be .* extents \(k,\) change while the program runs; write to a slice of
residual = A @ x
p = residual
for _ in range(2):
    residual = residual - A @ p
return p
# residual and p are one array, so a new value of residual .*; write p = np\.copy\(residual\) before
total = 0
for i in range(N):
    total += np.sum(A[i])
return total * A
# total \+= np.*: total holds int64 .* a value of float64 is assigned; write .* such as 0\.0
best = 0.0
best = Z[0, 0]
return best * Z
# best = Z\[0, 0\]: best holds float64 .* a value of complex128 is assigned; write .* such as 0j
total = np.sum(y)
total += np.sum(x)
return total * A
# total \+= np\.sum\(x\): total holds float32 .* a value of float64 is assigned
count = np.sum(q)
count = w[0] + w[1]
return count
# count = w\[0\].*: count holds int64 .* a value of int32 is assigned
i = 5
A *= i
for i in range(3):
    A += i
return A * i
# i in range\(3\):: i has values other than .*: give the loop's variable another name
for i in range(3):
    i = i + 1
    A *= i
# for i in range\(3\):: i has values other than those of the loop over it
a = A[0:1, 0]
a = a + 1.0
return a * A
# a = a \+ 1\.0: a is a view of another array, .*; give the result another name
a = np.zeros((1,))
b = a
b[0] = 5.0
return a * A
# b\[0\] = 5\.0: b and a are one array in NumPy, but two here, .*; use one name, or
(a, (b, c)) = A @ x, x[0:2]
return a * b + c
# \(b, c\) takes the elements of one value: assign \(b, c\) in a statement of its own
return factor_changed(A, 3.0)
# s \*= 2\.0: DaCe cannot read it \(.*constant "s".*; assign it to another variable first
x += 1.0
x = 2.0 * x
return x
# x \+= 1\.0: x may still be the array of the caller, .*; give the new value
if s > 0.0:
    x = 2.0 * x
x[0] = 1.0
return x
# x\[0\] = 1\.0: x may still be the array of the caller
np.matmul(A, A, out=B)
# np\.matmul\(A, A, out=B\): .*; assign the result, as in C\[:\] = np\.matmul\(A, B\)
return np.cumsum(A)
# return np\.cumsum\(A\): np\.cumsum of shape \(N, N\) is known along one axis, as in np\.cumsum\(A, axis=0\)
return np.var(q)
# np\.var is known for real floating-point numbers, got int64; convert the array
k = np.argmax(x)
return A[k] * 2.0, k
# return A\[k\] \* 2\.0, k: cannot be .*: its index \w+ is computed from an array; .* np\.where
a = 2.0 if s > 0 else 3.0
return a * A
# a = 2\.0 if s > 0 else 3\.0: .*; write a choice as np\.where\(s > 0, 2\.0, 3\.0\)
A @= B
# A @= B: .*; write A @= B as A\[:\] = A @ B
if -1.0 < s < 1.0:
    A += 1.0
# if -1\.0 < s < 1\.0:: .*; compare two values at a time, as in 0 < a and a < 1
a, b = 1, 1
for _ in range(3):
    a, b = b, a * 0.5
return a * A
# a, b = b, a \* 0\.5: b holds int64 .* a value of float64 is assigned; write .* such as 0\.0
return np.tensordot(A, A, axes=([0, 2], [1, 0]))
# np\.tensordot\(A.*: np\.tensordot: axes must be a number, or as many axes of .*, got \(\[0, 2\]
if s > 0.0:
    return A @ A
return A + s
# return A @ A: a return in a branch or loop cannot be distributed; assign the result to a var
q += 0.5
# q \+= 0\.5: a \+= b computes elements of float64, which int64 cannot hold, .*; write a = a
return np.sqrt(u)
# np\.sqrt\(u\): np\.sqrt computed with float16 .*; convert the array first
return y * s
# y \* s: .* float32 if the scalar argument is a number of Python, and of float64 .*: declare it as
A[1:-1][:-1] *= 0.0
# A\[1:-1\]\[:-1\] \*= 0\.0: A\[1:-1\]\[:-1\] is a part of A\[1:-1\], and .*; write the indices of the array itself
A.T[0] = x
# A\.T\[0\] = x: A\.T\[0\] is a part of A\.T, and is not written as in NumPy
Z.imag[2:] += 1.0
# Z\.imag\[2:\] \+= 1\.0: Z\.imag\[2:\] is a part of Z\.imag
a = x * 1.0
b = x * 2.0
if s > 0.0:
    b = a
a += 1.0
return a * b
# a \+= 1\.0: a and b are one array in NumPy, but two here, since b had a value before; .* np\.copy\(a\)
for i in range(N):
    x[i] += x[i - 1]
# x\[i - 1\]: the index i - 1 is negative at i = 0, .*; write such iterations before the loop
"""

HEADER = """import dace
import numpy as np
from programs.einsums import N

@dace.program
def factor_changed(A: dace.float64[N, N], s: dace.float64):
    s *= 2.0
    return s * A

@dace.program
"""

CASES = re.findall(r"((?:^[^#\n].*\n)+)# (.*)\n", REFUSED, re.MULTILINE)


def program_of(code, folder):
    """Return a program with a body, in a file of its own."""
    used = [f"{name}: {kind}" for name, kind in KINDS.items() if re.search(rf"\b{name}\b", code)]
    lines = [f"def program({', '.join(used)}):", *(f"    {line}" for line in code.splitlines())]
    return load(HEADER + "\n".join(lines) + "\n", folder, "refused").program


@pytest.mark.parametrize(("code", "pattern"), CASES, ids=[code.split("\n")[0] for code, _ in CASES])
def test_what_cannot_be_distributed_is_named(code, pattern, tmp_path, monkeypatch):
    program, empty = program_of(code, tmp_path), tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    with pytest.raises(ValueError, match=pattern) as refused:
        sdfg = parse(program)
        rewritten(read_statements(sdfg, SIZES), sdfg)
    assert "\n" not in str(refused.value) and not list(empty.iterdir())


@dace.program
def returned_early(A: dace.float64[N, N], s: dace.float64):
    if s > 0.0:
        return A @ A
    return A + s


def test_early_returns_of_an_sdfg_are_named():
    with pytest.raises(ValueError, match=r"return_if_\w+: a return in a branch or loop cannot .* at the end"):
        distribute(returned_early.to_sdfg(simplify=False), 2, dict(N=4))


@dace.program
def shrinking(A: dace.float64[N, N]):
    for k in range(N - 1):
        A[k + 1 :, k] /= A[k, k]


@dace.program
def counted_by_while(x: dace.float64[N]):
    i = 0
    while i < N:
        x[i] += x[i - 1]
        i += 1


@dace.program
def index_of_a_scalar(x: dace.float64[N], n: dace.int64):
    x[:n] *= 2.0
    x[0] = x[n]


def test_boxes_that_only_a_run_knows_are_checked_in_it():
    with pytest.raises(IndexError, match=r"x\[i\] \+= x\[i - 1\]: it takes elements -1 to 0 of 4"):
        simulate(counted_by_while, 2, dict(N=4))
    ranks, x = SimulatedRanks(distribute(index_of_a_scalar, 2, dict(N=4))), np.arange(4.0)
    for n, elements in ((-1, "0 to -1"), (4, "4 to 5"), (5, "0 to 5")):
        with pytest.raises(IndexError, match=f"it takes elements {elements} of 4"):
            ranks.run(x=x.copy(), n=n)
    assert ranks.run(x=x.copy(), n=2)["x"].tolist() == [2.0, 2.0, 2.0, 3.0]


def test_variables_of_loops_are_no_missing_sizes():
    simulate(shrinking, 2, dict(N=4))
