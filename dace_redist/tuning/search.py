"""
Searches the fastest candidate for one redistribution. Start reading at: Search.run.

It goes in rounds: all strategies with default options, then one option after another of those that were not much
slower than the best, then the best of each against each other. Where there is a machine profile, strategies that the
cost model predicts to be slow are left out of the first round, unless the others take longer than predicted for them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution
from dace_redist.errors import RedistributionError
from dace_redist.mpi.collective_errors import together
from dace_redist.mpi.topology import Topology
from dace_redist.redistribution.device_arrays import DeviceArray
from dace_redist.redistribution.plan import ArrayPlan
from dace_redist.redistribution.shared_arrays import empty, is_shared
from dace_redist.selection.problem_key import Problem, sides_on_gpu
from dace_redist.selection.record import Measured, Winner
from dace_redist.strategies import find_strategy
from dace_redist.tuning.candidates import Space
from dace_redist.tuning.measure import Figure, measure

#: Strategies that surely take this many times as long as the best are not looked at further.
TOO_SLOW = 2.0
#: Candidates that seem to take this many times as long after three runs are run no more: the estimate is rough.
_DROPPED = 4.0
#: An option is changed for one that takes less than this part of the time: two runs of the same code differ as well.
BETTER = 0.97
#: Candidates that seem to take at most this many times as long as the best are in the last round.
CLOSE = 1.3
#: Strategies that are predicted to take more than this many times as long as the best are left for later, or out.
UNLIKELY = 2.0
#: How the note of a candidate begins that was left out.
NOT_MEASURED = "not measured"

_FIRST, _LAST = 0.3, 0.4  # parts of the time for the first and the last round; the rest is for the options


#: Takes the candidate at work and the seconds measured so far.
Show = Callable[[str, float], None]


@dataclasses.dataclass
class Search:
    """
    The search for the fastest candidate of one redistribution. All its methods are collective.

    :param problem: The redistribution, and where its arrays lie.
    :param comm: Communicator to measure on.
    :param topology: Which of its ranks share a node.
    :param tried: What to try.
    :param limit_seconds: Time for all measurements.
    :param precision: How certain medians must be.
    :param show: Shows how far it is.
    :param predicted: Seconds that the cost model predicts for strategies; none: all are measured.
    """

    problem: Problem
    comm: MPI.Intracomm
    topology: Topology
    tried: Space
    limit_seconds: float
    precision: float
    show: Show
    predicted: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def run(self) -> tuple[Winner, tuple[Measured, ...]]:
        """
        Searches.

        :return: The fastest candidate of the last round; and the candidates of all rounds, in each the fastest first,
            those that could not run last. The same on every rank.
        """
        self._spent, self._measured = 0.0, list[Measured]()
        schedule = self.problem.schedule
        with together(self.comm):
            source_on_gpu, target_on_gpu = sides_on_gpu(self.problem.memory)
            self._array = self._allocated(schedule.source, ("shared-source", "shared-both"), source_on_gpu)
            self._out = self._allocated(schedule.target, ("shared-target", "shared-both"), target_on_gpu)
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

    def _first_race(self) -> list[tuple[Winner, Figure]]:
        """The strategies with default options, those that are predicted to be the fastest first."""
        every, seconds = self.tried.first(self.topology), _FIRST * self.limit_seconds
        predicted = {str(candidate): self.predicted.get(candidate.strategy, 0.0) for candidate in every}
        most = UNLIKELY * min((one for one in predicted.values() if one), default=0.0)
        every.sort(key=lambda candidate: predicted[str(candidate)])
        likely = [candidate for candidate in every if predicted[str(candidate)] <= most]
        first = self._race("all strategies", likely, seconds)
        least = min((figure.median for _, figure in first), default=float("inf"))
        left = [candidate for candidate in every if predicted[str(candidate)] > most]
        if any(predicted[str(candidate)] < least for candidate in left):
            return self._race("all strategies again", every, seconds)
        for candidate in left:
            note = f"{NOT_MEASURED}: predicted to take {1e3 * predicted[str(candidate)]:.3g} ms"
            self._measured.append(Measured(**candidate.model_dump(), round="all strategies", note=note))
        return first

    def _time(self, candidate: Winner) -> float:
        """How many times as long as the best of the first round a candidate takes, as far as is known."""
        return self._ratio[str(candidate)]

    def _finalists(self, candidates: Sequence[Winner]) -> list[Winner]:
        """Those that may be the fastest, and the first: who was the fastest once among many may have been lucky."""
        distinct = {str(candidate): candidate for candidate in candidates}
        most = max(CLOSE * min(map(self._time, candidates)), self._time(candidates[0]))
        return [candidate for candidate in distinct.values() if self._time(candidate) <= most]

    def _allocated(
        self, distribution: AnyDistribution, shared: tuple[str, ...], on_gpu: bool
    ) -> npt.NDArray[Any] | DeviceArray:
        """The part of one side that this rank has; every page of it is touched."""
        shape, dtype = distribution.local_shape(self.comm.rank), self.problem.schedule.dtype
        if on_gpu:
            return DeviceArray.from_numpy(np.ones(shape, dtype))
        if self.problem.memory not in shared:
            return np.ones(shape, dtype)
        array = empty(shape, dtype, self.comm)
        if not is_shared(array):  # empty() has said what was needed and what there is
            raise RuntimeError(f"tune: there is too little node-shared memory for {self.problem}")
        array.fill(1)
        return array

    def _vary(self, promising: Sequence[Winner]) -> list[Winner]:
        """The best options found for each strategy, the most promising one first."""
        steps = [(i, option) for i, best in enumerate(promising) for option in find_strategy(best.strategy).options]
        steps = [(i, option) for i, option in steps if self._variants(promising[i], option)]
        best, until = list(promising), (1 - _LAST) * self.limit_seconds
        for done, (i, option) in enumerate(steps):
            left = self.comm.bcast((until - self._spent) / (len(steps) - done))
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
        return self.tried.varied(best, option, self.problem.schedule, self.topology)

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
            if may_compile:
                begin = time.monotonic()
            figures = measure(
                {key: plan for key, (_, plan) in running.items()},
                self.comm,
                warmup=1,
                settle=1,
                precision=self.precision,
                limit_seconds=max(seconds, 1e-3),
                drop_slower_than=_DROPPED,
                progress=lambda now, *_: self.show(now, self._spent + time.monotonic() - begin),
            )
            self._spent += time.monotonic() - begin
        finally:
            for _, plan in running.values():
                plan.free()
        raced = [(running[key][0], figure) for key, figure in figures.items()]
        ordered = sorted(raced, key=lambda pair: pair[1].median)
        self._measured += [*(_as_measured(candidate, figure, name) for candidate, figure in ordered), *failed]
        return raced

    def _started(self, candidate: Winner) -> ArrayPlan | str:
        """A candidate with its plan made and run once, or why a rank cannot run it."""
        self.show(f"starting {candidate}", self._spent)
        moved = self.problem.schedule
        wanted: dict[str, Any] = {"strategy": candidate.strategy, **candidate.options}
        wanted |= {"axes": moved.index_map.axes, "region": moved.index_map.region}
        try:
            plan = ArrayPlan(self._array, moved.source, moved.target, comm=self.comm, out=self._out, **wanted)
            measure({str(candidate): plan}, self.comm, warmup=0, least=1, most=1)  # fails on all ranks or on none
        except RedistributionError as error:  # on every rank, of which each says it in its own words
            return str(self.comm.bcast(" ".join(str(error).removeprefix("plan: ").split())))
        except RuntimeError as error:
            return " ".join(str(error).removeprefix("measure: ").split())  # what MPI holds of the plan is not known
        return plan


def _as_measured(candidate: Winner, figure: Figure, name: str) -> Measured:
    return Measured(
        **candidate.model_dump(),
        round=name,
        median_seconds=figure.median,
        low_seconds=figure.low,
        high_seconds=figure.high,
        repetitions=len(figure.seconds),
    )
