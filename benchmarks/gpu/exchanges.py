"""
Redistributions of arrays on a GPU that the ranks share, or one each, against arrays in main memory.

    mpiexec -n 12 python benchmarks/gpu/exchanges.py seed-k24
    mpiexec -n 2 python benchmarks/gpu/exchanges.py --pipeline 1073741824

Measured alternately, medians: on the GPU by Hierarchical (kernels write into the arrays of the receivers) and Pipelined
(through main memory), between arrays in main memory by Auto, and a copy on the device (CuPy) of as many bytes on rank
0. `--pipeline` sends so many bytes from rank 0 to rank 1, by Pipelined, against copies to and from pinned memory.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import cupy
import numpy as np
from mpi4py import MPI

from dace_redist import Distribution, plan
from dace_redist.cli import run_command
from dace_redist.measuring.measure import measure
from dace_redist.mpi.collective import together

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from redistribution.catalogue import PRESETS, load  # noqa: E402

COMM = MPI.COMM_WORLD


def medians(methods: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, float]:
    """Return the median seconds of each method, until the work enqueued by it is complete. Collective."""

    def complete(method: Callable[[], Any]) -> None:
        method()
        cupy.cuda.runtime.deviceSynchronize()

    runs = {name: functools.partial(complete, method) for name, method in methods.items()}
    return {name: figure.median for name, figure in measure(runs, COMM, least=repetitions, most=repetitions).items()}


def device_copy(nbytes: int) -> Callable[[], Any]:
    """Return a copy of bytes on the device, on rank 0."""
    if COMM.rank:
        return lambda: None
    source, target = cupy.zeros(nbytes, np.uint8), cupy.zeros(nbytes, np.uint8)
    return lambda: cupy.copyto(target, source)


def pinned_copies(nbytes: int) -> dict[str, Callable[[], Any]]:
    """Return copies between device and pinned memory, on rank 0."""
    if COMM.rank:
        return {"device to pinned memory": lambda: None, "pinned memory to device": lambda: None}
    array, pinned = cupy.zeros(nbytes, np.uint8), cupy.cuda.alloc_pinned_memory(nbytes)
    copy, kind = cupy.cuda.runtime.memcpyAsync, cupy.cuda.runtime.memcpyDefault
    return {
        "device to pinned memory": lambda: copy(pinned.ptr, array.data.ptr, nbytes, kind, 0),
        "pinned memory to device": lambda: copy(array.data.ptr, pinned.ptr, nbytes, kind, 0),
    }


def report(name: str, nbytes: int, found: dict[str, float]) -> None:
    if COMM.rank == 0:
        for method, seconds in found.items():
            click.echo(f"{name:20} {method:32} {1e3 * seconds:10.3f} ms {nbytes / seconds / 1e9:9.1f} GB/s")


def compare(case: Any, repetitions: int) -> None:
    """Compare one case of the catalogue on the GPU and in main memory."""
    here = np.ones(case.source.local_shape(COMM.rank), case.dtype)
    out = np.empty(case.target.local_shape(COMM.rank), case.dtype)
    A, B = cupy.asarray(here), cupy.empty_like(out)
    how = {"comm": COMM, "region": case.region}
    with (
        plan(case.source, case.target, case.dtype, device="gpu", strategy="Hierarchical", **how) as direct,
        plan(case.source, case.target, case.dtype, device="gpu", strategy="Pipelined", **how) as staged,
        plan(case.source, case.target, case.dtype, **how) as host,
    ):
        methods = {
            "GPU, Hierarchical": lambda: direct(A, out=B),
            "GPU, Pipelined": lambda: staged(A, out=B),
            f"main memory, Auto ({host.strategy})": lambda: host(here, out=out),
            "copy on the device": device_copy(case.nbytes),
        }
        found = medians(methods, repetitions)
    with together(COMM):
        if case.region is None and not (B == 1).all():
            raise RuntimeError(f"{case.name}: something else was received than was sent")
    report(case.name, case.nbytes, found)


def pipeline(nbytes: int, repetitions: int) -> None:
    """Measure a transfer of rank 0's array to rank 1, through main memory."""
    source, target = (Distribution.on_rank((nbytes // 8,), rank) for rank in (0, 1))
    A, B = (cupy.empty(side.local_shape(COMM.rank)) for side in (source, target))
    with plan(source, target, "float64", comm=COMM, device="gpu", strategy="Pipelined") as made:
        found = medians({"Pipelined": lambda: made(A, out=B), **pinned_copies(nbytes)}, repetitions)
    report("rank 0 to rank 1", nbytes, found)


@click.command(help=__doc__.partition("\n\n")[0])
@click.argument("words", metavar="[CASE]...", nargs=-1)
@click.option("--preset", type=click.Choice(PRESETS), default="default", show_default=True)
@click.option("--pipeline", "nbytes", type=click.IntRange(min=4096), help="bytes to send instead of the cases")
@click.option("--repetitions", type=click.IntRange(min=1), default=20, show_default=True)
def main(words: tuple[str, ...], preset: str, nbytes: int | None, repetitions: int) -> None:
    if nbytes is not None:
        if COMM.size < 2:
            raise click.UsageError("--pipeline sends from rank 0 to rank 1: start with mpiexec -n 2")
        pipeline(nbytes, repetitions)
        return
    for case in load(preset).select(words or ["seed-k24"]):
        if case.ranks > COMM.size:
            raise click.UsageError(f"{case.name} needs {case.ranks} ranks: start with mpiexec -n {case.ranks}")
        compare(case, repetitions)


if __name__ == "__main__":
    run_command(main, "exchanges.py")
