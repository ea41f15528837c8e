"""
Predictions of the cost model against measurements, over the cases of the benchmark with this number of ranks.

``mpiexec -n 4 python benchmarks/predicted.py [CASE]... [--machine FILE] [--strategies Hierarchical,Pack] [--rounds 3]
[--limit 0.2] [--json FILE]``

All strategies, or the named ones, are measured in several rounds over all cases; the minimum of the medians counts,
since other work on the machine slows it down for seconds. Predictions use the profile unchanged; nothing is fitted.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from redistribution import catalogue
from redistribution.arrays import Arrays
from redistribution.catalogue import Case
from redistribution.methods import Method, Wanted, prepare

from dace_redist.mpi.topology import pinned_to_core, topology_of
from dace_redist.strategies import host_strategies
from dace_redist.tuning.auto import predicted_winner
from dace_redist.tuning.cost_model import CostModel
from dace_redist.tuning.measure import measure
from dace_redist.tuning.problem import Problem
from dace_redist.tuning.report import profile_in_use

#: Seconds by strategy, of a case and where its arrays lie.
Times = dict[tuple[str, str], dict[str, float]]
_LARGE = 1 << 20
#: On one node these are the same code as ``Hierarchical``: differences between them are noise, and do not count.
_SAME_ON_A_NODE = ("Shared", "Aggregated")


def measured(cases: Sequence[Case], comm: Any, limit_seconds: float, strategies: Sequence[str]) -> Times:
    """Return the median of each strategy in each case and kind of memory. Collective."""
    times: Times = defaultdict(dict)
    wanted = Wanted([*strategies], peers=False)
    for case in cases:
        arrays = Arrays(case, comm)
        made = list(prepare(case, comm, arrays, "left out", wanted))
        methods = {m.label: m for m in made if isinstance(m, Method) and m.kind == "strategy"}
        runs = {label: method.run for label, method in methods.items()}
        figures = measure(runs, comm, warmup=1, settle=1, most=40, limit_seconds=limit_seconds)
        for label, method in methods.items():
            times[f"{case.name} {case.nbytes}", method.variant][method.strategy] = figures[label].median
            method.free()
        arrays.free()
        del made, methods, runs
        gc.collect()
    return times


def predicted(cases: Sequence[Case], machine: Path | None, node_of: Sequence[int]) -> Times:
    """Return the seconds predicted by the cost model."""
    profile, _ = profile_in_use(machine)
    return {
        (f"{case.name} {case.nbytes}", variant): {
            one.strategy: one.seconds
            for one in CostModel(Problem(case.schedule, variant), profile, node_of).estimates()
        }
        for case in cases
        for variant in catalogue.VARIANTS
    }


def errors(seen: Times, said: Times, large: Mapping[str, bool]) -> list[str]:
    """Return a line for each strategy and kind of memory: predicted over measured."""
    ratios = defaultdict(list)
    for (case, variant), times in seen.items():
        for strategy, seconds in times.items():
            size = "1 MiB and more" if large[case] else "less than 1 MiB"
            ratios[size, variant, strategy].append(said[case, variant][strategy] / seconds)
    lines = ["predicted to measured: cases, 10th percentile, median, 90th; within 25 %, within 50 %"]
    for (size, variant, strategy), values in sorted(ratios.items()):
        low, middle, high = np.percentile(values, (10, 50, 90))
        near = [100 * np.mean(np.abs(np.array(values) - 1) <= part) for part in (0.25, 0.5)]
        lines.append(
            f"{size:16}{variant:15}{strategy:14}{len(values):4}{low:8.2f}{middle:8.2f}{high:8.2f}"
            f"{near[0]:7.0f} %{near[1]:7.0f} %"
        )
    return lines


def choices(seen: Times, said: Times, one_node: bool) -> list[str]:
    """Return lines that compare the choice of Auto, and the default strategy, with the best measured strategy."""
    lines = []
    ignored = _SAME_ON_A_NODE if one_node else ()
    for variant in sorted({memory for _, memory in seen}):
        reached: dict[str, list[float]] = {"Auto": [], "Hierarchical": []}
        for case, measured_times in ((case, times) for (case, memory), times in seen.items() if memory == variant):
            times = {name: seconds for name, seconds in measured_times.items() if name not in ignored}
            auto = predicted_winner({name: said[case, variant][name] for name in times})
            for name, strategy in (("Auto", auto), ("Hierarchical", "Hierarchical")):
                reached[name].append(min(times.values()) / times[strategy])
        lines += [
            f"{variant:15}{name:14}of the best strategy: mean {np.mean(parts):.3f}, worst {min(parts):.3f}"
            for name, parts in reached.items()
        ]
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--machine", type=Path)
    parser.add_argument("--strategies", default=",".join(host_strategies()), help="default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=0.2, help="seconds of measuring for each case and round")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    strategies = given.strategies.split(",")
    if unknown := set(strategies) - set(host_strategies()):
        parser.error(
            f"--strategies: there is no {', '.join(sorted(unknown))}; there are {', '.join(host_strategies())}"
        )
    comm = MPI.COMM_WORLD
    every = [case for preset in ("tiny", "default") for case in catalogue.load(preset).cases]
    cases = [case for case in every if case.ranks == comm.size and not case.choices and case.within is None]
    cases = [case for case in cases if not given.cases or case.name in given.cases or case.group in given.cases]
    with pinned_to_core(comm):
        rounds = [measured(cases, comm, given.limit, strategies) for _ in range(given.rounds)]
    seen = {key: {name: min(one[key][name] for one in rounds) for name in times} for key, times in rounds[0].items()}
    node_of = topology_of(comm).node_of
    if comm.rank:
        return
    said = predicted(cases, given.machine, node_of)
    large = {f"{case.name} {case.nbytes}": case.nbytes >= _LARGE for case in cases}
    print("\n".join(errors(seen, said, large)))
    if set(strategies) == set(host_strategies()):
        print("\n".join(choices(seen, said, len(set(node_of)) == 1)))
    if given.json:
        rows = [
            {
                "case": case,
                "memory": memory,
                "strategy": name,
                "measured": seconds,
                "predicted": said[case, memory][name],
            }
            for (case, memory), times in seen.items()
            for name, seconds in times.items()
        ]
        given.json.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
