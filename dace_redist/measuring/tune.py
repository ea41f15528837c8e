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
from dace_redist.strategies import DEFAULT_STRATEGY
from dace_redist.tuning.auto import topology_for
from dace_redist.tuning.problem import TuningProblem
from dace_redist.tuning.record import Measured, Record, Winner, make_entry


@dataclasses.dataclass(frozen=True)
class TunedProblem:
    """
    The result for one redistribution: the fastest candidate of the last round, and the candidates of all rounds.

    :param labels: Labels of its nodes in an SDFG; none for a redistribution by itself.
    :param measured: In each round the fastest first, those that could not run last.
    :param default: The strategy that does what the default one does on these nodes.
    """

    labels: tuple[str, ...]
    problem: TuningProblem
    winner: Winner
    measured: tuple[Measured, ...]
    default: str = DEFAULT_STRATEGY

    @property
    def rival(self) -> Measured | None:
        """The default in the last round, or, if that won or is not there, the best candidate of another strategy."""
        last = [one for one in self.measured if one.round == self.measured[-1].round and one.median_seconds is not None]
        others = [one for one in last if str(one) != str(self.winner)]
        default = (one for one in others if self._is_default(one))
        return next(default, next((one for one in others if one.strategy != self.winner.strategy), None))

    @property
    def decided(self) -> bool:
        """False if the intervals of the winner and its rival overlap; the winner is not recorded then."""
        winner = next(one for one in reversed(self.measured) if str(one) == str(self.winner))
        return self.rival is None or (winner.high_seconds or 0.0) < (self.rival.low_seconds or 0.0)

    def __str__(self) -> str:
        """The redistribution, a table of the candidates of each round, and the winner."""
        lines = [f"node      {', '.join(self.labels)}"] if self.labels else []
        lines += [*header(self.problem.schedule), f"memory    {self.problem.memory}"]
        for name, candidates in itertools.groupby(self.measured, key=lambda candidate: candidate.round):
            every = list(candidates)
            timed = [one for one in every if one.median_seconds is not None]
            rows = [self._row(one, timed[0]) for one in timed]
            lines += table([(f"{name}:", "median", "95 % of medians", "to the best", "runs"), *rows], left=1)
            lines += [f"  {one}  cannot: {one.note}" for one in every if one.median_seconds is None]
        if self.rival is None:
            return "\n".join([*lines, f"winner    {self.winner}"])
        rival = self._name(self.rival)
        if not self.decided:
            between = f"the intervals of {self.winner} and {rival} overlap; it is not recorded"
            return "\n".join([*lines, f"winner    not decided (machine busy?): {between}"])
        ahead = f"{_ratio(self.rival, timed[0]):.2f} times as fast as {rival}"
        return "\n".join([*lines, f"winner    {self.winner}, {ahead}"])

    def _is_default(self, candidate: Measured) -> bool:
        return candidate.strategy == self.default and not candidate.options

    def _name(self, candidate: Measured) -> str:
        return f"{candidate} (default)" if self._is_default(candidate) else str(candidate)

    def _row(self, candidate: Measured, best: Measured) -> tuple[str, ...]:
        seconds = (candidate.median_seconds, candidate.low_seconds, candidate.high_seconds)
        median, low, high = (milliseconds(each or 0.0) for each in seconds)
        times = f"{_ratio(candidate, best):.2f} x"
        return f"  {self._name(candidate)}", f"{median} ms", f"[{low}, {high}]", times, str(candidate.repetitions)

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries."""
        return {
            "nodes": list(self.labels),
            **self.problem.identity,
            "shape": list(self.problem.schedule.shape),
            "winner": self.winner.model_dump(),
            "decided": self.decided,
            "measured": [candidate.model_dump() for candidate in self.measured],
        }


def _ratio(candidate: Measured, best: Measured) -> float:
    return (candidate.median_seconds or 0.0) / (best.median_seconds or 1.0)


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The results of :func:`tune_problems` for each distinct redistribution, and the file of the record."""

    problems: tuple[TunedProblem, ...]
    record: Path

    def __str__(self) -> str:
        """All problems with their candidates, and where the winners are kept."""
        end = f"recorded in {self.record}" if any(one.decided for one in self.problems) else "nothing recorded"
        return "\n\n".join([*map(str, self.problems), end])

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
    Measure strategies and options for redistributions, and record winners. Collective over ``comm``.

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
            tuned = TunedProblem(labels, problem, *search.run(), search.tried.default(topology))
        with together(comm):
            if comm.rank == 0 and tuned.decided:
                file.add(make_entry(problem, topology, tuned.winner, tuned.measured))
        found.append(tuned)
    forget_choices(comm)
    return Tuning(tuple(found), comm.bcast(file.path))


def _check_numbers(limit_seconds: Any, precision: Any) -> None:
    for name, value in (("limit_seconds", limit_seconds), ("precision", precision)):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(f"{name} must be a number, got {value!r}")
        if not 0 < float(value) < float("inf"):
            raise ValueError(f"{name} must be positive, got {value}")
