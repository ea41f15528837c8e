"""Tuning of a redistribution, or of all redistributions of an SDFG."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from dace import SDFG

from dace_redist.measuring.tune import Tuning
from dace_redist.measuring.tune import tune as tune_problems
from dace_redist.mpi.collective import checked_communicator, together
from dace_redist.schedule import Schedule
from dace_redist.transformations.strategy import Where, problems_of
from dace_redist.tuning.problem import Problem, check_memory


def tune(
    what: Schedule | SDFG,
    *,
    comm: Any = None,
    symbols: Mapping[str, int] | None = None,
    where: Where = None,
    memory: str | None = None,
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

    :param what: A schedule, or an SDFG, which is not changed.
    :param comm: mpi4py communicator to measure on; default: the world.
    :param symbols: Values of the symbols in an SDFG's sizes.
    :param where: See :func:`dace_redist.set_strategy`.
    :param memory: ``"ordinary"``; node-shared: ``"shared-source"``, ``"shared-target"``, ``"shared-both"``; on GPUs:
        ``"gpu"`` (both), ``"gpu-source"``, ``"gpu-target"``. Default, and for arrays on the GPU in an SDFG: as in the
        SDFG, else ordinary.
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
        problems = _problems(what, symbols, where, memory)
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


def _problems(what: Any, symbols: Any, where: Any, memory: str | None) -> dict[tuple[str, ...], Problem]:
    """Return the problems to tune, each once, by the labels of its nodes."""
    if memory is not None:
        check_memory(memory)
    if isinstance(what, Schedule):
        if symbols is not None or where is not None:
            raise TypeError("symbols and where are for an SDFG, but a schedule is to be tuned")
        if not what.transform.is_copy:
            raise ValueError(
                f"tune takes schedules that only move elements, and this one computes with them "
                f"({what.transform.operation_text}): Auto takes the default strategy for it, whatever is recorded"
            )
        return {(): Problem(what, memory or "ordinary")}
    if not isinstance(what, SDFG):
        raise TypeError(
            f"tune takes a schedule, made by dace_redist.schedule(source, target), or an SDFG, got {what!r}"
        )
    found: dict[tuple[str, ...], tuple[tuple[str, ...], Problem]] = {}
    for label, problem in problems_of(what, symbols, where, memory):
        key = tuple(problem.identity.values())
        labels, first = found.get(key, ((), problem))
        found[key] = ((*labels, label), first)
    return dict(found.values())
