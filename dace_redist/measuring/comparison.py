"""Times strategies against ``MPI_Alltoallw`` with derived datatypes. Start reading at: compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from dace_redist.errors import RedistributionError
from dace_redist.measuring.candidates import space
from dace_redist.measuring.measure import Figure, measure
from dace_redist.measuring.timed_plan import TimedPlan, new_arrays
from dace_redist.messages import Block
from dace_redist.mpi.collective import together
from dace_redist.report.text import header
from dace_redist.report.units import milliseconds, table
from dace_redist.schedule import Schedule
from dace_redist.tuning.auto import check_ranks
from dace_redist.tuning.problem import Problem

_BASELINE = "MPI_Alltoallw"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The times of strategies and of ``MPI_Alltoallw``; printed, they are a table."""

    problem: Problem
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
            rows.append((name, f"{milliseconds(medians[name])} ms", interval, speedup, str(len(figure.seconds))))
        best = min((name for name in medians if name != _BASELINE), key=medians.__getitem__, default=_BASELINE)
        verdict = f"{best} is the fastest strategy"
        if baseline:
            verdict += f": {baseline / medians[best]:.2f} times as fast as {_BASELINE}"
        memory = f"memory    {self.problem.memory}"
        return "\n".join([*header(self.problem.schedule), memory, *table(rows, left=1), verdict])

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries."""
        seconds = {
            name: {"median": one.median, "low": one.low, "high": one.high, "repetitions": len(one.seconds)}
            for name, one in self.figures.items()
        }
        return {**self.problem.identity, "shape": list(self.problem.schedule.shape), "seconds": seconds}


def compare(problem: Problem, strategies: Sequence[str], limit_seconds: float) -> Comparison:
    """
    Time strategies with their default options, and ``MPI_Alltoallw``, by turns. Collective over all ranks.

    :param strategies: Names of strategies; none: all that work here.
    :raises ValueError: On every rank, if a strategy is unknown, or too few ranks were started.
    """
    comm, moved = MPI.COMM_WORLD, problem.schedule
    with together(comm):
        check_ranks(moved, comm.size)
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
    if not problem.on_gpu:
        methods[_BASELINE] = _alltoallw(moved, *arrays)
    figures = measure(methods, comm, settle=1, limit_seconds=limit_seconds, drop_slower_than=4, apart=[_BASELINE])
    for plan in plans.values():
        plan.free()
    return Comparison(problem, figures)


def _alltoallw(moved: Schedule, source: Any, target: Any) -> Callable[[], None]:
    """A call of ``MPI_Alltoallw`` that moves the tensor by derived datatypes; those are kept to the end of the job."""
    comm = MPI.COMM_WORLD
    sends, receives, own = moved.of_rank(comm.rank)
    sides = []
    for sent, messages in ((True, sends), (False, receives)):
        counts, types = [0] * comm.size, [MPI.BYTE] * comm.size
        for message in (*messages, *([own] if own.count else [])):
            peer = message.target if sent else message.source
            parts = [_strided(block, sent, moved.dtype) for block in message.blocks]
            places = [block.source_offset if sent else block.target_offset for block in message.blocks]
            offsets = [place * moved.dtype.itemsize for place in places]
            counts[peer], types[peer] = 1, MPI.Datatype.Create_struct([1] * len(parts), offsets, parts).Commit()
        sides.append((counts, [0] * comm.size, types))
    buffers = [array.view(np.uint8).reshape(-1) if array.size else np.empty(0, np.uint8) for array in (source, target)]
    arguments = [
        [buffer, counts, places, types] for buffer, (counts, places, types) in zip(buffers, sides, strict=True)
    ]
    return lambda: comm.Alltoallw(*arguments)


def _strided(block: Block, sent: bool, dtype: np.dtype[Any]) -> MPI.Datatype:
    kind: MPI.Datatype = MPI.BYTE.Create_contiguous(dtype.itemsize)
    strides = block.source_strides if sent else block.target_strides
    for count, stride in zip(reversed(block.counts), reversed(strides), strict=True):
        kind = kind.Create_hvector(count, 1, stride * dtype.itemsize)
    return kind
