"""
Searches the fastest candidate for one redistribution. Start reading at: Search.run.

It goes in rounds: all strategies with default options, then one option after another of those that were not much
slower than the best, then the best of each against each other.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution
from dace_redist.errors import RedistributionError
from dace_redist.mpi.collective_errors import together
from dace_redist.mpi.topology import Topology
from dace_redist.redistribution.plan import ArrayPlan
from dace_redist.redistribution.shared_arrays import empty, is_shared
from dace_redist.report.text import header
from dace_redist.selection.problem_key import Problem
from dace_redist.selection.record import Measured, Winner
from dace_redist.strategies import find_strategy
from dace_redist.tuning.candidates import Space
from dace_redist.tuning.measure import Figure, measure

#: Strategies that surely take this many times as long as the best are not looked at further.
HOPELESS = 2.0
#: Candidates that seem to take this many times as long after three runs are run no more; so few runs may deceive.
_AT_ONCE = 4.0
#: An option is changed for one that takes less than this part of the time: two runs of the same code differ as well.
BETTER = 0.97

#: Candidates that seem to take at most this many times as long as the best meet in the last round.
CLOSE = 1.3

_FIRST, _LAST = 0.3, 0.4  # parts of the time for the first and the last round; the rest is for the options


#: Takes the candidate at work and the seconds measured so far.
Show = Callable[[str, float], None]


@dataclasses.dataclass(frozen=True)
class TunedProblem:
    """
    What was found for one redistribution.

    :param labels: The nodes of an SDFG that it stands for; none for a redistribution by itself.
    :param problem: The redistribution, and where its arrays lie.
    :param winner: The fastest candidate of the last round.
    :param measured: The candidates of all rounds, in each the fastest first, those that could not run last.
    """

    labels: tuple[str, ...]
    problem: Problem
    winner: Winner
    measured: tuple[Measured, ...]

    def __str__(self) -> str:
        """The redistribution, and a table of the candidates of each round with their times over the best of it."""
        width = max(len(Winner.__str__(candidate)) for candidate in self.measured)
        lines = [f"node      {', '.join(self.labels)}"] if self.labels else []
        lines += [*header(self.problem.schedule), f"memory    {self.problem.memory}", f"winner    {self.winner}"]
        for name, candidates in itertools.groupby(self.measured, key=lambda candidate: candidate.round):
            entries = list(candidates)
            lines += [
                f"{name}:",
                *(f"  {candidate!s:<{width}}  {_times(candidate, entries[0])}" for candidate in entries),
            ]
        return "\n".join(lines)


def _times(candidate: Measured, best: Measured) -> str:
    if candidate.median_seconds is None or candidate.low_seconds is None or candidate.high_seconds is None:
        return f"cannot: {candidate.note}"
    median, low, high = (1e3 * s for s in (candidate.median_seconds, candidate.low_seconds, candidate.high_seconds))
    ratio = f"{candidate.median_seconds / best.median_seconds:6.2f} x" if best.median_seconds else ""
    return f"{median:9.4g} ms [{low:.4g}, {high:.4g}] {ratio}  {candidate.repetitions} runs"


class Search:
    """
    The search for the fastest candidate of one redistribution. All its methods are collective.

    :param problem: The redistribution, and where its arrays lie.
    :param comm: Communicator to measure on.
    :param topology: Where that is.
    :param tried: What to try.
    :param limit_seconds: Time for all measurements.
    :param precision: How certain medians must be.
    """

    show: Show

    def __init__(
        self,
        problem: Problem,
        comm: MPI.Intracomm,
        topology: Topology,
        tried: Space,
        limit_seconds: float,
        precision: float,
    ) -> None:
        self._problem, self._schedule, self._comm, self._topology, self._tried = (
            problem,
            problem.schedule,
            comm,
            topology,
            tried,
        )
        self._limit, self._precision = limit_seconds, precision
        self._spent = 0.0
        self._measured: list[Measured] = []
        self._ratio: dict[str, float] = {}

    def run(self, labels: tuple[str, ...]) -> TunedProblem:
        """Searches; the result is the same on every rank."""
        with together(self._comm):
            self._array = self._allocated(self._schedule.source, ("shared-source", "shared-both"))
            self._out = self._allocated(self._schedule.target, ("shared-target", "shared-both"))
        first = self._race("all strategies", self._tried.first(self._topology), _FIRST * self._limit)
        if not first:
            reasons = "; ".join(f"{candidate}: {candidate.note}" for candidate in self._measured)
            raise RuntimeError(f"tune: no strategy can move {self._problem}: {reasons}")
        least = min(figure.median for _, figure in first)
        self._ratio = {str(candidate): figure.median / least for candidate, figure in first}
        hopeful = [candidate for candidate, figure in first if figure.low <= HOPELESS * least]
        hopeful.sort(key=self._time)
        finalists = self._finalists([*hopeful, *self._vary(hopeful)])
        last = self._race("the best of each", finalists, _LAST * self._limit) or first
        return TunedProblem(labels, self._problem, min(last, key=lambda pair: pair[1].median)[0], tuple(self._measured))

    def _time(self, candidate: Winner) -> float:
        """How many times as long as the best of the first round a candidate takes, as far as is known."""
        return self._ratio[str(candidate)]

    def _finalists(self, candidates: Sequence[Winner]) -> list[Winner]:
        """Those that may be the fastest, and the first: who was the fastest once among many may have been lucky."""
        distinct = {str(candidate): candidate for candidate in candidates}
        most = max(CLOSE * min(map(self._time, candidates)), self._time(candidates[0]))
        return [candidate for candidate in distinct.values() if self._time(candidate) <= most]

    def _allocated(self, distribution: AnyDistribution, shared: tuple[str, ...]) -> npt.NDArray[Any]:
        """The part of one side that this rank has; every page of it is touched."""
        shape = distribution.local_shape(self._comm.rank)
        if self._problem.memory not in shared:
            return np.ones(shape, self._schedule.dtype)
        array = empty(shape, self._schedule.dtype, self._comm)
        if not is_shared(array):  # empty() has said what was needed and what there is
            raise RuntimeError(f"tune: there is too little node-shared memory for {self._problem}")
        array.fill(1)
        return array

    def _vary(self, hopeful: Sequence[Winner]) -> list[Winner]:
        """The best options found for each strategy, the most hopeful one first."""
        steps = [(i, option) for i, best in enumerate(hopeful) for option in find_strategy(best.strategy).options]
        steps = [(i, option) for i, option in steps if self._variants(hopeful[i], option)]
        best, until = list(hopeful), (1 - _LAST) * self._limit
        for done, (i, option) in enumerate(steps):
            left = self._comm.bcast((until - self._spent) / (len(steps) - done))
            if left <= 0:
                break
            raced = self._race(f"{option} of {best[i]}", [best[i], *self._variants(best[i], option)], left)
            best[i] = self._clearly_fastest(raced, best[i])
        return best

    def _clearly_fastest(self, raced: Sequence[tuple[Winner, Figure]], before: Winner) -> Winner:
        """The candidate of the least median, if that is clearly less than that of the one before."""
        medians = {str(candidate): figure.median for candidate, figure in raced}
        if str(before) not in medians:
            return before
        winner = min((candidate for candidate, _ in raced), key=lambda candidate: medians[str(candidate)])
        if medians[str(winner)] >= BETTER * medians[str(before)]:
            return before
        self._ratio[str(winner)] = self._time(before) * medians[str(winner)] / medians[str(before)]
        return winner

    def _variants(self, best: Winner, option: str) -> list[Winner]:
        return self._tried.varied(best, option, self._schedule, self._topology)

    def _race(self, name: str, candidates: Sequence[Winner], seconds: float) -> list[tuple[Winner, Figure]]:
        """Measures candidates against each other in a round; those that cannot run are noted and left out."""
        running: dict[str, tuple[Winner, ArrayPlan]] = {}
        failed: list[Measured] = []
        may_compile, begin = not self._measured, time.monotonic()
        try:
            for candidate in candidates:
                started = self._started(candidate)
                if isinstance(started, ArrayPlan):
                    running[str(candidate)] = (candidate, started)
                else:
                    failed.append(Measured(**candidate.model_dump(), round=name, note=started))
            if not running:
                self._measured += failed
                return []
            begin = time.monotonic() if may_compile else begin
            figures = measure(
                {name: move for name, (_, move) in running.items()},
                self._comm,
                warmup=1,
                settle=1,
                precision=self._precision,
                limit_seconds=max(seconds, 1e-3),
                drop_slower_than=_AT_ONCE,
                progress=lambda now, *_: self.show(now, self._spent + time.monotonic() - begin),
            )
            self._spent += time.monotonic() - begin
        finally:
            for _, move in running.values():
                move.free()
        raced = [(running[key][0], figure) for key, figure in figures.items()]
        ordered = sorted(raced, key=lambda pair: pair[1].median)
        self._measured += [*(_as_measured(candidate, figure, name) for candidate, figure in ordered), *failed]
        return raced

    def _started(self, candidate: Winner) -> ArrayPlan | str:
        """A candidate with its plan made and run once, or why a rank cannot run it."""
        self.show(f"starting {candidate}", self._spent)
        source, target = self._schedule.source, self._schedule.target
        wanted: dict[str, Any] = {"strategy": candidate.strategy, **candidate.options}
        try:
            move = ArrayPlan(self._array, source, target, comm=self._comm, out=self._out, **wanted)
            measure({str(candidate): move}, self._comm, warmup=0, least=1, most=1)  # fails on all ranks or on none
        except RedistributionError as error:  # on every rank, of which each says it in its own words
            return str(self._comm.bcast(" ".join(str(error).removeprefix("plan: ").split())))
        except RuntimeError as error:
            return " ".join(str(error).removeprefix("measure: ").split())  # what MPI holds of the plan is not known
        return move


def _as_measured(candidate: Winner, figure: Figure, name: str) -> Measured:
    return Measured(
        **candidate.model_dump(),
        round=name,
        median_seconds=figure.median,
        low_seconds=figure.low,
        high_seconds=figure.high,
        repetitions=len(figure.seconds),
    )
