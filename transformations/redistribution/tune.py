"""Tunes a redistribution by itself, or each one of an SDFG."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from dace import SDFG

from dace_redist.mpi.collective import checked_communicator, together
from dace_redist.redistribution.bench import BENCH
from dace_redist.schedule import Schedule
from dace_redist.transformations.redistribution.problems import problems_of
from dace_redist.transformations.redistribution.set_strategy import Where
from dace_redist.tuning.problem import Problem, check_memory
from dace_redist.tuning.tune import Tuning
from dace_redist.tuning.tune import tune as tune_problems


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
    Measures strategies and options for a redistribution, or for each one of an SDFG, and records the winner, which
    strategy ``"Auto"`` and :func:`dace_redist.choose_strategies` take from then on. Collective over ``comm``.

    Arrays are in C order. The winner holds for this redistribution, with arrays in this kind of memory, on this machine
    with this MPI and these ranks on these nodes.

    :param what: A schedule (``dace_redist.schedule(source, target, dtype=...)``), or an SDFG, which stays as it is.
    :param comm: mpi4py communicator to measure on; default: the world.
    :param symbols: Values of the symbols in an SDFG's sizes.
    :param where: Which of an SDFG's redistributions, as for :func:`dace_redist.set_strategy`; default: all.
    :param memory: Where the arrays lie: ``"ordinary"``, or which of them are as :func:`dace_redist.empty` makes them,
        ``"shared-source"``, ``"shared-target"`` or ``"shared-both"``; or on the GPUs of the ranks, ``"gpu"`` (both),
        ``"gpu-source"`` or ``"gpu-target"``. Default, and for arrays that an SDFG has on the GPU: as in the SDFG, else
        ordinary.
    :param strategies: Names of the strategies to try; default: all but stock DaCe's.
    :param options: Values to try for some options, as ``{"chunk_bytes": [1 << 20, 8 << 20]}``; for the others those of
        :data:`dace_redist.strategies.OPTIONS`.
    :param record: File to write the winners to; default: ``DACE_REDIST_RECORD``, else a file in the user's data folder.
    :param limit_seconds: Time for the measurements of one redistribution, > 0; compiling a strategy, once for all
        times, is not counted, and every candidate is run at least three times.
    :param precision: How certain medians must be, see :func:`dace_redist.tuning.measure.measure`.
    :param progress: Whether rank 0 shows on standard error how far it is.
    :return: What was found, the same on every rank; to be printed.
    :raises ValueError: On every rank, if something is unknown, out of range or not given, if the ranks ask for
        different things, or if the record is damaged or of another version.
    :raises TypeError: On every rank, if something is of the wrong type.
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
        BENCH,
        comm=comm,
        strategies=strategies,
        options=options,
        record=record,
        limit_seconds=limit_seconds,
        precision=precision,
        progress=progress,
    )


def _problems(what: Any, symbols: Any, where: Any, memory: str | None) -> dict[tuple[str, ...], Problem]:
    """What is to be tuned, each problem once, with the labels of all its nodes."""
    if memory is not None:
        check_memory(memory)
    if isinstance(what, Schedule):
        if symbols is not None or where is not None:
            raise TypeError("symbols and where are for an SDFG, but a schedule is to be tuned")
        if what.operation is not None:
            raise ValueError(
                f"tune takes schedules that only move elements, and this one computes with them ({what.operation}): "
                "Auto takes the default strategy for it, whatever is recorded"
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
