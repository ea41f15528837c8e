"""The measurements of a machine profile, as its parts. Start reading at: Measurements."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mpi4py import MPI

from dace_redist._core import max_eager_bytes, min_remote_run
from dace_redist.mpi.topology import Topology
from dace_redist.tuning.rates import (
    Curve,
    DeviceRates,
    Exchanges,
    Kernels,
    Latency,
    NetworkRates,
    NodeRates,
    Surface,
    TwoSides,
)
from dace_redist.tuning.timed_exchanges import Side, TimedExchanges

_TINY = 8
#: Minimum part of seconds that remains where others are subtracted.
_MIN_REMAINDER = 0.05


@dataclasses.dataclass(frozen=True)
class Sizes:
    """
    Sizes that are measured, all in bytes.

    :param footprints: Bytes that a rank moves, where runs matter.
    :param runs: Lengths of contiguous runs.
    :param read_runs: Lengths of runs where the kernel copies, which takes long runs only.
    :param items: Sizes of elements that are transposed.
    :param messages: Sizes of contiguous messages.
    :param chunks: Sizes of the chunks of a message of the footprint in the middle.
    :param network_chunks: Sizes of the chunks of the largest message, between nodes.
    :param matrices: Bytes of each rank of matrices that are redistributed from rows to columns.
    """

    footprints: Sequence[int] = (32 << 10, 512 << 10, 4 << 20, 16 << 20)
    runs: Sequence[int] = (8, 32, 128, 512, 2048, 8192, 32768)
    read_runs: Sequence[int] = (min_remote_run, 128 << 10, 1 << 20)
    items: Sequence[int] = (4, 8, 16, 64)
    messages: Sequence[int] = (_TINY, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20)
    chunks: Sequence[int] = (8 << 10, 60 << 10, 512 << 10)
    network_chunks: Sequence[int] = (15 << 10, 60 << 10, 120 << 10, 1 << 20)
    matrices: Sequence[int] = (1 << 20, 8 << 20)

    @classmethod
    def on_gpu(cls) -> Sizes:
        """Return the sizes of arrays on GPUs, which copy more at a time: up to 64 MiB."""
        chunks = (256 << 10, 1 << 20, 4 << 20)
        messages = (_TINY, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
        return cls((64 << 10, 1 << 20, 16 << 20, 64 << 20), messages=messages, chunks=chunks, network_chunks=chunks)

    @property
    def max_bytes(self) -> int:
        """Most bytes that a rank sends."""
        return max(*self.footprints, *self.read_runs, *self.messages, *self.matrices, 2 * max_eager_bytes)


def _without(part: float, seconds: float | None) -> float:
    """Subtract a part from seconds; noise may make it larger than they are."""
    whole = seconds or 0.0
    return max(whole - part, _MIN_REMAINDER * whole)


def _curve(nbytes: Sequence[int], measure: Callable[[int], float | None]) -> Curve | None:
    """Seconds by size; None if a rank cannot."""
    seconds = [measure(each) for each in nbytes]
    known = [each for each in seconds if each is not None]
    return Curve(nbytes=list(nbytes), seconds=known) if len(known) == len(seconds) else None


#: Takes footprint and run length, returns seconds; None: cannot be measured.
_Measure = Callable[[int, int], "float | None"]


@dataclasses.dataclass
class Measurements:
    """
    The measurements of a profile, all collective over ``comm``; ``node`` has the ranks of this rank's node, ``gpu`` is
    the model of the GPUs that the arrays lie on, ``""`` for main memory.
    """

    comm: MPI.Intracomm
    node: MPI.Intracomm
    topology: Topology
    sizes: Sizes
    timed: TimedExchanges
    gpu: str = ""

    def __post_init__(self) -> None:
        self._place = "gpu" if self.gpu else "ordinary"
        self._plain = self._side(), self._side()

    def kernels(self, launch: float = 0.0) -> dict[str, Any]:
        """Return the fields of :class:`Kernels`, without seconds of a launch."""
        copy, side, runs = self.timed.copy, self._side, self.sizes.runs

        def surface(runs: Sequence[int], measure: _Measure) -> Surface:
            return self._surface(runs, lambda nbytes, run: _without(launch, measure(nbytes, run)))

        return {
            "pack": surface(runs, lambda nbytes, run: copy("Pack", nbytes, (side(run), side()))),
            "unpack": surface(runs, lambda nbytes, run: copy("Pack", nbytes, (side(), side(run)))),
            "permuted": surface(self.sizes.items, lambda nbytes, item: self.timed.transpose(nbytes, item, self._place)),
        }

    def device_rates(self) -> DeviceRates:
        """Return the section of GPUs."""
        launch = self.timed.copy("Pack", _TINY, self._plain) or 0.0
        host, gpu = Side(), self._side()

        def staging(sides: tuple[Side, Side]) -> Any:
            """Copies between the GPU and pinned main memory, without those from or to the pinned slot."""
            own = {nbytes: self.timed.copy("Pack", nbytes, (host, host)) or 0.0 for nbytes in self.sizes.messages}
            return _curve(self.sizes.messages, lambda n: _without(own[n], self.timed.copy("Pack", n, sides)))

        return DeviceRates(
            name=self.gpu,
            launch=launch,
            kernels=Kernels(**self.kernels(launch)),
            to_main_memory=staging((gpu, host)),
            to_gpu=staging((host, gpu)),
            node=Exchanges(**self._exchanges()) if self.topology.ranks_per_node > 1 else None,
            network=self.between_nodes() if self.topology.node_count > 1 else None,
        )

    def within_a_node(self) -> NodeRates:
        """Return what each rank of a node exchanges with the next one."""
        runs, side = self.sizes.runs, self._side
        staged_runs = [run for run in runs if run < min_remote_run]  # the kernel copies longer ones
        return NodeRates(
            **self._exchanges({"datatypes": "Datatype", "puts": "RMA"}),
            puts=_curve(self.sizes.messages, lambda nbytes: self._shift("RMA", nbytes)),
            datatypes=self._two_sides("Datatype", runs),
            staged=self._two_sides("Shared", staged_runs),
            pull=self._two_sides("Shared", runs, "shared"),
            read=self._surface(
                self.sizes.read_runs, lambda nbytes, run: self._shift("Shared", nbytes, (side(run), side(run)))
            ),
            thread_start=max(1e-7, (self._alone("Threaded") or 0.0) - (self._alone("Pack") or 0.0)),
        )

    def staged_matrices(self) -> list[float]:
        """Return the seconds in which the ranks of a node move a matrix; none where each rank has a core."""
        if not self.comm.bcast(self.topology.ranks_per_node > (os.cpu_count() or 1)):  # nodes may differ
            return []
        made = _curve(self.sizes.matrices, lambda n: self.timed.all_to_all(self.node, "Shared", nbytes=n))
        return made.seconds if made is not None else []

    def between_nodes(self) -> NetworkRates:
        """Return what one rank of each node, and all of them, exchange with those of the next node."""
        places = [list(self._ranks_of(node)) for node in dict.fromkeys(self.topology.node_of)]
        leaders = self.comm, [ranks[0] for ranks in places]
        position = next(ranks.index(self.comm.rank) for ranks in places if self.comm.rank in ranks)
        least, largest = min(map(len, places)), self.sizes.messages[-1]
        group: Any = self.comm.Split(position, self.comm.rank)

        def all_ranks(**options: Any) -> float:
            seconds = self.timed.shift((group, range(group.size)), "Pipelined", largest, self._plain, **options)
            assert seconds is not None  # Pipelined can always be planned
            return seconds / (least * largest)

        messages: Any = _curve(
            self.sizes.messages, lambda nbytes: self.timed.shift(leaders, "Pipelined", nbytes, self._plain)
        )
        link = all_ranks()
        chunks = _curve(self.sizes.network_chunks, lambda nbytes: nbytes * all_ranks(chunk_bytes=nbytes))
        group.Free()
        return NetworkRates(messages=messages, link_seconds_per_byte=link, chunks=chunks)

    def _exchanges(self, further: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The fields of :class:`Exchanges`; ``further`` are strategies of further kinds of latency."""
        kinds = {"messages": "Pack", "shared": "Shared", **(further or {})}
        latencies = {kind: self._latency(strategy) for kind, strategy in kinds.items()}
        known = {kind: latency for kind, latency in latencies.items() if latency is not None}
        if not self.gpu:
            known["handshake"] = self._handshake()
        return {
            "messages": _curve(self.sizes.messages, lambda nbytes: self._shift("Pack", nbytes)),
            "chunks": _curve(self.sizes.chunks, self._chunk),
            "push": self._two_sides("Shared", self.sizes.runs) if self.gpu else self._pushed(known),
            "latency": known,
        }

    def _side(self, run: int = 0, place: str = "") -> Side:
        return Side(run, place or self._place)

    def _ranks_of(self, node: int) -> Iterator[int]:
        return (rank for rank, its in enumerate(self.topology.node_of) if its == node)

    def _surface(self, runs: Sequence[int], measure: _Measure) -> Surface:
        rows = [[(measure(nbytes, run) or 0.0) / max(nbytes, run) for run in runs] for nbytes in self.sizes.footprints]
        return Surface(footprints=list(self.sizes.footprints), runs=list(runs), seconds_per_byte=rows)

    def _two_sides(self, strategy: str, runs: Sequence[int], source: str = "") -> TwoSides:
        side = self._side

        def sent(nbytes: int, run: int) -> float | None:
            return self._shift(strategy, nbytes, (side(run, source), side()))

        def received(nbytes: int, run: int) -> float | None:
            return self._shift(strategy, nbytes, (side(0, source), side(run)))

        return TwoSides(sent=self._surface(runs, sent), received=self._surface(runs, received))

    def _pushed(self, latency: Mapping[str, Latency]) -> TwoSides:
        """
        Writes of each rank of a node into arrays of all: runs that are followed by those for, or from, the next rank.
        With gaps instead, caches would fetch lines that nobody needs, and none would be written by two ranks.

        Messages are too long to be eager. The latency of all but one is left out, as other exchanges have one.
        """
        ranks = self.node.size
        others = max(0, ranks - 2) * sum(latency[kind].message for kind in ("shared", "handshake"))

        def pushed(back: bool) -> Surface:
            def measure(nbytes: int, run: int) -> float | None:
                moved = max(nbytes, run * ranks, min(2 * max_eager_bytes * ranks, self.timed.max_bytes))
                seconds = self.timed.cyclic(self.node, "Shared", moved, run, ("ordinary", "shared"), back)
                return _without(others, seconds) * max(nbytes, run) / moved

            return self._surface(self.sizes.runs, measure)

        return TwoSides(sent=pushed(back=False), received=pushed(back=True))

    def _shift(self, strategy: str, nbytes: int, sides: tuple[Side, Side] | None = None, **how: Any) -> float | None:
        return self.timed.shift((self.node, range(self.node.size)), strategy, nbytes, sides or self._plain, **how)

    def _alone(self, strategy: str, nbytes: int = _TINY) -> float | None:
        return self._shift(strategy, nbytes, alone=True)

    def _chunk(self, nbytes: int) -> float:
        """Seconds of a chunk."""
        whole = self.sizes.footprints[len(self.sizes.footprints) // 2]
        seconds = self._shift("Pipelined", whole, chunk_bytes=nbytes)
        return (seconds or 0.0) * min(nbytes, whole) / whole

    def _handshake(self) -> Latency:
        """Seconds that a message just too long to be eager takes more than one that is."""
        eager, longer = (self._alone("Shared", nbytes) or 0.0 for nbytes in (max_eager_bytes, max_eager_bytes + _TINY))
        return Latency(exchange=0.0, message=max(1e-8, longer - eager))

    def _latency(self, strategy: str) -> Latency | None:
        """From exchanges with one rank and with all: the time of each message, and the rest. None: a rank cannot."""
        one, every = self._alone(strategy), self.timed.all_to_all(self.node, strategy, self._place)
        if one is None or every is None:
            return None
        others = self.topology.ranks_per_node - 1
        message = (every - one) / (others - 1) if others > 1 else 0.5 * one
        message = min(max(message, 1e-8), one)
        return Latency(exchange=max(0.0, one - message), message=message)
