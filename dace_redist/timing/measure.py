"""
Times collective operations against each other: all in turn, in random order, until the medians are certain.

The method is that of Lundwall et al., *Accelerating Redistribution of Tensors*, section 4: warm up, start together,
take one time per repetition for all ranks, repeat until the 95 % confidence interval of the median is narrow. All
methods take turns besides: other work on the machine then delays all alike, and ratios stay right.

Start reading at :func:`measure`.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist.mpi.collective import together
from dace_redist.mpi.topology import topology_of

#: Repetitions after which a method may be dropped as too slow.
_TRIAL = 3
#: Time for which a rank whose method failed waits for the others before it ends the program.
_ABORT_SECONDS = 10.0

#: Returns seconds; on one node all ranks must share it.
Clock = Callable[[], float]


def system_clock() -> float:
    """Return the seconds of the clock that all processes of a node share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


@dataclass(frozen=True)
class Figure:
    """
    The times of one method, in the order of repetitions, their median, and its 95 % confidence interval.

    The interval has order statistics as its ends; with fewer than six repetitions the shortest and the longest time.
    """

    seconds: tuple[float, ...]
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Figure:
        """Return median and interval of at least one time; the interval assumes no distribution of times."""
        from scipy.stats import quantile_test  # a second to load: only the rank that decides needs it

        interval = quantile_test(seconds, q=0, p=0.5).confidence_interval(0.95)
        certain = bool(np.isfinite(interval.low) and np.isfinite(interval.high))
        low, high = (interval.low, interval.high) if certain else (min(seconds), max(seconds))
        return cls(tuple(seconds), float(np.median(seconds)), float(low), float(high))

    @property
    def uncertainty(self) -> float:
        """The longer half of the interval, as a part of the median."""
        return max(self.high - self.median, self.median - self.low) / self.median if self.median > 0 else 0.0


def measure(
    methods: Mapping[str, Callable[[], None]],
    comm: Any,
    *,
    warmup: int = 2,
    settle: int = 0,
    precision: float = 0.05,
    least: int = 7,
    most: int = 200,
    limit_seconds: float = 60.0,
    drop_slower_than: float | None = None,
    apart: Collection[str] = (),
    progress: Callable[[str], None] | None = None,
    clock: Clock = system_clock,
) -> dict[str, Figure]:
    """
    Time methods that all ranks carry out together. Collective; every rank gets the same figures.

    In each round every method is run once, in an order drawn anew. Before each repetition the ranks wait for each
    other. The time of a repetition is, if all ranks are on one node, its span: last end minus first start over all
    ranks, on the clock they share (with more ranks than cores a rank's own time misses its waiting for a core).
    Between nodes it is the longest time of a rank. Rank 0 decides for all, so only its numbers count.

    :param methods: Methods by name; on every rank the same names in the same order. Nothing else may use ``comm``.
    :param warmup: Rounds that are not counted.
    :param settle: Untimed repetitions before each timed one, so that caches are in this method's steady state.
    :param precision: Stop when for every method both ends of the 95 % confidence interval of its median are this close
        to the median, as a part of it.
    :param least: Minimum of rounds, except for the limit of time; at least 6 give an interval.
    :param most: Maximum of rounds.
    :param limit_seconds: No further round begins after this many seconds, the warm-up not counted; one is made anyway.
    :param drop_slower_than: Run a method no more when, after 3 rounds or later, even its fastest repetition took more
        than this many times the median of the best method; it is returned with what it has. None: keep all.
    :param apart: Methods that are neither dropped nor count as the best.
    :param progress: Called on rank 0 with the method's name after each repetition that counts.
    :raises ValueError: On every rank, if ranks name different methods, or a number is out of range.
    :raises RuntimeError: On every rank, if a method fails on one and the others return from it; says which and where.
        Where they do not, the program is ended by ``MPI_Abort`` with that message.
    """
    active = list(methods)
    with together(comm, {"the methods": active}):
        judge = _Judge(active, precision, least, most, limit_seconds, drop_slower_than, apart, clock)
    run = Repetitions(comm, clock)
    order = random.Random(0)  # the same on every rank
    for _ in range(warmup):
        for name in methods:
            run.repeat(name, methods[name])
    judge.begin = clock()
    while active:
        for name in order.sample(active, len(active)):
            for _ in range(settle):
                run.repeat(name, methods[name])
            span = run.repeat(name, methods[name])
            if comm.rank == 0:
                judge.seconds[name].append(span)
                if progress is not None:
                    progress(name)
        decided = judge.decide(active) if comm.rank == 0 else None
        active = comm.bcast(decided)
    figures: dict[str, Figure] = comm.bcast(
        {name: Figure.of(judge.seconds[name]) for name in methods} if comm.rank == 0 else None
    )
    return figures


class Repetitions:
    """Carries out and times single repetitions on all ranks of a communicator. Making it is collective."""

    def __init__(self, comm: Any, clock: Clock = system_clock) -> None:
        self.comm, self.clock, self.one_node = comm, clock, topology_of(comm).node_count == 1

    def repeat(self, name: str, method: Callable[[], None]) -> float:
        """
        Return the seconds of one repetition, equal on every rank, see :func:`measure`. Collective.

        :raises RuntimeError: On every rank, if the method fails on one.
        """
        failure = ""
        self.comm.Barrier()
        start = self.clock()
        try:
            method()
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        end = self.clock()
        times = self._gather(name, start, end, failure)
        if self.one_node:
            return float(times[:, 1].max() - times[:, 0].min())
        return float((times[:, 1] - times[:, 0]).max())

    def _gather(self, name: str, start: float, end: float, failure: str) -> npt.NDArray[np.float64]:
        """Gather start and end of every rank; raise on all if the method failed on one. Collective."""
        mine = np.array([start, end, bool(failure)])
        everywhere = np.empty((self.comm.size, 3))
        request = self.comm.Iallgather(mine, everywhere)
        if failure:
            self._wait_or_abort(request, f"{name!r} failed on rank {self.comm.rank}: {failure}")
        request.Wait()
        if everywhere[:, 2].any():
            texts: list[str] = self.comm.allgather(failure)
            rank = next(rank for rank, text in enumerate(texts) if text)
            raise RuntimeError(f"measure: {name!r} failed on rank {rank}: {texts[rank]}")
        return everywhere

    def _wait_or_abort(self, request: Any, message: str) -> None:
        """Wait for the others, which may wait inside the method for this rank for ever."""
        give_up = time.monotonic() + _ABORT_SECONDS
        while not request.Test():
            if time.monotonic() > give_up:
                what = f"measure: {message}; the other ranks do not return from it: ending the program"
                print(what, file=sys.stderr, flush=True)
                self.comm.Abort(1)
            time.sleep(0.001)


@dataclass
class _Judge:
    """Keeps the times and decides, on rank 0, about methods and rounds; see :func:`measure`."""

    names: Sequence[str]
    precision: float
    least: int
    most: int
    limit_seconds: float
    drop_slower_than: float | None
    apart: Collection[str] = ()
    clock: Clock = system_clock

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ValueError(f"measure: need most >= least >= 1, got least={self.least}, most={self.most}")
        if not (self.precision > 0 and self.limit_seconds > 0):
            got = f"{self.precision} and {self.limit_seconds}"
            raise ValueError(f"measure: need precision > 0 and limit_seconds > 0, got {got}")
        if self.drop_slower_than is not None and not self.drop_slower_than >= 1:
            raise ValueError(f"measure: drop_slower_than must be at least 1 or None, got {self.drop_slower_than}")
        self.seconds: dict[str, list[float]] = {name: [] for name in self.names}
        self.figures: dict[str, Figure] = {}
        self.begin, self.rounds, self.next_look = self.clock(), 0, self.least

    def decide(self, active: Collection[str]) -> list[str]:
        """Return the methods of the next round; none when all is known or a limit is reached."""
        self.rounds += 1
        kept = self._fast_enough(active)
        if self.rounds >= self.most or self.clock() - self.begin > self.limit_seconds:
            return []
        if self.rounds < self.next_look:
            return kept
        self.next_look = self.rounds + 1 + self.rounds // 10  # intervals take about a millisecond per method
        self.figures |= {name: Figure.of(self.seconds[name]) for name in kept}
        return kept if any(self.figures[name].uncertainty > self.precision for name in kept) else []

    def _fast_enough(self, active: Collection[str]) -> list[str]:
        compared = [name for name in active if name not in self.apart]
        if self.drop_slower_than is None or self.rounds < _TRIAL or not compared:
            return list(active)
        most = self.drop_slower_than * min(float(np.median(self.seconds[name])) for name in compared)
        # Not its median, which on a busy machine can be anything after so few repetitions.
        return [name for name in active if name in self.apart or min(self.seconds[name]) <= most]
