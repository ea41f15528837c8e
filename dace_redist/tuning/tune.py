"""The tuner: measures strategies and options for redistributions and records the winners. Start: tune."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mpi4py import MPI

from dace_redist.mpi.collective_errors import check_same, together
from dace_redist.mpi.topology import topology_of
from dace_redist.redistribution.plan_cache import forget_choices
from dace_redist.selection.problem_key import Problem
from dace_redist.selection.record import Record, make_entry
from dace_redist.selection.record_path import record_path
from dace_redist.selection.selection import check_ranks
from dace_redist.tuning.candidates import space
from dace_redist.tuning.progress import progress_bar
from dace_redist.tuning.search import Search, TunedProblem


@dataclasses.dataclass(frozen=True)
class Tuning:
    """
    What :func:`tune` found; printed, it is a report.

    :param problems: One per redistribution that is not the same as another.
    :param record: The file that now holds the winners.
    """

    problems: tuple[TunedProblem, ...]
    record: Path

    def __str__(self) -> str:
        """All problems with their candidates, and where the winners are kept."""
        return "\n\n".join([*map(str, self.problems), f"recorded in {self.record}"])

    def to_json(self) -> dict[str, Any]:
        """The same as plain numbers, lists and dictionaries."""
        return {
            "record": str(self.record),
            "problems": [
                {
                    "nodes": list(tuned.labels),
                    **tuned.problem.identity,
                    "shape": list(tuned.problem.schedule.shape),
                    "winner": tuned.winner.model_dump(),
                    "measured": [candidate.model_dump() for candidate in tuned.measured],
                }
                for tuned in self.problems
            ],
        }


def tune(
    problems: Mapping[tuple[str, ...], Problem],
    *,
    comm: Any = None,
    strategies: Sequence[str] | None = None,
    options: Mapping[str, Sequence[Any]] | None = None,
    record: str | os.PathLike[str] | None = None,
    limit_seconds: float = 60.0,
    precision: float = 0.05,
    progress: bool = True,
) -> Tuning:
    """
    Measures strategies and options for redistributions, and records the winners. Collective over ``comm``.

    :param problems: What to tune, by the labels of the nodes that it stands for: none for a redistribution by itself.

    Everything else: see :func:`dace_redist.tune`, which takes schedules and SDFGs.
    """
    comm = checked_communicator(comm)
    with together(comm):
        tried = space(strategies, options)
        _check_numbers(limit_seconds, precision)
        for problem in problems.values():
            check_ranks(problem.schedule, comm.size)
        file = Record(record_path(record))
        if comm.rank == 0:
            file.check_writable()
    facts = [(labels, problem.identity) for labels, problem in problems.items()]
    for name, value in (("what they tune", facts), ("what they try", tried), ("limit_seconds", limit_seconds)):
        check_same(comm, name, value)
    topology, found = topology_of(comm), []
    for labels, problem in problems.items():
        search = Search(problem, comm, topology, tried, limit_seconds, precision)
        with progress_bar(progress and comm.rank == 0, ", ".join(labels) or "tune", limit_seconds) as search.show:
            tuned = search.run(labels)
        with together(comm):
            if comm.rank == 0:
                now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
                file.add(make_entry(problem, topology, tuned.winner, tuned.measured, now))
        found.append(tuned)
    forget_choices(comm)
    return Tuning(tuple(found), comm.bcast(file.path))


def checked_communicator(comm: Any) -> Any:
    """
    ``comm``, or mpi4py's world in the place of None.

    :raises TypeError: If it is no mpi4py intra-communicator of this rank.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise TypeError(f"comm must be an mpi4py intra-communicator of this rank, got {comm!r}")
    return comm


def _check_numbers(limit_seconds: Any, precision: Any) -> None:
    for name, value in (("limit_seconds", limit_seconds), ("precision", precision)):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} must be a number, got {value!r}")
        if not 0 < value < float("inf"):
            raise ValueError(f"{name} must be positive, got {value}")
