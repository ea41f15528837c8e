"""
Overlap of a transfer with a computation of equal duration: products of small matrices.

Rows become columns, between ordinary arrays. The transfer alone, the computation alone, and both together, advanced by
calls of `test` between the products or by a thread, are measured alternately in one run; medians count. The overlap is
the time saved against running one after the other, relative to the shorter of both.

    export MPI4PY_RC_THREAD_LEVEL=multiple OMP_NUM_THREADS=1
    python benchmarks/cluster/cluster.py --nodes 2 --ranks 2 --rate 1gbit -- python benchmarks/overlap.py

On emulated nodes the network uses processor time of the ranks. Let each of m cores run a rank that computes for a time
p, and let the transfer take time t alone and c seconds of processor time in total. Both together are m p + c seconds of
work, for which m cores need at least p + c / m. One after the other takes t + p, so at most t - c / m is saved: for
p = t, the overlap is at most 1 - c / (m t).

c is the non-idle time of all cores (`/proc/stat`, including kernel interrupts) while ranks sleep between calls of
`test`, minus the non-idle time of an equal period of such calls without a transfer. The idle time of cores during both
together is printed, too: if it is near zero and the overlap is below the bound, ranks spend processor time on waiting,
or lose it to contention for caches.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
from mpi4py import MPI

from dace_redist import Distribution, plan
from dace_redist.redistribution.plan import Plan
from dace_redist.tuning.measure import measure

STRATEGIES = ("Hierarchical", "Pipelined", "Pack", "Datatype")
PRODUCT = 96  # rows of the matrices: about 0.1 ms
PAUSE = 2e-4  # seconds that a rank sleeps between calls, where it does
WARMUP = 2  # rounds that are not counted


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
    """Products that take the given time on the slowest rank."""

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


class ProcessorTime:
    """Processor time of all cores during each repetition of a wrapped method."""

    def __init__(self, method: Callable[[], None]):
        self._method = method
        self._spans: list[tuple[float, float, float]] = []  # busy, in the kernel, idle

    def __call__(self) -> None:
        before = self._now()
        self._method()
        busy, kernel, idle = (after - first for after, first in zip(self._now(), before, strict=True))
        self._spans.append((busy, kernel, idle))

    @property
    def means(self) -> tuple[float, float, float]:
        """Return the seconds of all cores together, by repetition: non-idle, in the kernel, and idle."""
        busy, kernel, idle = np.mean(self._spans[WARMUP:], axis=0).tolist()
        return busy, kernel, idle

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """
        Seconds until now. Linux measures idle time exactly, but only samples what it is otherwise; so what is not idle
        is taken from the clock, and the part of the kernel from the samples.
        """
        fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
        ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in fields]
        _, _, system, idle, waiting, interrupts, softirq, stolen = ticks[:8]
        cores = os.sysconf("SC_NPROCESSORS_ONLN")
        busy = cores * time.clock_gettime(time.CLOCK_MONOTONIC) - idle - waiting - stolen
        return busy, system + interrupts + softirq, idle + waiting


def moved_asleep(made: Plan, A: np.ndarray, out: np.ndarray) -> None:
    """Run a transfer; the rank sleeps between calls."""
    request = made.start(A, out=out)
    while not request.test():
        time.sleep(PAUSE)
    request.wait()


def called_asleep(seconds: float) -> None:
    """Make such calls without a transfer for a given time."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        MPI.COMM_WORLD.Iprobe()
        time.sleep(PAUSE)


def measured(made: Plan, A: np.ndarray, out: np.ndarray, limit: float) -> tuple[dict[str, float], dict]:
    """Return the median times of the transfer, the computation, and both; and the processor time of each."""

    def both(progress: str) -> None:
        request = made.start(A, out=out, progress=progress)
        compute(request.test if progress == "calls" else lambda: None)
        request.wait()

    compute = Computation(seconds_of(lambda: made(A, out=out), 5))
    asleep = seconds_of(lambda: moved_asleep(made, A, out), 5)
    methods = {"transfer": lambda: made(A, out=out), "compute": compute, "calls": lambda: both("calls")}
    if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
        methods["thread"] = lambda: both("thread")
    methods |= {"asleep": lambda: moved_asleep(made, A, out), "calls asleep": lambda: called_asleep(asleep)}
    watched = {name: ProcessorTime(method) for name, method in methods.items()}
    figures = measure(watched, MPI.COMM_WORLD, warmup=WARMUP, limit_seconds=limit)
    seconds = {name: figure.median for name, figure in figures.items()}
    return seconds, {name: method.means for name, method in watched.items()}


def report(strategy: str, seconds: dict[str, float], spent: dict[str, tuple[float, float, float]]) -> None:
    transfer, compute = seconds["transfer"], seconds["compute"]
    shorter = min(transfer, compute)
    hidden = {name: (transfer + compute - seconds[name]) / shorter for name in ("calls", "thread") if name in seconds}
    cost, kernel = (a - b for a, b in zip(spent["asleep"][:2], spent["calls asleep"][:2], strict=True))
    cores = os.sysconf("SC_NPROCESSORS_ONLN")
    bound = (transfer + compute - max(transfer, compute + cost / cores)) / shorter
    print(
        f"{strategy:12} transfer {transfer * 1e3:6.1f} ms, compute {compute * 1e3:6.1f} ms, hidden by "
        + ", ".join(f"{name} {100 * part:3.0f} %" for name, part in hidden.items())
    )
    print(
        f"{'':12} processor time of the transfer {cost * 1e3:.1f} ms, in the kernel {kernel * 1e3:.1f} "
        f"({seconds['asleep'] * 1e3:.1f} ms asleep): at most {100 * bound:.0f} % can be hidden; {cores} cores idle in "
        + ", ".join(f"{name} {spent[name][2] * 1e3:.1f} ms" for name in ("compute", *hidden)),
        flush=True,
    )


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
        with plan(source, target, "float64", comm=comm, strategy=strategy) as made:
            seconds, spent = measured(made, A, out, limit)
        if comm.rank == 0:
            report(strategy, seconds, spent)


if __name__ == "__main__":
    main()
