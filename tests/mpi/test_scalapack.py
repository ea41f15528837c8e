"""Random block-cyclic matrices come out as ScaLAPACK's ``p?gemr2d`` and ``p?tran`` move them, where it is installed."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from cases import OPTIONS
from redistribution import scalapack

from dace_redist import Distribution, redistribute

CASES = 200
#: The routine that transposes without conjugating, by type.
TRANSPOSES = {"float32": "pstran_", "float64": "pdtran_", "complex64": "pctranu_", "complex128": "pztranu_"}


class Tran(scalapack.Gemr2d):
    """``p?tran``: the transposed matrix, or a part of it, on the same process grid."""

    def run(self, source: np.ndarray, target: np.ndarray) -> None:
        """Transpose. Collective over the process grid; does nothing on other ranks."""
        if self._descriptors[0][1] == scalapack.NO_CONTEXT:
            return
        one, zero = (np.asarray(value, self._dtype) for value in (1, 0))
        numbers = [ctypes.c_int(value) for value in (*self._shape[::-1], *self._first[0], *self._first[1])]
        m, n, ia, ja, ic, jc = (ctypes.byref(number) for number in numbers)
        alpha, A, beta, C = (ctypes.c_void_p(array.ctypes.data) for array in (one, source, zero, target))
        routine = self._grids.routine(TRANSPOSES[str(self._dtype)])
        routine(m, n, alpha, A, ia, ja, self._descriptors[0], beta, C, ic, jc, self._descriptors[1])


def matrix(rng: np.random.Generator, shape: list[int], ranks: np.ndarray) -> Distribution:
    """A block-cyclic distribution of random blocks over a process grid of these ranks."""
    block = tuple(int(rng.integers(1, n + 1)) for n in shape)
    return Distribution(shape, ranks.shape, block=block, ranks=ranks.ravel().tolist())


def process_grid(rng: np.random.Generator, size: int) -> np.ndarray:
    """Some of the ranks, in any order."""
    rows = int(rng.integers(1, size + 1))
    columns = int(rng.integers(1, size // rows + 1))
    return rng.permutation(size)[: rows * columns].reshape(rows, columns)


def offset(rng: np.random.Generator, shape: list[int], part: list[int]) -> tuple[int, ...]:
    return tuple(int(rng.integers(0, n - m + 1)) for n, m in zip(shape, part, strict=True))


def compared(comm: Any, number: int, transposed: bool) -> str:
    """Move one random matrix both ways; return the differences on this rank. Collective."""
    rng = np.random.default_rng(number)
    shapes = rng.integers(1, 30, (2, 2)).tolist()
    axes = (1, 0) if transposed else (0, 1)
    part = [int(rng.integers(1, min(n, shapes[1][axis]) + 1)) for n, axis in zip(shapes[0], axes, strict=True)]
    region = offset(rng, shapes[0], part), offset(rng, shapes[1], [part[axis] for axis in axes]), part
    grid = process_grid(rng, comm.size)
    source = matrix(rng, shapes[0], grid)
    target = matrix(rng, shapes[1], grid if transposed else process_grid(rng, comm.size))
    dtype = str(rng.choice([*(TRANSPOSES if transposed else scalapack.ROUTINES)]))
    strategy = str(rng.choice([*OPTIONS]))
    how = f"{source} to {target}, {dtype}, axes {axes}, region {region}, {strategy}"

    A = source.local((1 + np.arange(source.shape[0] * source.shape[1])).reshape(source.shape).astype(dtype), comm.rank)
    ours, theirs = (np.zeros(target.local_shape(comm.rank), dtype) for _ in range(2))
    redistribute(A, source, target, comm=comm, out=ours, axes=axes, region=region, strategy=strategy)
    peer = (Tran if transposed else scalapack.Gemr2d)(comm, dtype, source, target, region)
    peer.run(A, theirs)
    peer.free()
    if comm.allreduce(np.count_nonzero(theirs)) != part[0] * part[1]:
        return f"{how}: ScaLAPACK moved something else than the region"
    return "" if np.array_equal(ours, theirs) else f"{how}, rank {comm.rank}: {ours.tolist()}, not {theirs.tolist()}"


@pytest.mark.mpi(ranks=[4], timeout=400)
def test_equal_to_scalapack(comm: Any) -> None:
    reason = scalapack.library_missing()
    if reason is not None:
        pytest.skip(reason)
    for number in range(CASES):
        wrong = [text for text in comm.allgather(compared(comm, number, transposed=number % 2 == 1)) if text]
        assert not wrong, wrong[0]
