"""Times strategies against ``MPI_Alltoallw`` with derived datatypes. Start reading at: compare."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpi4py import MPI

from dace_redist.errors import RedistributionError
from dace_redist.measuring.measure import Figure, measure
from dace_redist.measuring.search import space
from dace_redist.measuring.timed_plan import TimedPlan, new_arrays
from dace_redist.messages import Message
from dace_redist.mpi.collective import together
from dace_redist.mpi.launch import check_both_ranks
from dace_redist.report.text import header
from dace_redist.report.units import milliseconds, table
from dace_redist.schedule import Schedule
from dace_redist.strategies import DEFAULT_STRATEGY
from dace_redist.tuning.problem import TuningProblem

_BASELINE = "MPI_Alltoallw"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The times of strategies and of ``MPI_Alltoallw``; printed, they are a table."""

    problem: TuningProblem
    figures: Mapping[str, Figure]

    def __str__(self) -> str:
        """The redistribution, a line for each method, the fastest first, and the fastest strategy."""
        medians = {name: figure.median for name, figure in self.figures.items()}
        baseline = medians.get(_BASELINE)
        rows = [("", "median", "95 % of medians", "speed-up", "runs")]
        for name in sorted(medians, key=medians.__getitem__):
            figure = self.figures[name]
            interval = f"[{milliseconds(figure.low)}, {milliseconds(figure.high)}]"
            speedup = f"{baseline / medians[name]:.2f}" if baseline else "-"
            shown = f"{name} (default)" if name == DEFAULT_STRATEGY else name
            rows.append((shown, f"{milliseconds(medians[name])} ms", interval, speedup, str(len(figure.seconds))))
        memory = f"memory    {self.problem.memory}"
        return "\n".join([*header(self.problem.schedule), memory, *table(rows, left=1), self._verdict()])

    def _verdict(self) -> str:
        """The fastest strategy, and its speed-up, as far as intervals do not overlap."""
        strategies = {name: figure for name, figure in self.figures.items() if name != _BASELINE}
        best = min(strategies, key=lambda name: strategies[name].median)
        alike = [name for name, one in self.figures.items() if name != best and one.low <= strategies[best].high]
        if alike:
            verdict = f"not decided (machine busy?): the intervals of {best} and {', '.join(alike)} overlap"
        else:
            verdict = f"{best} is the fastest strategy"
        if _BASELINE in alike or _BASELINE not in self.figures:
            return verdict
        ahead = f"{self.figures[_BASELINE].median / strategies[best].median:.2f} times as fast as {_BASELINE}"
        return f"{verdict}; {best} is {ahead}" if alike else f"{verdict}: {ahead}"

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries."""
        seconds = {
            name: {"median": one.median, "low": one.low, "high": one.high, "repetitions": len(one.seconds)}
            for name, one in self.figures.items()
        }
        return {**self.problem.identity, "shape": list(self.problem.schedule.shape), "seconds": seconds}


def compare(problem: TuningProblem, strategies: Sequence[str], limit_seconds: float) -> Comparison:
    """
    Time strategies with their default options, and ``MPI_Alltoallw``, by turns. Collective over all ranks.

    :param strategies: Names of strategies; none: all that work here.
    :raises ValueError: On every rank, if a strategy is unknown, or too few ranks were started.
    """
    comm, moved = MPI.COMM_WORLD, problem.schedule
    with together(comm):
        check_both_ranks(moved, comm.size)
        names = space(strategies or None, None, problem.memory).strategies
        arrays = new_arrays(problem, comm.rank)
    plans: dict[str, TimedPlan] = {}
    for name in names:
        try:
            plans[name] = TimedPlan(problem, name, {}, arrays, comm)
        except RedistributionError:  # on every rank
            if strategies:
                raise
    methods: dict[str, Callable[[], None]] = {**plans}
    baseline = None if problem.on_gpu else Alltoallw(moved, comm)
    if baseline:
        methods[_BASELINE] = functools.partial(baseline.run, *arrays)
    figures = measure(methods, comm, settle=1, limit_seconds=limit_seconds, drop_slower_than=4, apart=[_BASELINE])
    if baseline:
        baseline.free()
    for plan in plans.values():
        plan.free()
    return Comparison(problem, figures)


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
