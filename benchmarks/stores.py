"""
A redistribution and the first use of its result, by ordinary stores, by non-temporal ones, and as the package chooses.

Rows become columns in a node-shared target, which every rank then sums over. The kinds of stores alternate, each in
processes of its own, since DACE_REDIST_STREAM_BYTES is read once. The time of a kind is the geometric mean over the
processes: it differs by a factor of two between them.

    python benchmarks/stores.py [--ranks 2] [--rounds 15] [--json FILE]
"""

from __future__ import annotations

import json
import random
import statistics
import time
from pathlib import Path

import click
from overheads import part_on_ranks
from records import append, environment, json_option

from dace_redist.mpi.launch import launched_rank

CHOSEN = "chosen"
STORES = {
    CHOSEN: {},
    "ordinary": {"DACE_REDIST_STREAM_BYTES": str(1 << 40)},
    "non-temporal": {"DACE_REDIST_STREAM_BYTES": "1"},
}
MEBIBYTES = (1, 2, 4, 8, 16, 32, 64, 128)


def _seconds(mebibytes: int) -> float:
    """Return the median of a redistribution of so many MiB with the sums over its result, from barrier to barrier."""
    import numpy as np
    from mpi4py import MPI

    from dace_redist import Distribution, plan, shared_empty

    comm = MPI.COMM_WORLD
    n = int((mebibytes * 2**20 / 8) ** 0.5)
    rows, columns = Distribution((n, n), (comm.size, 1)), Distribution((n, n), (1, comm.size))
    source = np.ones(rows.local_shape(comm.rank))
    target = shared_empty(columns.local_shape(comm.rank), source.dtype)
    seconds = []
    with plan(rows, columns, source.dtype, comm=comm) as move:
        for _ in range(max(15, min(80, 800 // mebibytes))):
            source += 1.0  # as a program computes it: what fits is in the caches
            comm.Barrier()
            start = time.perf_counter()
            move(source, target)
            target.sum()
            comm.Barrier()
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


@click.command(help=__doc__)
@click.option("--ranks", default=2, show_default=True)
@click.option("--rounds", default=15, show_default=True, help="of processes for each kind of stores")
@json_option("output")
@click.option("--part", hidden=True)
def main(ranks: int, rounds: int, output: Path | None, part: str | None) -> None:
    if part:
        figures = [_seconds(size) for size in (MEBIBYTES[0], *MEBIBYTES)][1:]  # the first one warms up
        if launched_rank() == 0:
            print(json.dumps({"seconds": figures, "environment": environment(ranks, [0] * ranks)}))
        return
    seconds: dict[str, list[list[float]]] = {stores: [] for stores in STORES}
    where = None
    for _ in range(rounds):
        for stores in random.sample(list(STORES), len(STORES)):
            done = part_on_ranks(ranks, __file__, "sizes", STORES[stores])
            seconds[stores].append(done["seconds"])
            where = done["environment"]
    for i, size in enumerate(MEBIBYTES):
        mean = {stores: statistics.geometric_mean(part[i] for part in parts) for stores, parts in seconds.items()}
        share = min(value for stores, value in mean.items() if stores != CHOSEN) / mean[CHOSEN]
        times = ", ".join(f"{stores} {1e3 * value:.2f} ms" for stores, value in mean.items())
        click.echo(f"{size:4} MiB: {times}; chosen to the better one {share:.2f}")
        append(output, {"mebibytes": size, "ranks": ranks, "seconds": mean, "environment": where})


if __name__ == "__main__":
    main()
