"""
Predictions of the cost model against measurements, over the cases of the benchmark with this number of ranks.

All strategies are measured in several rounds over all cases; the minimum of the medians counts, since other work on the
machine slows it down for seconds. Predictions use the profile unchanged; nothing is fitted.

    mpiexec -n 4 python benchmarks/predicted.py [CASE]... [--machine FILE] [--rounds 3] [--limit 0.2] [--json FILE]
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from mpi4py import MPI
from redistribution.arrays import Arrays
from redistribution.catalogue import USUAL_VARIANTS, Case, load
from redistribution.methods import Method, Wanted, prepare

from dace_redist.measuring.measure import measure
from dace_redist.mpi.topology import pinned_to_core, topology_of
from dace_redist.strategies import host_strategies
from dace_redist.tuning.cost_model import CostModel
from dace_redist.tuning.problem import Problem
from dace_redist.tuning.report import profile_in_use

#: Seconds by case, kind of memory, and strategy.
Times = dict[tuple[str, str, str], float]


def measured(cases: Sequence[Case], comm: Any, limit_seconds: float) -> Times:
    """Return the median of each strategy in each case and kind of memory. Collective."""
    times: Times = {}
    for case in cases:
        made = list(prepare(case, comm, Arrays(case, comm), "left out", Wanted(host_strategies(), peers=False)))
        methods = {m.label: m for m in made if isinstance(m, Method) and m.kind == "strategy"}
        runs = {label: method.run for label, method in methods.items()}
        figures = measure(runs, comm, warmup=1, settle=1, most=40, limit_seconds=limit_seconds)
        for label, method in methods.items():
            times[case.name, method.variant, method.choice.strategy] = figures[label].median
            method.free()
    return times


def predicted(cases: Sequence[Case], machine: Path | None, node_of: Sequence[int]) -> Times:
    """Return the seconds predicted by the cost model."""
    profile, _ = profile_in_use(machine)
    return {
        (case.name, variant, estimate.strategy): estimate.seconds
        for case in cases
        for variant in USUAL_VARIANTS
        for estimate in CostModel(Problem(case.schedule, variant), profile, node_of).estimates()
    }


def errors(seen: Times, said: Times, large: set[str]) -> list[str]:
    """Return a line for each size, kind of memory and strategy: predicted over measured."""
    ratios = defaultdict(list)
    for (case, variant, strategy), seconds in seen.items():
        size = "1 MiB and more" if case in large else "less than 1 MiB"
        ratios[size, variant, strategy].append(said[case, variant, strategy] / seconds)
    lines = ["predicted to measured: cases, 10th percentile, median, 90th; within 25 %, within 50 %"]
    for (size, variant, strategy), values in sorted(ratios.items()):
        low, middle, high = np.percentile(values, (10, 50, 90))
        near = [100 * np.mean(np.abs(np.array(values) - 1) <= part) for part in (0.25, 0.5)]
        lines.append(
            f"{size:16}{variant:15}{strategy:14}{len(values):4}{low:8.2f}{middle:8.2f}{high:8.2f}"
            f"{near[0]:7.0f} %{near[1]:7.0f} %"
        )
    return lines


@click.command(help=__doc__)
@click.argument("words", metavar="[CASE]...", nargs=-1)
@click.option("--machine", type=click.Path(exists=True, path_type=Path), help="profile; default: that of this machine")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--limit", default=0.2, show_default=True, help="seconds of measuring for each case and round")
@click.option(
    "--json", "path", type=click.Path(dir_okay=False, path_type=Path), help="write a JSON line per prediction"
)
def main(words: tuple[str, ...], machine: Path | None, rounds: int, limit: float, path: Path | None) -> None:
    comm = MPI.COMM_WORLD
    cases = [c for c in load().select(words) if c.ranks == comm.size and not c.choices and c.within is None]
    with pinned_to_core(comm):
        found = [measured(cases, comm, limit) for _ in range(rounds)]
    seen = {key: min(one[key] for one in found) for key in found[0]}
    node_of = topology_of(comm).node_of
    if comm.rank:
        return
    said = predicted(cases, machine, node_of)
    print("\n".join(errors(seen, said, {case.name for case in cases if case.nbytes >= 1 << 20})))
    if path:
        names = ("case", "memory", "strategy")
        rows = (dict(zip(names, k, strict=True)) | {"measured": s, "predicted": said[k]} for k, s in seen.items())
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
