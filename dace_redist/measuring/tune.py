"""The tuner: measures strategies and options for redistributions and records the winners. Start: tune_problems."""

from __future__ import annotations

import dataclasses
import itertools
import numbers
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dace_redist.measuring.measure import progress_bar
from dace_redist.measuring.search import Search, space
from dace_redist.mpi.collective import check_same, checked_communicator, together
from dace_redist.mpi.launch import check_both_ranks
from dace_redist.redistribution.cache import forget_choices
from dace_redist.report.text import header
from dace_redist.report.units import milliseconds, table
from dace_redist.tuning.auto import topology_for
from dace_redist.tuning.problem import TuningProblem
from dace_redist.tuning.record import Measured, Record, Winner, make_entry


@dataclasses.dataclass(frozen=True)
class TunedProblem:
    """
    The result for one redistribution: the fastest candidate of the last round, and the candidates of all rounds.

    :param labels: Labels of its nodes in an SDFG; none for a redistribution by itself.
    :param measured: In each round the fastest first, those that could not run last.
    """

    labels: tuple[str, ...]
    problem: TuningProblem
    winner: Winner
    measured: tuple[Measured, ...]

    def __str__(self) -> str:
        """The redistribution, a table of the candidates of each round, and the winner."""
        lines = [f"node      {', '.join(self.labels)}"] if self.labels else []
        lines += [*header(self.problem.schedule), f"memory    {self.problem.memory}"]
        timed = list[Measured]()
        for name, candidates in itertools.groupby(self.measured, key=lambda candidate: candidate.round):
            every = list(candidates)
            timed = [one for one in every if one.median_seconds is not None]
            lines += [f"{name}:", *(table([_row(one, timed[0]) for one in timed], left=1) if timed else [])]
            lines += [f"  {one}  cannot: {one.note}" for one in every if one.median_seconds is None]
        slower = [one for one in timed if one.strategy != self.winner.strategy]
        ahead = f", {_ratio(slower[0], timed[0]):.2f} times as fast as {slower[0]}" if slower else ""
        return "\n".join([*lines, f"winner    {self.winner}{ahead}"])

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries."""
        return {
            "nodes": list(self.labels),
            **self.problem.identity,
            "shape": list(self.problem.schedule.shape),
            "winner": self.winner.model_dump(),
            "measured": [candidate.model_dump() for candidate in self.measured],
        }


def _ratio(candidate: Measured, best: Measured) -> float:
    return (candidate.median_seconds or 0.0) / (best.median_seconds or 1.0)


def _row(candidate: Measured, best: Measured) -> tuple[str, ...]:
    seconds = (candidate.median_seconds, candidate.low_seconds, candidate.high_seconds)
    median, low, high = (milliseconds(each or 0.0) for each in seconds)
    times = f"{_ratio(candidate, best):.2f} x"
    return f"  {candidate}", f"{median} ms [{low}, {high}]", times, f"{candidate.repetitions} runs"


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The results of :func:`tune_problems` for each distinct redistribution, and the file that holds the winners."""

    problems: tuple[TunedProblem, ...]
    record: Path

    def __str__(self) -> str:
        """All problems with their candidates, and where the winners are kept."""
        return "\n\n".join([*map(str, self.problems), f"recorded in {self.record}"])

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries."""
        return {"record": str(self.record), "problems": [tuned.to_json() for tuned in self.problems]}


def tune_problems(
    problems: Mapping[tuple[str, ...], TuningProblem],
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
    Measure strategies and options for redistributions, and record the winners. Collective over ``comm``.

    :param problems: Redistributions by the labels of their nodes in an SDFG: none for a redistribution by itself.

    The other parameters are those of :func:`dace_redist.tune`.
    """
    comm = checked_communicator(comm)
    with together(comm):
        tried = {problem.memory: space(strategies, options, problem.memory) for problem in problems.values()}
        _check_numbers(limit_seconds, precision)
        for problem in problems.values():
            check_both_ranks(problem.schedule, comm.size)
        file = Record(record)
        if comm.rank == 0:
            file.check_writable()
    facts = [(labels, problem.identity) for labels, problem in problems.items()]
    check_same(comm, {"what they tune": facts, "what they try": tried, "limit_seconds": limit_seconds})
    topology, found = topology_for(problems.values(), comm), []
    for labels, problem in problems.items():
        with progress_bar(progress and comm.rank == 0, ", ".join(labels) or "tune", limit_seconds) as show:
            search = Search(problem, comm, topology, tried[problem.memory], limit_seconds, precision, show)
            winner, measured = search.run()
        with together(comm):
            if comm.rank == 0:
                file.add(make_entry(problem, topology, winner, measured))
        found.append(TunedProblem(labels, problem, winner, measured))
    forget_choices(comm)
    return Tuning(tuple(found), comm.bcast(file.path))


def _check_numbers(limit_seconds: Any, precision: Any) -> None:
    for name, value in (("limit_seconds", limit_seconds), ("precision", precision)):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(f"{name} must be a number, got {value!r}")
        if not 0 < float(value) < float("inf"):
            raise ValueError(f"{name} must be positive, got {value}")
