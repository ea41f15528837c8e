"""
Searches the fastest candidate for one redistribution. Start reading at: Search.run.

It goes in rounds: all strategies with default options, then one option after another of those that were not much
slower than the best, then the best of each against each other.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from dace_redist.errors import RedistributionError
from dace_redist.measuring.measure import Clock, Figure, Show, measure, system_clock
from dace_redist.measuring.timed_plan import TimedPlan, new_arrays
from dace_redist.mpi.collective import together
from dace_redist.mpi.topology import Topology
from dace_redist.schedule import Schedule
from dace_redist.strategies import (
    DEFAULT_STRATEGY,
    OPTIONS,
    STRATEGIES,
    check_options,
    default_options,
    find_strategy,
    gpu_strategies,
)
from dace_redist.tuning.problem import MAIN_MEMORIES, TuningProblem, sides_on_gpu
from dace_redist.tuning.record import Measured, Winner


@dataclasses.dataclass(frozen=True)
class Space:
    """
    The candidates for tuning; made by :func:`space`.

    :param values: Values to try for each option, the default among them where that is to be tried.
    :param on_gpu: Whether an array lies on a GPU.
    """

    strategies: tuple[str, ...]
    values: Mapping[str, tuple[int | float, ...]]
    on_gpu: bool = False

    def first(self, topology: Topology) -> list[Winner]:
        """
        Return every strategy with its default options; with the first value where the default is not to be tried.

        On one node ``Hierarchical`` and ``Aggregated`` do what ``Shared`` does, and one is enough. On GPUs that holds
        for ``Hierarchical`` only, which has more options there.
        """
        kept = self.default(topology)
        alike = {"Hierarchical", "Shared"} if self.on_gpu else {"Hierarchical", "Shared", "Aggregated"}
        redundant = alike - {kept} if topology.node_count == 1 and kept in self.strategies else set()
        defaults, first = default_options(self.on_gpu), []
        for name in self.strategies:
            tried = {o: self.values[o] for o in find_strategy(name).options if self.values.get(o)}
            options = {option: values[0] for option, values in tried.items() if defaults[option] not in values}
            first += [] if name in redundant else [Winner(strategy=name, options=options)]
        return first

    def default(self, topology: Topology) -> str:
        """Return the strategy that does what the default one does; on one node one that has fewer options."""
        return "Shared" if topology.node_count == 1 and not self.on_gpu else DEFAULT_STRATEGY

    def varied(self, best: Winner, option: str, schedule: Schedule, topology: Topology) -> list[Winner]:
        """Return the best candidate so far with every other sensible value of one option of its strategy."""
        defaults = default_options(self.on_gpu)
        values = sensible(option, self.values.get(option, ()), schedule, topology, defaults[option])
        if option == "threads" and best.strategy != "Threaded":  # one is the default, and a GPU copies without
            values = () if self.on_gpu else tuple(value for value in values if value != 1)
        current = best.options.get(option, defaults[option])
        varied = ({**best.options, option: value} for value in values if value != current)
        return [
            Winner(strategy=best.strategy, options={k: v for k, v in options.items() if v != defaults[k]})
            for options in varied
        ]


def sensible(
    option: str, values: Sequence[int | float], schedule: Schedule, topology: Topology, usual: float
) -> tuple[int | float, ...]:
    """
    Return the values of an option that can change the time.

    Of sizes beyond the largest message, which are equivalent, one remains. Numbers of threads beyond a rank's share of
    the cores are left out, and that of ``OMP_NUM_THREADS``, which is the default.

    :param usual: The value if none is given.
    """
    if option.endswith("_bytes"):
        largest = max(schedule.totals.sizes, default=0) * schedule.itemsize
        whole = [value for value in values if value >= largest]
        alike = usual if usual in whole else min(whole, default=0)
        return tuple(value for value in values if value < largest or value == alike)
    if option == "threads":
        cores = os.cpu_count() or 1
        share, threads = max(1, cores // topology.ranks_per_node), os.environ.get("OMP_NUM_THREADS")
        return tuple(value for value in values if value <= share and str(value) != threads)
    return tuple(values)


def space(
    strategies: Sequence[str] | None, options: Mapping[str, Sequence[Any]] | None, memory: str = MAIN_MEMORIES[0]
) -> Space:
    """
    Return the candidates.

    :param strategies: Names of strategies; default: all that move such arrays.
    :param options: Values to try for some options, instead of those that :data:`dace_redist.strategies.OPTIONS` names.
    :param memory: Where the arrays lie, one of :data:`dace_redist.tuning.problem.MEMORIES`.
    :raises ValueError: If a strategy or an option is unknown, or a value out of range.
    :raises TypeError: If something is of the wrong type.
    """
    if isinstance(strategies, str):
        raise TypeError(f"strategies must be a list of names, got the string {strategies!r}")
    if not isinstance(options, Mapping | None):
        raise TypeError(f"options must be a dict of the values to try by option, got {options!r}")
    sides = sides_on_gpu(memory)
    known, on_gpu = gpu_strategies() if any(sides) else STRATEGIES, any(sides)
    names = tuple(known if strategies is None else dict.fromkeys(strategies))
    for name in names:
        if name == "Auto" or find_strategy(name).name not in known:
            raise ValueError(f"strategy {name} cannot be tuned with {memory} arrays; choose from {', '.join(known)}")
    if not names:
        raise ValueError(f"strategies is empty; choose from {', '.join(known)}")
    taken = [option for option in OPTIONS if any(option in STRATEGIES[name].options for name in names)]
    usual = default_options(on_gpu)
    values = {option: (usual[option], *OPTIONS[option].tuning) for option in taken if OPTIONS[option].tuning}
    for option, tried in (options or {}).items():
        if option not in taken:
            takers = f"none of {', '.join(names)} takes option {option!r}"
            raise ValueError(f"{takers}; they take {', '.join(taken) or 'none'}")
        if isinstance(tried, str) or not isinstance(tried, Sequence) or not tried:
            raise TypeError(f"options: {option} needs a list of values to try, got {tried!r}")
        of = next(STRATEGIES[name] for name in names if option in STRATEGIES[name].options)
        values[option] = tuple(dict.fromkeys(check_options(of, {option: value})[option] for value in tried))
    return Space(names, values, on_gpu)


#: Strategies slower than the best by this factor are not tuned further.
TOO_SLOW = 2.0
#: Candidates slower than the best by this factor are dropped after three runs, whose estimate is rough.
_DROPPED = 4.0
#: Minimum relative improvement by an option; smaller differences are noise.
BETTER = 0.97
#: Candidates within this factor of the best are in the last round.
CLOSE = 1.3

_FIRST, _LAST = 0.3, 0.4  # parts of the time for the first and the last round; the rest is for the options

_Raced = list[tuple[Winner, Figure]]


@dataclasses.dataclass
class Search:
    """
    The search for the fastest candidate of one redistribution. All its methods are collective.

    :param limit_seconds: Time for all measurements.
    :param precision: Relative width of the medians' confidence intervals.
    """

    problem: TuningProblem
    comm: Any
    topology: Topology
    tried: Space
    limit_seconds: float
    precision: float
    show: Show
    clock: Clock = system_clock

    def run(self) -> tuple[Winner, tuple[Measured, ...]]:
        """
        Return the fastest candidate of the last round, and those of all rounds, in each the fastest first.

        The default is in the last round, if it is among the candidates.

        Candidates that could not run are last. A RuntimeError if none can. Equal on every rank.
        """
        self._spent, self._measured = 0.0, list[Measured]()
        with together(self.comm):
            self._arrays = new_arrays(self.problem, self.comm.rank)
        first = self._race("all strategies", self.tried.first(self.topology), _FIRST * self.limit_seconds)
        if not first:
            reasons = "; ".join(f"{candidate}: {candidate.note}" for candidate in self._measured)
            raise RuntimeError(f"tune: no strategy can move {self.problem}: {reasons}")
        least = first[0][1].median
        self._ratio = {str(candidate): figure.median / least for candidate, figure in first}
        promising = [candidate for candidate, figure in first if figure.low <= TOO_SLOW * least]
        finalists = self._finalists([*promising, *self._vary(promising)])
        default = Winner(strategy=self.tried.default(self.topology), options={})
        if default not in finalists and str(default) in self._ratio:
            finalists.append(default)
        last = self._race("the best of each", finalists, _LAST * self.limit_seconds) or first
        return last[0][0], tuple(self._measured)

    def _finalists(self, candidates: Sequence[Winner]) -> list[Winner]:
        """Those that may be the fastest, and the first: the fastest of many in one round may have been lucky."""
        distinct = {str(candidate): candidate for candidate in candidates}
        most = max(CLOSE * min(self._ratio[name] for name in distinct), self._ratio[str(candidates[0])])
        return [candidate for name, candidate in distinct.items() if self._ratio[name] <= most]

    def _vary(self, promising: Sequence[Winner]) -> list[Winner]:
        """The best options found for each strategy, the most promising one first."""
        here = self.problem.schedule, self.topology
        steps = [(i, option) for i, best in enumerate(promising) for option in find_strategy(best.strategy).options]
        steps = [(i, option) for i, option in steps if self.tried.varied(promising[i], option, *here)]
        best, until = list(promising), (1 - _LAST) * self.limit_seconds
        for done, (i, option) in enumerate(steps):
            remaining = self.comm.bcast((until - self._spent) / (len(steps) - done))
            if remaining <= 0:
                break
            raced = self._race(
                f"{option} of {best[i]}", [best[i], *self.tried.varied(best[i], option, *here)], remaining
            )
            best[i] = self._clearly_fastest(raced, best[i])
        return best

    def _clearly_fastest(self, raced: _Raced, before: Winner) -> Winner:
        """The candidate of the smallest median, if that is clearly smaller than that of ``before``."""
        medians = {str(candidate): figure.median for candidate, figure in raced}
        if str(before) not in medians:
            return before
        winner = raced[0][0]
        if medians[str(winner)] >= BETTER * medians[str(before)]:
            return before
        self._ratio[str(winner)] = self._ratio[str(before)] * medians[str(winner)] / medians[str(before)]
        return winner

    def _race(self, name: str, candidates: Sequence[Winner], seconds: float) -> _Raced:
        """Measure candidates against each other in a round, the fastest first; those that cannot run are only noted."""
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
        raced = sorted(((running[key][0], one) for key, one in figures.items()), key=lambda pair: pair[1].median)
        self._measured += [*(_measured(candidate, name, figure) for candidate, figure in raced), *failed]
        return raced

    def _started(self, candidate: Winner) -> TimedPlan | str:
        """A candidate with its plan made and run once, or why a rank cannot run it."""
        self.show(f"starting {candidate}", self._spent)
        try:
            plan = TimedPlan(self.problem, candidate.strategy, candidate.options, self._arrays, self.comm)
            # fails on all or none
            measure({str(candidate): plan}, self.comm, warmup=0, least=1, most=1, clock=self.clock)
        except RedistributionError as error:  # on every rank, of which each says it in its own words
            return str(self.comm.bcast(" ".join(str(error).removeprefix("plan: ").split())))
        except RuntimeError as error:
            return " ".join(str(error).removeprefix("measure: ").split())  # what MPI holds of the plan is not known
        return plan


def _measured(candidate: Winner, round: str, figure: Figure | None = None, note: str = "") -> Measured:
    """Return the times of a candidate in a round, or why it has none."""
    times: dict[str, Any] = {} if figure is None else {"repetitions": len(figure.seconds)}
    times |= {f"{name}_seconds": getattr(figure, name, None) for name in ("median", "low", "high")}
    return Measured(**candidate.model_dump(), round=round, note=note, **times)
