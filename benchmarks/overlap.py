"""
Overlap of a transfer with a computation of equal duration: products of small matrices.

Rows become columns, between ordinary arrays. The transfer alone, the computation alone, and both together, advanced by
calls of `test` between the products or by a thread, are measured alternately in one run; medians count. The overlap is
the time saved against running one after the other, relative to the shorter of both. On emulated nodes the network uses
processor time of the ranks, which cannot be hidden.

    export MPI4PY_RC_THREAD_LEVEL=multiple OMP_NUM_THREADS=1
    python benchmarks/cluster/cluster.py --nodes 2 --ranks 2 --rate 1gbit -- python benchmarks/overlap.py
"""

from __future__ import annotations

from collections.abc import Callable

import click
import numpy as np
from mpi4py import MPI

from dace_redist import Distribution, Plan, plan
from dace_redist.measuring.measure import measure

STRATEGIES = ("Hierarchical", "Pipelined", "Pack", "Datatype")
PRODUCT = 96  # rows of the matrices: about 0.1 ms


class Computation:
    """Products of small matrices that take a given time."""

    def __init__(self) -> None:
        self.matrix = np.random.default_rng(0).standard_normal((PRODUCT, PRODUCT))
        self.out = np.empty_like(self.matrix)
        self.products = 200

    def __call__(self, between: Callable[[], object] = lambda: None) -> None:
        for _ in range(self.products):
            np.matmul(self.matrix, self.matrix, out=self.out)
            between()


def measured(made: Plan, A: np.ndarray, out: np.ndarray, limit: float) -> dict[str, float]:
    """Return the median times of the transfer, the computation, and both together."""

    def both(progress: str) -> None:
        request = made.start(A, out=out, progress=progress)
        compute(request.test if progress == "calls" else lambda: None)
        request.wait()

    comm, compute = MPI.COMM_WORLD, Computation()
    alone: dict[str, Callable[[], object]] = {"transfer": lambda: made(A, out=out), "compute": compute}
    first = measure(alone, comm, limit_seconds=limit / 4)
    compute.products = max(1, round(compute.products * first["transfer"].median / first["compute"].median))
    methods = alone | {"calls": lambda: both("calls")}
    if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
        methods["thread"] = lambda: both("thread")
    return {name: figure.median for name, figure in measure(methods, comm, limit_seconds=limit).items()}


@click.command(help=__doc__)
@click.option("--megabytes", type=click.IntRange(1), default=64, show_default=True, help="size of the matrix")
@click.option("--limit", default=20.0, show_default=True, help="seconds for each strategy")
def main(megabytes: int, limit: float) -> None:
    comm = MPI.COMM_WORLD
    shape = (megabytes << 3, (1 << 20) // 64)
    source, target = Distribution(shape, (comm.size, 1)), Distribution(shape, (1, comm.size))
    A = np.random.default_rng(comm.rank).standard_normal(source.local_shape(comm.rank))
    out = np.empty(target.local_shape(comm.rank))
    for strategy in STRATEGIES:
        with plan(source, target, A.dtype, comm=comm, strategy=strategy) as made:
            seconds = measured(made, A, out, limit)
        transfer, compute = seconds.pop("transfer"), seconds.pop("compute")
        hidden = {name: (transfer + compute - both) / min(transfer, compute) for name, both in seconds.items()}
        if comm.rank == 0:
            shares = ", ".join(f"{name} {100 * part:3.0f} %" for name, part in hidden.items())
            times = f"transfer {transfer * 1e3:6.1f} ms, compute {compute * 1e3:6.1f} ms"
            print(f"{strategy:12} {times}, hidden by {shares}", flush=True)


if __name__ == "__main__":
    main()
