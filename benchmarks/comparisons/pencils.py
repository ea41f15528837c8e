"""Transfers and whole FFTs of mpi4py-fft, with its own ``Alltoallw`` or by plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

from comparisons.comparison import Comparison, UnsuitableError
from dace_redist.mpi.collective import together


def _transfers(fft: Any) -> Callable[[], None]:
    """Return all transfers of a transform, there and back, between ordinary arrays."""
    pairs = [(t, np.zeros(t.subshapeA, t.dtype), np.zeros(t.subshapeB, t.dtype)) for t in fft.transfer]

    def run() -> None:
        for transfer, before, after in pairs:
            transfer.forward(before, after)
            transfer.backward(after, before)

    return run


def _transform(fft: Any, array: Any) -> Callable[[], Any]:
    return lambda: fft.backward(fft.forward(array)).copy()


def transformed(comm: MPI.Intracomm, shape: tuple[int, ...]) -> Iterator[Comparison]:
    """Compare on arrays of complex128."""
    try:
        with together(comm):
            from mpi4py_fft import PFFT, newDistArray

            from dace_redist.adapters.mpi4py_fft import install
    except ImportError as error:
        raise UnsuitableError(f"mpi4py-fft: {error}") from error
    with install():
        planned = PFFT(comm, shape, dtype="c16")
    own = PFFT(comm, shape, dtype="c16")
    array = newDistArray(own, False)
    array[...] = np.random.default_rng(comm.rank).random(array.shape)
    for fft in (planned,) * 4 + (own,):
        if not np.allclose(_transform(fft, array)(), array):
            raise AssertionError("the transform and its inverse do not return the array")
    yield Comparison("transfers", {"planned": _transfers(planned), "Alltoallw": _transfers(own)})
    yield Comparison(
        "forward and backward FFT", {"planned": _transform(planned, array), "Alltoallw": _transform(own, array)}
    )
