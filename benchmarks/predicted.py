"""
Predictions of the cost model against results of the benchmark on one node.

Of several results of a strategy in a case the smallest median counts, since other work on the machine slows it down for
seconds. Predictions use the profile unchanged; nothing is fitted.

    mpiexec -n 4 python benchmarks/bench.py --ranks 4 --no-peers --json results.jsonl
    python benchmarks/predicted.py results.jsonl [--machine FILE]
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import numpy as np
from redistribution.catalogue import Case, load
from redistribution.tables import lines

from dace_redist.cli import run_command
from dace_redist.report.units import table
from dace_redist.tuning.cost_model import CostModel
from dace_redist.tuning.problem import GPU_MEMORIES, MEMORIES, Problem
from dace_redist.tuning.profile import MachineProfile
from dace_redist.tuning.report import profile_in_use


def measured(records: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, float]]:
    """Return the smallest median of each strategy with default options, by case and memory."""
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in records:
        usual = row.get("kind") == "strategy" and not row["options"] and row["variant"] in MEMORIES
        if usual and row["strategy"] != "Auto" and row["environment"]["nodes"] == 1:
            times = found[row["case"], row["variant"]]
            times[row["strategy"]] = min(row["median"], times.get(row["strategy"], np.inf))
    return found


def predicted(case: Case, memory: str, profile: MachineProfile) -> dict[str, float]:
    """Return the seconds that the cost model predicts for each strategy."""
    model = CostModel(Problem(case.schedule, memory), profile, [0] * case.ranks)
    return {estimate.strategy: estimate.seconds for estimate in model.estimates()}


@click.command(help=__doc__)
@click.argument("results", type=click.Path(exists=True, path_type=Path))
@click.option("--preset", default="default", show_default=True, help="sizes of the cases")
@click.option("--machine", type=click.Path(exists=True, path_type=Path), help="profile; default: that of this machine")
def main(results: Path, preset: str, machine: Path | None) -> None:
    profile, _ = profile_in_use(machine)
    cases = {case.name: case for case in load(preset).cases if case.within is None}
    ratios = defaultdict(list)
    for (name, memory), times in measured(list(lines(results))).items():
        if name in cases and (profile.device or memory not in GPU_MEMORIES):
            estimates = predicted(cases[name], memory, profile)
            size = "1 MiB and more" if cases[name].nbytes >= 1 << 20 else "less than 1 MiB"
            for strategy, seconds in times.items():
                ratios[size, memory, strategy].append(estimates[strategy] / seconds)
    rows = [("size", "arrays", "strategy", "cases", "predicted to measured: median", "within 25 %", "within 50 %")]
    for group, values in sorted(ratios.items()):
        near = (f"{100 * np.mean(np.abs(np.array(values) - 1) <= part):.0f} %" for part in (0.25, 0.5))
        rows.append((*group, str(len(values)), f"{np.median(values):.2f}", *near))
    click.echo("\n".join(table(rows, left=3)))


if __name__ == "__main__":
    run_command(main, "predicted.py")
