"""
Short messages between nodes: `Aggregated`, which joins them, to `Hierarchical`, which sends one for each pair of ranks.

Every rank has a message for every other. Both are measured by turns in one run (dace_redist/tuning/measure.py); the
medians count.

    cd benchmarks; python cluster/cluster.py --nodes 4 --ranks 12 -- python short_messages.py [--limit 2] [BYTES]...
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import click
import numpy as np
from mpi4py import MPI

from dace_redist import Distribution, plan
from dace_redist.measuring.measure import measure
from dace_redist.mpi.collective import together
from dace_redist.redistribution.plan import Plan

STRATEGIES = ("Hierarchical", "Aggregated")
EXCHANGES = 10  # that are timed as one
SIZES = ("64", "512", "2048", "4096", "16384", "65536")


def distributions(ranks: int, elements: int) -> dict[str, tuple[Distribution, Distribution]]:
    """Return redistributions in which every rank sends ``elements`` to every other."""
    cube, square, line = (ranks, ranks, elements), (ranks * elements, ranks), (ranks * ranks * elements,)
    return {
        "transpose, contiguous": (Distribution(cube, (ranks,)), Distribution(cube, (ranks,), dims=(None, 0, None))),
        "rows to columns": (Distribution(square, (ranks, 1)), Distribution(square, (1, ranks))),
        "cyclic rows to columns": (Distribution(square, (ranks, 1), block=(1, 1)), Distribution(square, (1, ranks))),
        "cyclic to blocks": (
            Distribution(line, (ranks,), block=(max(1, elements // 16),)),
            Distribution(line, (ranks,)),
        ),
    }


def exchanges(made: Plan, array: np.ndarray, out: np.ndarray) -> None:
    for _ in range(EXCHANGES):
        made(array, out=out)


@click.command(help=__doc__)
@click.argument("sizes", nargs=-1, type=click.IntRange(min=8))
@click.option("--limit", default=2.0, show_default=True, help="seconds for each line")
def main(sizes: tuple[int, ...], limit: float) -> None:
    comm = MPI.COMM_WORLD
    for nbytes in sizes or map(int, SIZES):
        for name, (source, target) in distributions(comm.size, nbytes // 8).items():
            A = np.random.default_rng(comm.rank).standard_normal(source.local_shape(comm.rank))
            plans = {strategy: plan(source, target, "f8", comm=comm, strategy=strategy) for strategy in STRATEGIES}
            outs = [np.empty(target.local_shape(comm.rank)) for _ in plans]
            methods: dict[str, Callable[[], None]] = {
                strategy: functools.partial(exchanges, made, A, out)
                for (strategy, made), out in zip(plans.items(), outs, strict=True)
            }
            seconds = {
                strategy: figure.median for strategy, figure in measure(methods, comm, limit_seconds=limit).items()
            }
            with together(comm):
                assert np.array_equal(*outs), f"{name}: {' and '.join(STRATEGIES)} do not agree"
            for made in plans.values():
                made.free()
            if comm.rank == 0:
                apart, joined = (seconds[strategy] / EXCHANGES * 1e3 for strategy in STRATEGIES)
                print(f"{nbytes:6} B, {name:22} {apart:7.3f} ms, {joined:7.3f} ms: {apart / joined:5.2f}", flush=True)


if __name__ == "__main__":
    main()
