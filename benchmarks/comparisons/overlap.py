"""
A transfer hidden behind products of small matrices of equal duration.

The overlap is the time saved against running one after the other, relative to the shorter of both. On emulated nodes
the network uses processor time of the ranks, which cannot be hidden. Threads need ``MPI4PY_RC_THREAD_LEVEL=multiple``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

import dace_redist
from comparisons.comparison import Comparison
from comparisons.fused import rows_and_columns
from dace_redist.measuring.measure import measure

STRATEGIES = ("Hierarchical", "Pipelined", "Pack", "Datatype")
PRODUCT = 96  # rows of the matrices: about 0.1 ms
CALIBRATION_SECONDS = 0.5

Array = npt.NDArray[Any]


class Computation:
    """Products of small matrices."""

    def __init__(self) -> None:
        self.matrix = np.random.default_rng(0).standard_normal((PRODUCT, PRODUCT))
        self.out = np.empty_like(self.matrix)
        self.products = 200

    def __call__(self, between: Callable[[], object] = lambda: None) -> None:
        for _ in range(self.products):
            np.matmul(self.matrix, self.matrix, out=self.out)
            between()


def hidden(comm: MPI.Intracomm, shape: tuple[int, ...]) -> Iterator[Comparison]:
    source, target = rows_and_columns(shape, comm.size)
    A = np.random.default_rng(comm.rank).standard_normal(source.local_shape(comm.rank))
    out = np.empty(target.local_shape(comm.rank))
    for strategy in STRATEGIES:
        with dace_redist.plan(source, target, A.dtype, comm=comm, strategy=strategy) as move:
            yield Comparison(strategy, _methods(comm, move, A, out), _shares)


def _methods(comm: MPI.Intracomm, move: dace_redist.Plan, A: Array, out: Array) -> dict[str, Callable[[], object]]:
    compute = Computation()
    alone: dict[str, Callable[[], object]] = {"transfer": lambda: move(A, out=out), "compute": compute}
    first = measure(alone, comm, limit_seconds=CALIBRATION_SECONDS)
    compute.products = max(1, round(compute.products * first["transfer"].median / first["compute"].median))

    def both(progress: str) -> None:
        request = move.start(A, out=out, progress=progress)
        compute(request.test if progress == "calls" else lambda: None)
        request.wait()

    methods: dict[str, Callable[[], object]] = {"both, calls of test": lambda: both("calls")}
    if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
        methods["both, thread"] = lambda: both("thread")
    return methods | alone


def _shares(seconds: dict[str, float]) -> list[str]:
    transfer, compute = seconds["transfer"], seconds["compute"]
    return [
        f"  {name}: {100 * (transfer + compute - value) / min(transfer, compute):.0f} % hidden"
        for name, value in seconds.items()
        if name.startswith("both")
    ]
