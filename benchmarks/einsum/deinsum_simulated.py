"""
Weak scaling of Deinsum's ten kernels on a machine like theirs, predicted, with our plans and with its published grids.

``python benchmarks/einsum/deinsum_simulated.py [--output FIGURE] [--json FILE] [--machine piz-daint] [--ranks 1 2 4]``

Axes as in the figures of Ziogas et al., Deinsum, SC 2022: seconds over nodes, of which each runs one rank. Crosses are
times that Deinsum measured on up to 8 nodes, read off the figures of its artifact by eye (about 5 %).
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deinsum import kernels

from dace_redist.report.canvas import new_figure, save
from dace_redist.simulation.program import SimulatedProgram, simulate_plan

RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
COLOURS = {"ours": "#4c72b0", "Deinsum's grids": "#dd8452"}
#: Seconds on 1, 2, 4 and 8 nodes of Piz Daint: deinsum/sc22-artifact, figures/cpu.png.
MEASURED = {
    "1MM": (0.39, 0.36, 0.54, 0.53),
    "2MM": (0.73, 0.79, 1.1, 1.08),
    "3MM": (1.12, 1.12, 1.6, 1.65),
    "TTMc-O5-M0": (1.2, 2.1, 2.4, 2.1),
}


def simulated(machine: str, ranks: Sequence[int]) -> dict[str, dict[str, list[SimulatedProgram]]]:
    """By kernel and plans: a prediction for each number of ranks."""
    found: dict[str, dict[str, list[SimulatedProgram]]] = {}
    for name, kernel in kernels().items():
        found[name] = {whose: [] for whose in COLOURS}
        for count in ranks:
            for whose, plan in (("ours", kernel.plan(count)), ("Deinsum's grids", kernel.published_plan(count))):
                found[name][whose].append(simulate_plan(plan, machine, ranks_per_node=1, scattered=True))
            ours, theirs = (runs[-1].seconds for runs in found[name].values())
            print(f"{name:14}{count:6}{ours:9.3f} s{theirs:9.3f} s{ours / theirs:8.3f}", flush=True)
    return found


def draw(found: dict[str, dict[str, list[SimulatedProgram]]], ranks: Sequence[int], title: str) -> Any:
    """A panel for each kernel: seconds over nodes; dashed what is computed, without communication."""
    figure = new_figure(15, 6.4, layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(2, -(-len(found) // 2), squeeze=False).ravel()
    at = range(len(ranks))
    for axes, (name, both) in zip(panels, found.items(), strict=False):
        for whose, runs in both.items():
            axes.plot(at, [one.seconds for one in runs], "o-", color=COLOURS[whose], label=whose, markersize=4)
            work = [one.by_kind["contract"] for one in runs]
            axes.plot(at, work, "--", color=COLOURS[whose], label=f"{whose}, computing", linewidth=1)
        seen = dict(zip((1, 2, 4, 8), MEASURED.get(name, ()), strict=False))
        places = [number for number, count in enumerate(ranks) if count in seen]
        axes.plot(places, [seen[ranks[number]] for number in places], "kx", label="measured by Deinsum")
        axes.set_title(name)
        axes.set_xticks(at, list(map(str, ranks)), fontsize=7)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    for axes in panels[-len(panels) // 2 :]:
        axes.set_xlabel("nodes")
    for axes in panels[:: len(panels) // 2]:
        axes.set_ylabel("seconds")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def main() -> None:
    """Print and draw the times of all kernels."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--machine", default="piz-daint")
    parser.add_argument("--ranks", type=int, nargs="*", default=RANKS)
    parser.add_argument("--output", type=Path, help="figure")
    parser.add_argument("--json", type=Path, help="all steps of all programs")
    given = parser.parse_args()
    start = time.perf_counter()
    print(f"{'kernel':14}{'nodes':>6}{'ours':>11}{'Deinsum':>11}{'ratio':>8}")
    found = simulated(given.machine, given.ranks)
    if given.json:
        plain = {
            name: {whose: [r.to_json() for r in runs] for whose, runs in both.items()} for name, both in found.items()
        }
        given.json.write_text(json.dumps(plain, indent=1))
    if given.output:
        job = found["1MM"]["ours"][-1].job
        title = f"predicted on {job.machine.name}, one rank per node, {time.strftime('%Y-%m-%d')}"
        save(lambda: draw(found, given.ranks, title), given.output)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{time.perf_counter() - start:.0f} s, at most {most:.2f} GiB of memory")


if __name__ == "__main__":
    main()
