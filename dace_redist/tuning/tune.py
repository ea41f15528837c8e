"""The tuner: measures strategies and options for redistributions and records the winners. Start reading at: tune."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mpi4py import MPI

from dace_redist.mpi.collective_errors import check_same, together
from dace_redist.mpi.topology import place_of
from dace_redist.redistribution.plan_cache import forget_choices
from dace_redist.schedule import Schedule
from dace_redist.selection.problem_key import Case, check_memory
from dace_redist.selection.record import Record, make_entry, record_path
from dace_redist.selection.selection import check_ranks
from dace_redist.tuning.candidates import space
from dace_redist.tuning.progress import progress_bar
from dace_redist.tuning.search import Search, TunedCase


@dataclasses.dataclass(frozen=True)
class Tuning:
    """
    What :func:`tune` found; printed, it is a report.

    :param cases: One per redistribution that is not the same as another.
    :param record: The file that now holds the winners.
    """

    cases: tuple[TunedCase, ...]
    record: Path

    def __str__(self) -> str:
        """All cases with their candidates, and where the winners are kept."""
        return "\n\n".join([*(str(case) for case in self.cases), f"recorded in {self.record}"])

    def to_json(self) -> dict[str, Any]:
        """The same as plain numbers, lists and dictionaries."""
        return {
            "record": str(self.record),
            "cases": [
                {
                    "nodes": list(case.labels),
                    **case.case.identity,
                    "shape": list(case.case.moves.shape),
                    "winner": case.winner.model_dump(),
                    "measured": [candidate.model_dump() for candidate in case.measured],
                }
                for case in self.cases
            ],
        }


def tune(
    what: Any,
    *,
    comm: Any = None,
    symbols: Mapping[str, int] | None = None,
    where: Any = None,
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
        ``"shared-source"``, ``"shared-target"`` or ``"shared-both"``. Default: as in the SDFG, else ordinary.
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
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise TypeError(f"comm must be an mpi4py intra-communicator of this rank, got {comm!r}")
    with together(comm):
        tried = space(strategies, options)
        _check_numbers(limit_seconds, precision)
        cases = _cases(what, symbols, where, memory)
        for _, case in cases:
            check_ranks(case.moves, comm.size)
        book = Record(record_path(record))
        if comm.rank == 0:
            book.check_writable()
    facts = [(labels, case.identity) for labels, case in cases]
    for name, value in (("what they tune", facts), ("what they try", tried), ("limit_seconds", limit_seconds)):
        check_same(comm, name, value)
    place, found = place_of(comm), []
    for labels, case in cases:
        search = Search(case, comm, place, tried, limit_seconds, precision)
        with progress_bar(progress and comm.rank == 0, ", ".join(labels) or "tune", limit_seconds) as search.show:
            tuned = search.run(labels)
        with together(comm):
            if comm.rank == 0:
                now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
                book.add(make_entry(case, place, tuned.winner, tuned.measured, now))
        found.append(tuned)
    forget_choices(comm)
    return Tuning(tuple(found), comm.bcast(book.path))


def _check_numbers(limit_seconds: Any, precision: Any) -> None:
    for name, value in (("limit_seconds", limit_seconds), ("precision", precision)):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} must be a number, got {value!r}")
        if not 0 < value < float("inf"):
            raise ValueError(f"{name} must be positive, got {value}")


def _cases(what: Any, symbols: Any, where: Any, memory: str | None) -> list[tuple[tuple[str, ...], Case]]:
    """Labels and cases of what is to be tuned, each case once."""
    if memory is not None:
        check_memory(memory)
    if isinstance(what, Schedule):
        if symbols is not None or where is not None:
            raise TypeError("symbols and where are for an SDFG, but a schedule is to be tuned")
        return [((), Case(what, memory or "ordinary"))]
    if not hasattr(what, "all_nodes_recursive"):
        raise TypeError(
            f"tune takes a schedule, made by dace_redist.schedule(source, target), or an SDFG, got {what!r}"
        )
    from dace_redist.transformations.redistribution.problems import cases_of

    found: dict[tuple[str, ...], tuple[tuple[str, ...], Case]] = {}
    for label, case in cases_of(what, symbols, where, memory):
        key = tuple(case.identity.values())
        labels, first = found.get(key, ((), case))
        found[key] = ((*labels, label), first)
    return list(found.values())
