"""Times strategies against each other, and against ``MPI_Alltoallw``. Start reading at: Race.run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpi4py import MPI

from dace_redist.errors import RedistributionError
from dace_redist.messages import Message
from dace_redist.mpi.collective import together
from dace_redist.report.progress import Show
from dace_redist.report.text import header
from dace_redist.report.units import milliseconds, table
from dace_redist.schedule import Schedule
from dace_redist.strategies import AUTO, DEFAULT_STRATEGY, STRATEGIES, find_strategy, gpu_strategies, with_options
from dace_redist.timing.measure import Figure, measure, system_clock
from dace_redist.timing.memories import PlacedSchedule
from dace_redist.timing.timed_plan import TimedPlan, new_arrays

_BASELINE = "MPI_Alltoallw"
#: Candidates that a verdict names at most, besides the fastest.
_NAMED = 3
#: A candidate that is slower than the best by this factor is dropped after three runs, whose estimate is rough.
_DROPPED = 4.0


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A strategy with options that are not at their defaults."""

    strategy: str
    options: Mapping[str, int | float] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return with_options(self.strategy, self.options)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """
    Times of strategies for one redistribution; printed, they are a table.

    :param placed: The redistribution.
    :param candidates: Candidates by name.
    :param phases: Times by the name of the candidate, of one phase or two: only times of one phase may be compared, and
        the last one counts.
    :param refused: Why other candidates cannot run, by their names.
    :param nodes: Labels of the nodes that carry it out in an SDFG.
    """

    placed: PlacedSchedule
    candidates: Mapping[str, Candidate]
    phases: Sequence[Mapping[str, Figure]]
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    nodes: tuple[str, ...] = ()

    @property
    def best(self) -> dict[str, Any]:
        """
        Keyword arguments of :func:`dace_redist.plan` and :func:`dace_redist.redistribute`, ``strategy`` and options:
        those of the fastest candidate; of the default strategy if it is not certain that another one is faster.
        """
        name, default = self._fastest(), self._last.get(DEFAULT_STRATEGY)
        if self._drifted() or (default is not None and default.low <= self._last[name].high):
            return {"strategy": AUTO}
        return {"strategy": self.candidates[name].strategy, **self.candidates[name].options}

    @property
    def _last(self) -> Mapping[str, Figure]:
        return self.phases[-1]

    def _fastest(self) -> str:
        return min((name for name in self._last if name != _BASELINE), key=lambda name: self._last[name].median)

    def _drifted(self) -> list[str]:
        """Return candidates whose intervals of two phases are disjoint: the machine was not the same in both."""
        first = self.phases[0]
        both = [name for name in self._last if name in first]
        return [n for n in both if first[n].low > self._last[n].high or self._last[n].low > first[n].high]

    def __str__(self) -> str:
        """The redistribution, a line for each candidate of each phase, the fastest first, and the verdict."""
        lines = [f"node      {', '.join(self.nodes)}"] if self.nodes else []
        lines += [*header(self.placed.schedule), f"memory    {self.placed.memory}"]
        for figures in self.phases:
            reference = figures.get(_BASELINE, figures.get(DEFAULT_STRATEGY))
            ranking = sorted(figures, key=lambda name, of=figures: of[name].median)  # type: ignore[misc]
            rows = [self._row(name, figures[name], reference) for name in ranking]
            lines += table([("", "median", "95 % of medians", "speed-up", "runs"), *rows], left=1)
        lines += [f"{name}  cannot: {reason}" for name, reason in self.refused.items()]
        return "\n".join([*lines, self.verdict])

    def _row(self, name: str, figure: Figure, reference: Figure | None) -> tuple[str, ...]:
        shown = f"{name} (default)" if name == DEFAULT_STRATEGY else name
        interval = f"[{milliseconds(figure.low)}, {milliseconds(figure.high)}]"
        speedup = f"{reference.median / figure.median:.2f}" if reference else "-"
        return shown, f"{milliseconds(figure.median)} ms", interval, speedup, str(len(figure.seconds))

    @property
    def verdict(self) -> str:
        """One line: the fastest strategy and its speed-up, or the candidates between which the times do not decide."""
        best, drifted = self._fastest(), self._drifted()
        if drifted:
            return f"not decided (machine busy?): the two intervals of {', '.join(drifted)} do not overlap"
        figure, others = self._last[best], [name for name in self._last if name != best]
        reference = _BASELINE if _BASELINE in others else DEFAULT_STRATEGY
        others.sort(key=lambda name: (name != reference, self._last[name].median))
        alike = [name for name in others if self._last[name].low <= figure.high]
        verdict = f"{best} is the fastest strategy"
        if alike:
            more = f" and {len(alike) - _NAMED} more" if len(alike) > _NAMED else ""
            verdict = f"not decided: the intervals of {best} and {', '.join(alike[:_NAMED])}{more} overlap"
        if reference in alike or reference not in others:
            return verdict
        ahead = f"{self._last[reference].median / figure.median:.2f} times as fast as {reference}"
        return f"{verdict}; {best} is {ahead}" if alike else f"{verdict}: {ahead}"

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries."""
        seconds = [
            {
                name: {"median": one.median, "low": one.low, "high": one.high, "repetitions": len(one.seconds)}
                for name, one in figures.items()
            }
            for figures in self.phases
        ]
        moved = self.placed.schedule
        facts = {"nodes": list(self.nodes), "dtype": str(moved.dtype), "shape": list(moved.shape)}
        times = {"before": seconds[:-1], "seconds": seconds[-1], "refused": dict(self.refused)}
        return {**facts, "memory": self.placed.memory, **times, "best": self.best, "verdict": self.verdict}


def strategies_for(strategies: Sequence[str] | None, placed: PlacedSchedule) -> list[str]:
    """
    Return names of strategies; None: of all that move such arrays.

    :raises ValueError: If one is unknown, or does not move such arrays.
    :raises TypeError: If it is no list.
    """
    if isinstance(strategies, str):
        raise TypeError(f"strategies must be a list of names, got the string {strategies!r}")
    known = gpu_strategies() if placed.on_gpu else tuple(STRATEGIES)
    names = list(known if strategies is None else dict.fromkeys(strategies))
    for name in names:
        if name == AUTO or find_strategy(name).name not in known:
            arrays = f"with {placed.memory} arrays"
            raise ValueError(f"strategy {name} cannot be measured {arrays}; choose from {', '.join(known)}")
    if not names:
        raise ValueError(f"strategies is empty; choose from {', '.join(known)}")
    return names


class Race:
    """
    Measures candidates for one redistribution, in phases. All its methods are collective over ``comm``.

    :param show: Takes the name of the candidate at work and the seconds measured so far.
    :raises RuntimeError: On every rank, if one has too little memory for arrays.
    """

    def __init__(self, placed: PlacedSchedule, comm: Any, show: Show) -> None:
        self.placed, self.comm = placed, comm
        self.refused: dict[str, str] = {}
        self._show, self._spent = show, 0.0
        with together(comm):
            self.arrays = new_arrays(placed, comm.rank)

    def run(self, candidates: Sequence[Candidate], limit_seconds: float, versus_mpi: bool = False) -> dict[str, Figure]:
        """
        Measure candidates by turns, and return their times by name, equal on every rank.

        :param limit_seconds: Time for measuring, without the time for making plans.
        :param versus_mpi: True to measure ``MPI_Alltoallw`` beside them, which takes no arrays on a GPU.
        :raises RuntimeError: On every rank, if no candidate can run, or one fails while it is measured.
        """
        plans: dict[str, TimedPlan] = {}
        baseline = Alltoallw(self.placed.schedule, self.comm) if versus_mpi and not self.placed.on_gpu else None
        try:
            for candidate in candidates:
                made = self._started(candidate)
                if isinstance(made, str):
                    self.refused[str(candidate)] = made
                else:
                    plans[str(candidate)] = made
            if not plans:
                reasons = "; ".join(f"{name}: {reason}" for name, reason in self.refused.items())
                raise RuntimeError(f"no strategy can move {self.placed.schedule.dtype} arrays here: {reasons}")
            methods: dict[str, Callable[[], None]] = {**plans}
            if baseline is not None:
                methods[_BASELINE] = functools.partial(baseline.run, *self.arrays)
            begin = system_clock() - self._spent
            figures = measure(
                methods,
                self.comm,
                settle=1,
                limit_seconds=limit_seconds,
                drop_slower_than=_DROPPED,
                apart=[_BASELINE],
                progress=lambda name: self._show(name, system_clock() - begin),
            )
            self._spent = system_clock() - begin
        finally:
            for plan in plans.values():
                plan.free()
            if baseline is not None:
                baseline.free()
        return figures

    def _started(self, candidate: Candidate) -> TimedPlan | str:
        """Return a candidate's plan, made and run once, or why a rank cannot run it."""
        self._show(f"starting {candidate}", self._spent)
        try:
            plan = TimedPlan(self.placed, candidate.strategy, candidate.options, self.arrays, self.comm)
            measure({str(candidate): plan}, self.comm, warmup=0, least=1, most=1)  # fails on all ranks or none
        except RedistributionError as error:  # on every rank, of which each says it in its own words
            return str(self.comm.bcast(" ".join(str(error).removeprefix("plan: ").split())))
        except RuntimeError as error:
            return " ".join(str(error).removeprefix("measure: ").split())  # what MPI holds of the plan is not known
        return plan


class Alltoallw:
    """
    ``MPI_Alltoallw`` with a derived datatype for each peer and side.

    :param moved: The redistribution.
    :param comm: Communicator of its ranks.
    """

    def __init__(self, moved: Schedule, comm: MPI.Intracomm) -> None:
        self._comm, self._dtype = comm, moved.dtype
        self._made: list[MPI.Datatype] = []
        sends, receives, own = moved.of_rank(comm.rank)
        self._sides = [self._side(sent, [*messages, own]) for sent, messages in ((True, sends), (False, receives))]

    def run(self, source: Any, target: Any) -> None:
        """Redistribute. Collective."""
        sides = zip((source, target), self._sides, strict=True)
        self._comm.Alltoallw(*([_memory(array), counts, places, types] for array, (counts, places, types) in sides))

    def free(self) -> None:
        """Free the datatypes. Local."""
        while self._made:
            self._made.pop().Free()

    def _side(self, sent: bool, messages: Sequence[Message]) -> tuple[list[int], list[int], list[MPI.Datatype]]:
        counts, types = [0] * self._comm.size, [MPI.BYTE] * self._comm.size
        for message in messages:
            if message.count:
                peer = message.target if sent else message.source
                counts[peer], types[peer] = 1, self._datatype(message, sent).Commit()
        return counts, [0] * self._comm.size, types

    def _keep(self, datatype: MPI.Datatype) -> MPI.Datatype:
        self._made.append(datatype)
        return datatype

    def _datatype(self, message: Message, sent: bool) -> MPI.Datatype:
        """Return the datatype of a message in a local array."""
        parts, offsets, itemsize = [], [], self._dtype.itemsize
        for block in message.blocks:
            strides = block.source_strides if sent else block.target_strides
            kind = self._keep(MPI.BYTE.Create_contiguous(itemsize))
            for count, stride in zip(reversed(block.counts), reversed(strides), strict=True):
                kind = self._keep(kind.Create_hvector(count, 1, stride * itemsize))
            parts.append(kind)
            offsets.append(itemsize * (block.source_offset if sent else block.target_offset))
        return self._keep(MPI.Datatype.Create_struct([1] * len(parts), offsets, parts))


def _memory(array: Any) -> Any:
    """Return an array's memory from its first element on, also that of a strided array."""
    span = array.itemsize + sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True))
    return MPI.buffer.fromaddress(array.ctypes.data, span if array.size else 0)
