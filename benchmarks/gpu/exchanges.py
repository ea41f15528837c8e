"""
Redistributions of arrays on a GPU that the ranks share, or one each, against arrays in main memory.

    mpiexec -n 12 python benchmarks/gpu/exchanges.py --cases seed-k24
    mpiexec -n 2 python benchmarks/gpu/exchanges.py --pipeline 1073741824

By turns, medians: on the GPU by Hierarchical (kernels write into the arrays of the receivers) and Pipelined (through
main memory), and between arrays in main memory by Auto. With CuPy, rank 0 also measures what the device copies (bytes
read and written), for the share of it that the ranks reach together. `--pipeline` sends so many bytes from rank 0 to
rank 1, by Pipelined, against copies between the GPU and pinned memory in the slower direction.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from mpi4py import MPI

from dace_redist import Distribution, plan
from dace_redist.mpi.collective import sleeping_barrier, together
from dace_redist.redistribution.device_arrays import DeviceArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from redistribution.catalogue import PRESETS, load  # noqa: E402

COMM = MPI.COMM_WORLD
#: Bytes of a copy whose rate is measured.
COPIED = 1 << 30


def synchronize() -> None:
    """Wait for the work enqueued on the default stream."""
    _mark().to_numpy()


@functools.cache
def _mark() -> DeviceArray:
    return DeviceArray(1)


def medians(methods: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, float]:
    """Return the seconds of each method, called alternately; the slowest rank counts."""
    times: dict[str, list[float]] = {name: [] for name in methods}
    for repetition in range(repetitions + 1):
        for name, method in methods.items():
            COMM.Barrier()
            start = time.perf_counter()
            method()
            synchronize()
            taken = COMM.allreduce(time.perf_counter() - start, MPI.MAX)
            if repetition > 0:  # the first one warms up
                times[name].append(taken)
    return {name: float(np.median(some)) for name, some in times.items()}


def copy_rate(kind: str) -> float | None:
    """
    Return the bytes per second that rank 0's GPU copies while the others wait; None without CuPy.

    :param kind: ``"device"``, read and written; ``"to_host"`` or ``"from_host"``, copied.
    """
    rate = None
    if COMM.rank == 0:
        rate = _copy_rate(kind)
    sleeping_barrier(COMM)
    return COMM.bcast(rate)


def _copy_rate(kind: str) -> float | None:
    try:
        import cupy
    except ImportError:
        return None
    runtime = cupy.cuda.runtime
    there, other = cupy.zeros(COPIED, np.uint8), cupy.zeros(COPIED, np.uint8)
    pinned = cupy.cuda.alloc_pinned_memory(COPIED)
    ends = {
        "device": (other.data.ptr, there.data.ptr, 2),
        "to_host": (pinned.ptr, there.data.ptr, 1),
        "from_host": (there.data.ptr, pinned.ptr, 1),
    }
    target, source, counted = ends[kind]
    times = []
    for _ in range(6):
        runtime.deviceSynchronize()
        start = time.perf_counter()
        runtime.memcpyAsync(target, source, COPIED, runtime.memcpyDefault, 0)
        runtime.deviceSynchronize()
        times.append(time.perf_counter() - start)
    return counted * COPIED / float(np.median(times[1:]))


def compare(case: Any, repetitions: int) -> None:
    """Compare one case of the catalogue on the GPU and in main memory."""
    here = np.ones(case.source.local_shape(COMM.rank), case.dtype)
    out = np.empty(case.target.local_shape(COMM.rank), case.dtype)
    A, B = DeviceArray.from_numpy(here), DeviceArray.from_numpy(out)
    how = {"comm": COMM, "region": case.region}
    with (
        plan(case.source, case.target, case.dtype, device="gpu", strategy="Hierarchical", **how) as direct,
        plan(case.source, case.target, case.dtype, device="gpu", strategy="Pipelined", **how) as staged,
        plan(case.source, case.target, case.dtype, **how) as host,
    ):
        found = medians(
            {
                "GPU, Hierarchical": lambda: direct(A, out=B),
                "GPU, Pipelined": lambda: staged(A, out=B),
                f"main memory, Auto ({host.strategy})": lambda: host(here, out=out),
            },
            repetitions,
        )
    with together(COMM):
        if case.region is None and not np.array_equal(B.to_numpy(), np.ones_like(out)):
            raise RuntimeError(f"{case.name}: something else was received than was sent")
    rate = copy_rate("device")
    if COMM.rank == 0:
        fastest = next(iter(found.values()))
        for name, seconds in found.items():
            click.echo(f"{case.name:20} {name:32} {1e3 * seconds:10.3f} ms {seconds / fastest:7.2f}")
        if rate is not None:
            share = 2 * case.nbytes / fastest / rate
            click.echo(f"{case.name:20} of what the device copies ({rate / 1e9:.0f} GB/s): {share:.2f}")


def pipeline(nbytes: int, repetitions: int) -> None:
    """Measure a transfer of rank 0's array to rank 1, through main memory."""
    shape = (nbytes // 8,)
    source, target = Distribution(shape, (1,)), Distribution(shape, (1,), ranks=[1])
    A, B = (DeviceArray(side.local_shape(COMM.rank)) for side in (source, target))
    with plan(source, target, "float64", comm=COMM, device="gpu", strategy="Pipelined") as made:
        seconds = medians({"": lambda: made(A, out=B)}, repetitions)[""]
    rates = [copy_rate(kind) for kind in ("to_host", "from_host")]
    if COMM.rank == 0:
        moved = 8 * shape[0] / seconds
        click.echo(f"rank 0 to rank 1: {moved / 1e9:.2f} GB/s")
        if None not in rates:
            slower = min(rates)  # type: ignore[type-var]
            click.echo(
                f"pinned copies: {rates[0] / 1e9:.2f} and {rates[1] / 1e9:.2f} GB/s; reached {moved / slower:.2f}"
            )


def wrong_use(what: str) -> BaseException:
    """The error of a command that all ranks were given; rank 0 says it."""
    return click.UsageError(what) if COMM.rank == 0 else SystemExit(2)


@click.command(help=__doc__.partition("\n\n")[0])
@click.option(
    "--cases", default="seed-k24", show_default=True, help="a case, group or pattern of names of the catalogue"
)
@click.option("--preset", type=click.Choice(PRESETS), default="default", show_default=True)
@click.option("--pipeline", "nbytes", type=click.IntRange(min=4096), help="bytes to send instead of the cases")
@click.option("--repetitions", type=click.IntRange(min=1), default=20, show_default=True)
def main(cases: str, preset: str, nbytes: int | None, repetitions: int) -> None:
    if nbytes is not None:
        if COMM.size < 2:
            raise wrong_use("--pipeline sends from rank 0 to rank 1: start with mpiexec -n 2")
        pipeline(nbytes, repetitions)
        return
    try:
        chosen = load(preset).select([cases])
    except ValueError as error:
        raise wrong_use(str(error)) from error
    for case in chosen:
        if case.ranks > COMM.size:
            raise wrong_use(f"{case.name} needs {case.ranks} ranks: start with mpiexec -n {case.ranks}")
        compare(case, repetitions)


if __name__ == "__main__":
    main()
