"""
Time and memory of one rank's schedule for 100, 10,000 and 1,000,000 ranks in five dimensions.

Each case runs in a fresh process. Time: median of planning one rank, with the messages handed to Python. Memory: growth
of the peak resident set (VmHWM, reset through /proc/self/clear_refs) from before the distributions are made until the
messages are there.

    python benchmarks/planner.py [--json FILE] [--repetitions 200]
"""

from __future__ import annotations

import functools
import json
import math
import multiprocessing
import statistics
import timeit
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import click
import numpy as np

from dace_redist import _core
from dace_redist.distribution import Distribution, TiledDistribution
from dace_redist.messages import MessageArrays
from dace_redist.relabelling import relabel

GRIDS = {
    100: ((5, 5, 2, 2, 1), (1, 2, 2, 5, 5)),
    10_000: ((10, 10, 10, 10, 1), (1, 10, 10, 10, 10)),
    1_000_000: ((25, 20, 20, 10, 10), (10, 10, 20, 20, 25)),
}
#: Blocks change with the grid; the grid stays and blocks of 2 become blocks of 4; a list of all ranks on the target.
KINDS = ("uniform", "block-cyclic", "relabelled")


def distributions(kind: str, ranks: int) -> tuple[Distribution, Distribution]:
    """Return source and target of a case."""
    before, after = GRIDS[ranks]
    if kind == "block-cyclic":
        shape = [200 * parts for parts in before]
        return Distribution(shape, before, block=[2] * 5), Distribution(shape, before, block=[4] * 5)
    shape = [24 * math.lcm(a, b) + 7 for a, b in zip(before, after, strict=True)]
    order = range(ranks - 1, -1, -1) if kind == "relabelled" else None
    return Distribution(shape, before), Distribution(shape, after, ranks=order)


def peak_growth(work: Callable[[], object]) -> int:
    """Return the growth of the peak resident set of this process, in bytes, while ``work`` runs."""

    def status(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field + ":"))

    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    work()
    return max(0, status("VmHWM") - before)


def measure(kind: str, ranks: int, repetitions: int) -> dict[str, Any]:
    """Measure one case in this process, which should be fresh."""
    rank, kept = ranks // 2 + 1, []

    def from_the_start() -> None:
        both = distributions(kind, ranks)
        kept.append((both, _core.rank_schedule(both[0].core, both[1].core, rank)))

    peak = peak_growth(from_the_start)
    (source, target), parts = kept[0]
    plan = functools.partial(_core.rank_schedule, source.core, target.core, rank)
    seconds = statistics.median(timeit.repeat(plan, number=1, repeat=repetitions))
    sides = [MessageArrays(*part) for part in parts]
    blocks = sum(len(side.counts) for side in sides)
    found = {"kind": kind, "ranks": ranks, "messages": sum(map(len, sides)), "blocks": blocks}
    return found | {"seconds": seconds, "peak_bytes": peak}


def plan_tiles() -> None:
    owners = np.random.default_rng(0).integers(0, 100, (1000, 1000))
    tiles = TiledDistribution((4000, 4000), (4, 4), owners)
    _core.rank_schedule(tiles.core, Distribution((4000, 4000), (10, 10)).core, 0)


def relabel_ranks() -> None:
    relabel(Distribution((4000, 4000), (1000, 1)), Distribution((4000, 4000), (1, 1000)))


#: Plans that are made once for all ranks.
FURTHER = {
    "1,000,000 tiles of 100 ranks, made and planned for one": plan_tiles,
    "relabelling 1,000 ranks, rows to columns": relabel_ranks,
}


@click.command(help=__doc__)
@click.option("--repetitions", default=200, show_default=True, type=click.IntRange(1))
@click.option("--json", "path", type=click.Path(dir_okay=False), help="append a JSON line per case")
def main(repetitions: int, path: str | None) -> None:
    for kind in KINDS:
        for ranks in GRIDS:
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
                found = fresh.submit(measure, kind, ranks, repetitions).result()
            click.echo(
                f"{kind:14}{ranks:10,} ranks{found['messages']:8,} messages{found['blocks']:8,} blocks"
                f"{1e3 * found['seconds']:9.3f} ms{found['peak_bytes'] / 1e6:9.2f} MB"
            )
            if path:
                with open(path, "a") as file:
                    file.write(json.dumps(found) + "\n")
    for what, work in FURTHER.items():
        click.echo(f"{what}: {timeit.timeit(work, number=1):.2f} s")


if __name__ == "__main__":
    main()
