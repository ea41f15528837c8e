"""
Searches the fastest candidate for one redistribution. Start reading at: Search.run.

It goes in rounds: all strategies with default options, then one option after another of those that were not much
slower than the best, then the best of each against each other. Where there is a machine profile, strategies that the
cost model predicts to be slow are left out of the first round, unless the others take longer than predicted for them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from dace_redist.errors import RedistributionError
from dace_redist.measuring.candidates import Space
from dace_redist.measuring.measure import Clock, Figure, Show, measure, system_clock
from dace_redist.measuring.timed_plan import TimedPlan, new_arrays
from dace_redist.mpi.collective import together
from dace_redist.mpi.topology import Topology
from dace_redist.report.units import format_seconds
from dace_redist.strategies import find_strategy
from dace_redist.tuning.problem import Problem
from dace_redist.tuning.record import Measured, Winner

#: Strategies that surely take this many times as long as the best are not looked at further.
TOO_SLOW = 2.0
#: Candidates that seem to take this many times as long after three runs are run no more: the estimate is rough.
_DROPPED = 4.0
#: Minimum relative improvement by an option; smaller differences are noise.
BETTER = 0.97
#: Candidates that seem to take at most this many times as long as the best are in the last round.
CLOSE = 1.3
#: Strategies that are predicted to take more than this many times as long as the best are left for later, or out.
UNLIKELY = 2.0
#: First words of the note of a candidate that was left out.
NOT_MEASURED = "not measured"

_FIRST, _LAST = 0.3, 0.4  # parts of the time for the first and the last round; the rest is for the options

_Raced = list[tuple[Winner, Figure]]


@dataclasses.dataclass
class Search:
    """
    The search for the fastest candidate of one redistribution. All its methods are collective.

    :param limit_seconds: Time for all measurements.
    :param precision: Relative width of the medians' confidence intervals.
    :param predicted: Seconds that the cost model predicts for strategies; none: all are measured.
    """

    problem: Problem
    comm: Any
    topology: Topology
    tried: Space
    limit_seconds: float
    precision: float
    show: Show
    predicted: Mapping[str, float] = dataclasses.field(default_factory=dict)
    clock: Clock = system_clock

    def run(self) -> tuple[Winner, tuple[Measured, ...]]:
        """
        Return the fastest candidate of the last round, and those of all rounds, in each the fastest first.

        Candidates that could not run are last. A RuntimeError if none can. Equal on every rank.
        """
        self._spent, self._measured = 0.0, list[Measured]()
        with together(self.comm):
            self._arrays = new_arrays(self.problem, self.comm.rank)
        first = self._first_race()
        if not first:
            reasons = "; ".join(f"{candidate}: {candidate.note}" for candidate in self._measured)
            raise RuntimeError(f"tune: no strategy can move {self.problem}: {reasons}")
        least = min(figure.median for _, figure in first)
        self._ratio = {str(candidate): figure.median / least for candidate, figure in first}
        promising = [candidate for candidate, figure in first if figure.low <= TOO_SLOW * least]
        promising.sort(key=self._time)
        finalists = self._finalists([*promising, *self._vary(promising)])
        last = self._race("the best of each", finalists, _LAST * self.limit_seconds) or first
        return min(last, key=lambda pair: pair[1].median)[0], tuple(self._measured)

    def _first_race(self) -> _Raced:
        """Race the strategies with default options, those that are predicted to be the fastest first."""
        every, seconds = self.tried.first(self.topology), _FIRST * self.limit_seconds
        predicted = {str(candidate): self.predicted.get(candidate.strategy, 0.0) for candidate in every}
        most = UNLIKELY * min((one for one in predicted.values() if one), default=0.0)
        every.sort(key=lambda candidate: predicted[str(candidate)])
        likely = [candidate for candidate in every if predicted[str(candidate)] <= most]
        first = self._race("all strategies", likely, seconds)
        least = min((figure.median for _, figure in first), default=float("inf"))
        unlikely = every[len(likely) :]
        if any(predicted[str(candidate)] < least for candidate in unlikely):
            return self._race("all strategies again", every, seconds)
        for candidate in unlikely:
            note = f"{NOT_MEASURED}: predicted to take {format_seconds(predicted[str(candidate)])}"
            self._measured.append(_measured(candidate, "all strategies", note=note))
        return first

    def _time(self, candidate: Winner) -> float:
        """Time of a candidate relative to the best of the first round, as far as is known."""
        return self._ratio[str(candidate)]

    def _finalists(self, candidates: Sequence[Winner]) -> list[Winner]:
        """Those that may be the fastest, and the first: the fastest of many in one round may have been lucky."""
        distinct = {str(candidate): candidate for candidate in candidates}
        most = max(CLOSE * min(map(self._time, candidates)), self._time(candidates[0]))
        return [candidate for candidate in distinct.values() if self._time(candidate) <= most]

    def _vary(self, promising: Sequence[Winner]) -> list[Winner]:
        """The best options found for each strategy, the most promising one first."""
        steps = [(i, option) for i, best in enumerate(promising) for option in find_strategy(best.strategy).options]
        steps = [(i, option) for i, option in steps if self._variants(promising[i], option)]
        best, until = list(promising), (1 - _LAST) * self.limit_seconds
        for done, (i, option) in enumerate(steps):
            remaining = self.comm.bcast((until - self._spent) / (len(steps) - done))
            if remaining <= 0:
                break
            raced = self._race(f"{option} of {best[i]}", [best[i], *self._variants(best[i], option)], remaining)
            best[i] = self._clearly_fastest(raced, best[i])
        return best

    def _clearly_fastest(self, raced: _Raced, before: Winner) -> Winner:
        """The candidate of the smallest median, if that is clearly smaller than that of ``before``."""
        medians = {str(candidate): figure.median for candidate, figure in raced}
        if str(before) not in medians:
            return before
        winner = min((candidate for candidate, _ in raced), key=lambda candidate: medians[str(candidate)])
        if medians[str(winner)] >= BETTER * medians[str(before)]:
            return before
        self._ratio[str(winner)] = self._time(before) * medians[str(winner)] / medians[str(before)]
        return winner

    def _variants(self, best: Winner, option: str) -> list[Winner]:
        return self.tried.varied(best, option, self.problem.schedule, self.topology)

    def _race(self, name: str, candidates: Sequence[Winner], seconds: float) -> _Raced:
        """Measure candidates against each other in a round; those that cannot run are noted and left out."""
        running: dict[str, tuple[Winner, TimedPlan]] = {}
        failed: list[Measured] = []
        may_compile, begin = not self._measured, self.clock()
        try:
            for candidate in candidates:
                started = self._started(candidate)
                if isinstance(started, str):
                    failed.append(_measured(candidate, name, note=started))
                else:
                    running[str(candidate)] = (candidate, started)
            if may_compile:
                begin = self.clock()
            figures = measure(
                {key: plan for key, (_, plan) in running.items()},
                self.comm,
                warmup=1,
                settle=1,
                precision=self.precision,
                limit_seconds=max(seconds, 1e-3),
                drop_slower_than=_DROPPED,
                progress=lambda now: self.show(now, self._spent + self.clock() - begin),
                clock=self.clock,
            )
            self._spent += self.clock() - begin
        finally:
            for _, plan in running.values():
                plan.free()
        raced = [(running[key][0], figure) for key, figure in figures.items()]
        ordered = sorted(raced, key=lambda pair: pair[1].median)
        self._measured += [*(_measured(candidate, name, figure) for candidate, figure in ordered), *failed]
        return raced

    def _started(self, candidate: Winner) -> TimedPlan | str:
        """A candidate with its plan made and run once, or why a rank cannot run it."""
        self.show(f"starting {candidate}", self._spent)
        try:
            plan = TimedPlan(self.problem, candidate.strategy, candidate.options, self._arrays, self.comm)
            measure(
                {str(candidate): plan}, self.comm, warmup=0, least=1, most=1, clock=self.clock
            )  # fails on all or none
        except RedistributionError as error:  # on every rank, of which each says it in its own words
            return str(self.comm.bcast(" ".join(str(error).removeprefix("plan: ").split())))
        except RuntimeError as error:
            return " ".join(str(error).removeprefix("measure: ").split())  # what MPI holds of the plan is not known
        return plan


def _measured(candidate: Winner, round: str, figure: Figure | None = None, note: str = "") -> Measured:
    """Return the times of a candidate in a round, or why it has none."""
    one = Measured(**candidate.model_dump(), round=round, note=note)
    if figure is None:
        return one
    seconds = {f"{name}_seconds": getattr(figure, name) for name in ("median", "low", "high")}
    return one.model_copy(update=seconds | {"repetitions": len(figure.seconds)})
