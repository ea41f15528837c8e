"""Function :func:`tune`, which finds the fastest strategy of a redistribution. Start reading at: tune."""

from __future__ import annotations

import dataclasses
import numbers
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from dace_redist.distribution import AnyDistribution
from dace_redist.mpi.collective import check_same, checked_communicator, together
from dace_redist.mpi.launch import check_both_ranks
from dace_redist.mpi.topology import topology_of
from dace_redist.redistribution.problem import Problem
from dace_redist.report.progress import progress_bar
from dace_redist.report.text import header
from dace_redist.schedule import Schedule, schedule
from dace_redist.strategies import DEFAULT_STRATEGY, default_options, find_strategy, options_on_gpu
from dace_redist.timing.comparison import Candidate, Comparison, Race, strategies_for
from dace_redist.timing.memories import PlacedSchedule, check_memory

if TYPE_CHECKING:
    from dace.sdfg import SDFG

    from dace_redist.transformations.strategy import Where

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


def tune(
    source: AnyDistribution | Schedule | SDFG,
    target: AnyDistribution | None = None,
    dtype: npt.DTypeLike = "float64",
    comm: Any = None,
    *,
    axes: Sequence[int] | None = None,
    region: Sequence[Sequence[int]] | None = None,
    memory: str | None = None,
    symbols: Mapping[str, int] | None = None,
    where: Where = None,
    strategies: Sequence[str] | None = None,
    limit_seconds: float = 60.0,
    progress: bool = True,
) -> Comparison | list[Comparison]:
    """
    Measure strategies for a redistribution, or set the fastest ones of an SDFG. Collective over ``comm``.

    All strategies are measured with their default options, then the fastest ones with other values of one option, those
    of :data:`dace_redist.timing.tune.TRIED`. Arrays are in C order.

    :param source: Source distribution; or, without a target, a schedule, or an SDFG. Nodes of an SDFG get the strategy
        and options of :attr:`Comparison.best`, which DaCe saves with it; nodes keep theirs if arrays are in another
        order, or the implementation is ``"MPI"``.
    :param target, dtype: See :func:`dace_redist.plan`.
    :param comm: mpi4py communicator to measure on; default: the world.
    :param axes, region: See :func:`dace_redist.plan`.
    :param memory: ``"ordinary"``; node-shared: ``"shared-source"``, ``"shared-target"``, ``"shared-both"``; on GPUs:
        ``"gpu"`` (both), ``"gpu-source"``, ``"gpu-target"``. Default, and for arrays on the GPU in an SDFG: as in the
        SDFG, else ordinary.
    :param symbols: Values of the symbols in an SDFG's sizes.
    :param where: See :func:`dace_redist.set_strategy`.
    :param strategies: Strategies to try; default: all.
    :param limit_seconds: Time for the measurements of one redistribution. Compilation is not counted, and every
        candidate is run at least three times.
    :param progress: See :func:`dace_redist.load`.
    :return: The times, equal on every rank; ``print`` shows them, and ``plan`` and ``redistribute`` take
        ``**result.best``. Of an SDFG a list, one entry for each distinct redistribution.
    :raises ValueError: On every rank, if an argument is invalid on one of them.
    :raises TypeError: On every rank, if an argument has the wrong type.
    :raises RuntimeError: On every rank, if no strategy can run, or one fails while it is measured.
    :raises BuildError: On every rank, if arrays lie on GPUs and the library for them cannot be built.
    :raises RedistributionError: On every rank, if arrays lie on GPUs and a rank has none.
    """
    comm = checked_communicator(comm)
    nodes: dict[Any, PlacedSchedule] = {}
    with together(comm):
        if isinstance(limit_seconds, bool) or not isinstance(limit_seconds, numbers.Real):
            raise TypeError(f"limit_seconds must be a number, got {limit_seconds!r}")
        if not 0 < float(limit_seconds) < float("inf"):
            raise ValueError(f"limit_seconds must be positive, got {limit_seconds}")
        if memory is not None:
            check_memory(memory)
        of_distributions = {"target": target, "axes": axes, "region": region}
        of_sdfg = {"symbols": symbols, "where": where}
        dace: Any = sys.modules.get("dace")
        if dace is not None and isinstance(source, dace.SDFG):
            from dace_redist.transformations.strategy import placed_schedules

            _refuse(of_distributions, "an SDFG")
            nodes = placed_schedules(source, symbols, where, memory)
            problems = list(dict.fromkeys(nodes.values()))
        else:
            _refuse(of_distributions if isinstance(source, Schedule) else {}, "a schedule")
            _refuse(of_sdfg, "a redistribution")
            if not isinstance(source, Schedule):
                source = schedule(source, target, dtype, axes=axes, region=region)
            problems = [PlacedSchedule(source, memory or "ordinary")]
        tried = [strategies_for(strategies, placed) for placed in problems]
        for placed in problems:
            check_both_ranks(placed.schedule, comm.size)
    facts = [(*header(one.schedule), one.memory, Problem((one.schedule,), False, "", ()).digest) for one in problems]
    check_same(comm, {"what they tune": facts, "what they try": tried, "limit_seconds": limit_seconds})
    results = []
    for placed, names in zip(problems, tried, strict=True):
        of_problem = [node for node, other in nodes.items() if other == placed]
        labels = tuple(str(node.label) for node in of_problem)
        with progress_bar(progress and comm.rank == 0, ", ".join(labels) or "tune", limit_seconds) as show:
            result = _tuned(Race(placed, comm, show), names, float(limit_seconds))
        for node in of_problem:
            best = dict(result.best)
            node.set_strategy(name := best.pop("strategy"), **(options_on_gpu(name, best) if placed.on_gpu else best))
        results.append(dataclasses.replace(result, nodes=labels))
    return results if nodes else results[0]


def _tuned(race: Race, names: Sequence[str], limit_seconds: float) -> Comparison:
    """Measure strategies with default options, then those near the best, and the default one, with other options."""
    every = {name: Candidate(name) for name in names}
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


def _refuse(arguments: Mapping[str, Any], tuned: str) -> None:
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise TypeError(f"tune does not take {given[0]} with {tuned}")
