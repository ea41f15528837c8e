"""
How much of a transfer hides behind computing: as much of it as the transfer takes alone, products of small matrices.

Rows become columns, between ordinary arrays. The transfer alone, the computation alone, and both at once, moved on by
calls of `test` between the products or by a thread, are measured by turns in one run; medians count. Hidden is what is
saved to one after the other, of the shorter of both.

    export MPI4PY_RC_THREAD_LEVEL=multiple OMP_NUM_THREADS=1
    python benchmarks/cluster/cluster.py --nodes 2 --ranks 2 --rate 1gbit -- python benchmarks/overlap.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import click
import numpy as np
from mpi4py import MPI

from dace_redist import Distribution, plan
from dace_redist.redistribution.plan import Plan
from dace_redist.tuning.measure import measure

STRATEGIES = ("Hierarchical", "Pipelined", "Pack", "Datatype")
PRODUCT = 96  # rows of the matrices: about 0.1 ms


def seconds_of(work: Callable[[], object], repetitions: int) -> float:
    times = []
    for _ in range(repetitions):
        MPI.COMM_WORLD.Barrier()
        start = time.perf_counter()
        work()
        MPI.COMM_WORLD.Barrier()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


class Computation:
    """As many products as take the given time on the slowest rank."""

    def __init__(self, seconds: float):
        self.matrix = np.random.default_rng(0).standard_normal((PRODUCT, PRODUCT))
        self.out = np.empty_like(self.matrix)
        self.products = 200
        each = seconds_of(self, 5) / self.products
        self.products = MPI.COMM_WORLD.bcast(max(1, round(seconds / each)))

    def __call__(self, between: Callable[[], object] = lambda: None) -> None:
        for _ in range(self.products):
            np.matmul(self.matrix, self.matrix, out=self.out)
            between()


def measured(made: Plan, A: np.ndarray, out: np.ndarray, limit: float) -> dict[str, float]:
    """Medians of the times of the transfer, the computation, and both."""

    def both(progress: str) -> None:
        request = made.start(A, out=out, progress=progress)
        compute(request.test if progress == "calls" else lambda: None)
        request.wait()

    compute = Computation(seconds_of(lambda: made(A, out=out), 5))
    methods = {"transfer": lambda: made(A, out=out), "compute": compute, "calls": lambda: both("calls")}
    if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
        methods["thread"] = lambda: both("thread")
    return {name: figure.median for name, figure in measure(methods, MPI.COMM_WORLD, limit_seconds=limit).items()}


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
        with plan(source, target, comm=comm, strategy=strategy) as made:
            seconds = measured(made, A, out, limit)
        if comm.rank > 0:
            continue
        transfer, compute = seconds.pop("transfer"), seconds.pop("compute")
        hidden = ", ".join(
            f"{progress} {100 * (transfer + compute - both) / min(transfer, compute):3.0f} %"
            for progress, both in seconds.items()
        )
        print(f"{strategy:12} transfer {transfer * 1e3:6.1f} ms, compute {compute * 1e3:6.1f} ms, hidden by {hidden}")


if __name__ == "__main__":
    main()
