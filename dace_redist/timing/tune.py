"""Searches the fastest strategy of redistributions. Start reading at: tuned."""

from __future__ import annotations

import dataclasses
import numbers
import os
from collections.abc import Mapping, Sequence
from typing import Any

from dace_redist.mpi.collective import check_same, checked_communicator, together
from dace_redist.mpi.launch import check_both_ranks
from dace_redist.mpi.topology import topology_of
from dace_redist.redistribution.problem import Problem
from dace_redist.report.progress import progress_bar
from dace_redist.report.text import header
from dace_redist.strategies import DEFAULT_STRATEGY, default_options, find_strategy
from dace_redist.timing.comparison import Candidate, Comparison, Race, strategies_for
from dace_redist.timing.memories import PlacedSchedule

#: Values of options that are tried besides the defaults.
TRIED: Mapping[str, Sequence[int | float]] = {
    "chunk_bytes": (512 << 10, 2 << 20, 8 << 20),
    "depth": (2, 4),
    "growth": (2.0,),
    "threads": (1, 2, 4, 8),
    "slot_bytes": (64 << 10, 128 << 10, 512 << 10),
    "join_bytes": (4 << 10,),
}
#: Options of the default strategy that concern messages between nodes only.
_BETWEEN_NODES = ("chunk_bytes", "growth", "join_bytes")
#: Options are tried of this many strategies that are at most this factor slower than the best.
_PROMISING, _CLOSE = 3, 1.3
#: Part of the time for the first phase.
_FIRST = 0.4


def tuned(
    problems: Mapping[PlacedSchedule, tuple[str, ...]],
    *,
    comm: Any = None,
    strategies: Sequence[str] | None = None,
    limit_seconds: float = 60.0,
    progress: bool = True,
    versus_mpi: bool = False,
) -> list[Comparison]:
    """
    Measure strategies for redistributions. Collective over ``comm``.

    :param problems: Redistributions, with the labels of their nodes in an SDFG: none for a redistribution by itself.
    :param versus_mpi: True to measure the strategies with their default options only, and ``MPI_Alltoallw``.

    The other parameters are those of :func:`dace_redist.tune`.
    """
    comm = checked_communicator(comm)
    with together(comm):
        if isinstance(limit_seconds, bool) or not isinstance(limit_seconds, numbers.Real):
            raise TypeError(f"limit_seconds must be a number, got {limit_seconds!r}")
        if not 0 < float(limit_seconds) < float("inf"):
            raise ValueError(f"limit_seconds must be positive, got {limit_seconds}")
        tried = [strategies_for(strategies, placed) for placed in problems]
        for placed in problems:
            check_both_ranks(placed.schedule, comm.size)
    facts = [
        (*labels, *header(one.schedule), one.memory, Problem((one.schedule,), False, "", ()).digest)
        for one, labels in problems.items()
    ]
    check_same(comm, {"what they tune": facts, "what they try": tried, "limit_seconds": limit_seconds})
    results = []
    for (placed, labels), names in zip(problems.items(), tried, strict=True):
        with progress_bar(progress and comm.rank == 0, ", ".join(labels) or "tune", limit_seconds) as show:
            found = _measured(Race(placed, comm, show), names, float(limit_seconds), versus_mpi)
        results.append(dataclasses.replace(found, nodes=labels))
    return results


def _measured(race: Race, names: Sequence[str], limit_seconds: float, versus_mpi: bool) -> Comparison:
    """Measure strategies with default options, then those near the best, and the default one, with other options."""
    every = {name: Candidate(name) for name in names}
    if versus_mpi:
        return Comparison(race.placed, every, [race.run(list(every.values()), limit_seconds, True)], race.refused)
    first = race.run(list(every.values()), _FIRST * limit_seconds)
    best = min(figure.median for figure in first.values())
    near = sorted((name for name in first if first[name].low <= _CLOSE * best), key=lambda name: first[name].median)
    last = [every[name] for name in dict.fromkeys([*near[:_PROMISING], DEFAULT_STRATEGY]) if name in first]
    varied = [one for name in near[:_PROMISING] for one in _varied(name, race)]
    every |= {str(one): one for one in varied}
    phases = [first]
    if len(last) + len(varied) > 1:
        phases.append(race.run([*last, *varied], (1 - _FIRST) * limit_seconds))
    return Comparison(race.placed, every, phases, race.refused)


def _varied(strategy: str, race: Race) -> list[Candidate]:
    """
    Return a strategy with each sensible value of each of its options.

    Of sizes beyond the largest message, which are equivalent, one remains. Left out are numbers of threads beyond a
    rank's share of the cores, and on one node what concerns messages between nodes.
    """
    placed, varied, topology = race.placed, [], topology_of(race.comm)
    usual, largest = default_options(placed.on_gpu), max(placed.schedule.totals.sizes, default=0)
    largest *= placed.schedule.itemsize
    share = max(1, (os.cpu_count() or 1) // topology.ranks_per_node)
    alone = strategy == DEFAULT_STRATEGY and topology.node_count == 1 and not placed.on_gpu
    for option in find_strategy(strategy).options:
        tried = [value for value in TRIED.get(option, ()) if value != usual[option]]
        if alone and option in _BETWEEN_NODES:
            continue
        if option in ("chunk_bytes", "slot_bytes"):
            whole = [value for value in (usual[option], *sorted(tried)) if value >= largest][:1]
            tried = [value for value in tried if value < largest or value in whole]
        elif option == "threads":
            tried = [value for value in tried if value <= share and (value > 1 or strategy == "Threaded")]
            tried = [] if placed.on_gpu else tried
        varied += [Candidate(strategy, {option: value}) for value in tried]
    return varied
