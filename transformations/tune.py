"""Measurement of strategies for a redistribution, or for those of an SDFG, for which alone it loads DaCe."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from dace_redist.distribution import AnyDistribution
from dace_redist.measuring.tune import Tuning, tune_problems
from dace_redist.mpi.collective import checked_communicator, together
from dace_redist.schedule import Schedule, schedule
from dace_redist.tuning.problem import TuningProblem, check_memory

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
    options: Mapping[str, Sequence[Any]] | None = None,
    record: str | os.PathLike[str] | None = None,
    limit_seconds: float = 60.0,
    precision: float = 0.05,
    progress: bool = True,
) -> Tuning:
    """
    Measure strategies for a redistribution, or for each one of an SDFG, and record the fastest. Collective.

    Strategy ``"Auto"`` and :func:`dace_redist.transformations.choose_strategies` then use the record. Arrays are in C
    order. A record applies to the same redistribution and kind of memory, on the same machine with the same MPI and the
    same ranks per node.

    :param source: Source distribution; or a schedule, or an SDFG, which is not changed, without a target.
    :param target, dtype: See :func:`dace_redist.plan`.
    :param comm: mpi4py communicator to measure on; default: the world.
    :param axes, region: See :func:`dace_redist.plan`.
    :param memory: ``"ordinary"``; node-shared: ``"shared-source"``, ``"shared-target"``, ``"shared-both"``; on GPUs:
        ``"gpu"`` (both), ``"gpu-source"``, ``"gpu-target"``. Default, and for arrays on the GPU in an SDFG: as in the
        SDFG, else ordinary.
    :param symbols: Values of the symbols in an SDFG's sizes.
    :param where: See :func:`dace_redist.set_strategy`.
    :param strategies: Strategies to try; default: all.
    :param options: Values to try, as ``{"chunk_bytes": [1 << 20, 8 << 20]}``. Default: those of
        :data:`dace_redist.strategies.OPTIONS`.
    :param record: File of the tuning record; default: ``DACE_REDIST_RECORD``, else the user's file.
    :param limit_seconds: Time for the measurements of one redistribution. Compilation is not counted, and every
        candidate is run at least three times.
    :param precision: Relative half-width of confidence intervals at which measuring ends.
    :param progress: See :func:`dace_redist.load`.
    :return: The results, equal on every rank; ``print`` shows them.
    :raises ValueError: On every rank, if an argument is invalid on one of them, or the record is damaged or of another
        version.
    :raises TypeError: On every rank, if an argument has the wrong type.
    :raises OSError: On every rank, if the record cannot be written.
    :raises RuntimeError: On every rank, if no strategy can run, or one fails while it is measured.
    :raises BuildError: On every rank, if arrays lie on GPUs and the library for them cannot be built.
    :raises RedistributionError: On every rank, if arrays lie on GPUs and a rank has none.
    """
    comm = checked_communicator(comm)
    with together(comm):
        if memory is not None:
            check_memory(memory)
        of_distributions = {"target": target, "axes": axes, "region": region}
        of_sdfg = {"symbols": symbols, "where": where}
        dace: Any = sys.modules.get("dace")
        if dace is not None and isinstance(source, dace.SDFG):
            _refuse(of_distributions, "an SDFG")
            problems = _problems_of_sdfg(source, symbols, where, memory)
        else:
            _refuse(of_sdfg, "a redistribution")
            if isinstance(source, Schedule):
                _refuse(of_distributions, "a schedule")
                moved = source
            else:
                moved = schedule(source, target, dtype, axes=axes, region=region)  # type: ignore[arg-type]
            if not moved.transform.is_copy:
                raise ValueError(
                    "tune takes schedules that only move elements, and this one computes with them "
                    f"({moved.transform.operation_text}): Auto takes the default strategy for it, whatever is recorded"
                )
            problems = {(): TuningProblem(moved, memory or "ordinary")}
    return tune_problems(
        problems,
        comm=comm,
        strategies=strategies,
        options=options,
        record=record,
        limit_seconds=limit_seconds,
        precision=precision,
        progress=progress,
    )


def _refuse(arguments: Mapping[str, Any], tuned: str) -> None:
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise TypeError(f"tune does not take {given[0]} with {tuned}")


def _problems_of_sdfg(
    sdfg: SDFG, symbols: Any, where: Where, memory: str | None
) -> dict[tuple[str, ...], TuningProblem]:
    """Return the problems of an SDFG, each once, by the labels of its nodes."""
    from dace_redist.transformations.strategy import problems_of

    found: dict[tuple[str, ...], tuple[tuple[str, ...], TuningProblem]] = {}
    for label, problem in problems_of(sdfg, symbols, where, memory):
        key = tuple(problem.identity.values())
        labels, first = found.get(key, ((), problem))
        found[key] = ((*labels, label), first)
    return dict(found.values())
