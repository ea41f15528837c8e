"""
Time and memory of one rank's schedule for 100, 10,000 and 1,000,000 ranks in five dimensions.

Each case runs in a fresh process. Time: median, and 95 % of repetitions below, of planning one rank, with the messages
handed to Python; beside it the median of the processor time, which others on the machine do not lengthen. Memory:
growth of the peak resident set (VmHWM, reset through /proc/self/clear_refs) from before the distributions are made
until the messages are there; so it counts C++ and Python, and the messages themselves. Beside it the messages alone:
what Python holds (tracemalloc) plus 600 bytes for each block in C++ (sizeof(StridedBlock)).

    python benchmarks/planner.py [--json FILE] [--repetitions 200]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import multiprocessing
import platform
import resource
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from dace_redist import _core
from dace_redist.distribution import Distribution, TiledDistribution
from dace_redist.relabelling import relabel

LIMIT_SECONDS, LIMIT_BYTES = 10e-3, 10e6  # required for a million ranks
BLOCK_BYTES = 600  # sizeof(StridedBlock)

GRIDS = {
    100: ((5, 5, 2, 2, 1), (1, 2, 2, 5, 5)),
    10_000: ((10, 10, 10, 10, 1), (1, 10, 10, 10, 10)),
    1_000_000: ((25, 20, 20, 10, 10), (10, 10, 20, 20, 25)),
}


@dataclasses.dataclass(frozen=True)
class Result:
    """Figures of one case; seconds and bytes."""

    kind: str
    ranks: int
    messages: int
    blocks: int
    make_seconds: float
    plan_seconds: float
    plan_seconds_95: float
    plan_cpu_seconds: float
    peak_bytes: int
    message_bytes: int

    @property
    def beyond_bytes(self) -> int:
        """Memory that is not messages."""
        return max(0, self.peak_bytes - self.message_bytes)


def distributions(kind: str, ranks: int) -> tuple[Distribution, Distribution]:
    """
    Source and target of a case.

    uniform: blocks change with the grid; block-cyclic: the grid stays, blocks of 2 become blocks of 4, 100 of them per
    rank and dimension; relabelled: uniform with a list of all ranks, reversed, on the target.
    """
    before, after = GRIDS[ranks]
    if kind == "block-cyclic":
        shape = [200 * parts for parts in before]
        return Distribution(shape, before, block=[2] * 5), Distribution(shape, before, block=[4] * 5)
    shape = [24 * math.lcm(a, b) + 7 for a, b in zip(before, after, strict=True)]
    order = range(ranks - 1, -1, -1) if kind == "relabelled" else None
    return Distribution(shape, before), Distribution(shape, after, ranks=order)


def status_bytes(field: str) -> int:
    """Return a line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def peak_growth(work: Callable[[], object]) -> int:
    """Return the growth of the peak resident set, in bytes, while ``work`` runs."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = status_bytes("VmRSS")
        work()
        return max(0, status_bytes("VmHWM") - before)
    except OSError:  # no such reset here: growth beyond the highest so far, which may be less than the truth
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        work()
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def measure(kind: str, ranks: int, repetitions: int) -> Result:
    """Measure one case in this process, which should be fresh."""
    rank, kept = ranks // 2 + 1, []

    def work() -> None:
        source, target = distributions(kind, ranks)
        kept.extend((source, target, _core.rank_schedule(source.core, target.core, rank)))

    peak = peak_growth(work)
    start = time.perf_counter()
    source, target = distributions(kind, ranks)
    make_seconds = time.perf_counter() - start
    seconds, cpu_seconds = [], []
    for _ in range(repetitions):
        start, cpu_start = time.perf_counter(), time.process_time()
        _core.rank_schedule(source.core, target.core, rank)
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
    tracemalloc.start()
    parts = _core.rank_schedule(source.core, target.core, rank)
    python_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    messages = [message for part in parts for message in part if message[1]]
    blocks = sum(len(message[2]) for message in messages)
    median, most = statistics.median(seconds), sorted(seconds)[int(0.95 * (repetitions - 1))]
    cpu = statistics.median(cpu_seconds)
    size = python_bytes + blocks * BLOCK_BYTES
    return Result(kind, ranks, len(messages), blocks, make_seconds, median, most, cpu, peak, size)


def table(results: list[Result]) -> str:
    """Return the figures as text."""
    lines = [
        f"{'':14}{'ranks':>10}{'messages':>10}{'blocks':>8}{'plan ms':>9}{'95 % ms':>9}{'cpu ms':>9}{'make ms':>10}"
    ]
    lines[0] += f"{'peak MB':>9}{'messages MB':>13}{'beyond MB':>11}"
    for r in results:
        times = "".join(f"{1e3 * s:9.3f}" for s in (r.plan_seconds, r.plan_seconds_95, r.plan_cpu_seconds))
        memory = f"{r.peak_bytes / 1e6:9.2f}{r.message_bytes / 1e6:13.2f}{r.beyond_bytes / 1e6:11.2f}"
        lines.append(
            f"{r.kind:14}{r.ranks:10,}{r.messages:10,}{r.blocks:8,}{times}{1e3 * r.make_seconds:10.3f}{memory}"
        )
    return "\n".join(lines)


def further_seconds() -> dict[str, float]:
    """Return the seconds of plans that are made once for all ranks, by name."""
    start = time.perf_counter()
    owners = np.random.default_rng(0).integers(0, 100, (1000, 1000))
    tiles = TiledDistribution((4000, 4000), (4, 4), owners)
    _core.rank_schedule(tiles.core, Distribution((4000, 4000), (10, 10)).core, 0)
    planned = time.perf_counter()
    relabel(Distribution((4000, 4000), (1000, 1)), Distribution((4000, 4000), (1, 1000)))
    return {
        "1,000,000 tiles of 100 ranks, made and planned for one": planned - start,
        "relabelling 1,000 ranks, rows to columns": time.perf_counter() - planned,
    }


def missed(results: list[Result]) -> list[str]:
    """Cases of a million ranks, but for the list of all ranks, that miss the requirement."""
    required = [r for r in results if r.ranks == 1_000_000 and r.kind != "relabelled"]
    return [r.kind for r in required if r.plan_seconds > LIMIT_SECONDS or r.beyond_bytes > LIMIT_BYTES]


def main() -> None:
    """Measure all cases; exit code 1 if a million ranks need more than 10 ms or 10 MB beyond the messages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--repetitions", type=int, default=200)
    options = parser.parse_args()
    cases = [(kind, ranks) for kind in ("uniform", "block-cyclic", "relabelled") for ranks in GRIDS]
    results = []
    for kind, ranks in cases:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
            results.append(fresh.submit(measure, kind, ranks, options.repetitions).result())
    print(table(results))
    further = further_seconds()
    for what, seconds in further.items():
        print(f"{what}: {seconds:.2f} s")
    if options.json:
        figures = [{**dataclasses.asdict(r), "beyond_bytes": r.beyond_bytes} for r in results]
        where = {"machine": platform.machine(), "python": platform.python_version(), "system": platform.platform()}
        options.json.write_text(json.dumps({**where, "results": figures, "further_seconds": further}, indent=1) + "\n")
    if missed(results):
        sys.exit(f"more than 10 ms or 10 MB for a million ranks: {', '.join(missed(results))}")


if __name__ == "__main__":
    main()
