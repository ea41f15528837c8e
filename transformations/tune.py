"""Measurement of strategies for a redistribution, or for those of an SDFG, for which alone it loads DaCe."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from dace_redist.distribution import AnyDistribution
from dace_redist.mpi.collective import checked_communicator, together
from dace_redist.schedule import Schedule, schedule
from dace_redist.strategies import options_on_gpu
from dace_redist.timing.comparison import Comparison
from dace_redist.timing.memories import PlacedSchedule, check_memory
from dace_redist.timing.tune import tuned

if TYPE_CHECKING:
    from dace.sdfg import SDFG

    from dace_redist.transformations.strategy import Where


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
        ``**result.best``. Of an SDFG a list, one entry for each distinct redistribution, empty if it has none.
    :raises ValueError: On every rank, if an argument is invalid on one of them.
    :raises TypeError: On every rank, if an argument has the wrong type.
    :raises RuntimeError: On every rank, if no strategy can run, or one fails while it is measured.
    :raises BuildError: On every rank, if arrays lie on GPUs and the library for them cannot be built.
    :raises RedistributionError: On every rank, if arrays lie on GPUs and a rank has none.
    """
    comm = checked_communicator(comm)
    nodes: dict[Any, PlacedSchedule] = {}
    problems: dict[PlacedSchedule, tuple[str, ...]] = {}
    with together(comm):
        if memory is not None:
            check_memory(memory)
        of_distributions = {"target": target, "axes": axes, "region": region}
        of_sdfg = {"symbols": symbols, "where": where}
        dace: Any = sys.modules.get("dace")
        if dace is not None and isinstance(source, dace.SDFG):
            from dace_redist.transformations.strategy import placed_schedules

            _refuse(of_distributions, "an SDFG")
            nodes = placed_schedules(source, symbols, where, memory)
            for node, placed in nodes.items():
                problems[placed] = (*problems.get(placed, ()), str(node.label))
        else:
            _refuse(of_distributions if isinstance(source, Schedule) else {}, "a schedule")
            _refuse(of_sdfg, "a redistribution")
            if not isinstance(source, Schedule):
                source = schedule(source, target, dtype, axes=axes, region=region)
            problems[PlacedSchedule(source, memory or "ordinary")] = ()
    results = tuned(problems, comm=comm, strategies=strategies, limit_seconds=limit_seconds, progress=progress)
    best = {result.placed: result.best for result in results}
    for node, placed in nodes.items():
        options = dict(best[placed])
        name = options.pop("strategy")
        node.set_strategy(name, **(options_on_gpu(name, options) if placed.on_gpu else options))
    return results[0] if isinstance(source, Schedule) else results


def _refuse(arguments: Mapping[str, Any], tuned: str) -> None:
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise TypeError(f"tune does not take {given[0]} with {tuned}")
