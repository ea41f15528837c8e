"""Measures a machine profile on the ranks of an MPI job. Start reading at: calibrate."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mpi4py import MPI

from dace_redist._core import max_eager_bytes, min_remote_run
from dace_redist._version import __version__
from dace_redist.measuring.measure import progress_bar
from dace_redist.measuring.timed_plan import TimedExchanges
from dace_redist.mpi.collective import checked_communicator, together
from dace_redist.mpi.topology import Topology, pinned_to_core, topology_of
from dace_redist.redistribution.cache import forget_choices
from dace_redist.tuning import profile as machine_profile
from dace_redist.tuning.auto import usable_gpu
from dace_redist.tuning.files import now, profile_path
from dace_redist.tuning.profile import (
    Copies,
    Curve,
    DeviceRates,
    Latency,
    MachineProfile,
    NetworkRates,
    NodeRates,
    Rates,
    Surface,
)

_TINY = 8
#: Minimum part of seconds that remains where others are subtracted.
_MIN_REMAINDER = 0.05


@dataclasses.dataclass(frozen=True)
class Sizes:
    """
    Sizes that are measured, all in bytes.

    :param footprints: Bytes that a rank moves, where runs matter.
    :param runs: Lengths of contiguous runs.
    :param exchanged_runs: The same between ranks, also so long that the kernel copies them.
    :param items: Sizes of elements that are transposed.
    :param messages: Sizes of contiguous messages.
    :param network_chunks: Sizes of the chunks of the largest message, between nodes.
    """

    footprints: Sequence[int] = (32 << 10, 512 << 10, 4 << 20, 16 << 20)
    runs: Sequence[int] = (8, 32, 128, 512, 2048, 8192, 32768)
    exchanged_runs: Sequence[int] = (8, 32, 128, 512, 2048, 8192, 16 << 10, 64 << 10, min_remote_run, 256 << 10)
    items: Sequence[int] = (4, 8, 16, 64)
    messages: Sequence[int] = (_TINY, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20)
    network_chunks: Sequence[int] = (15 << 10, 60 << 10, 120 << 10, 1 << 20)

    @classmethod
    def on_gpu(cls) -> Sizes:
        """Return the sizes of arrays on GPUs, which copy more at a time: up to 64 MiB."""
        footprints = (64 << 10, 1 << 20, 16 << 20, 64 << 20)
        return cls(footprints, messages=(_TINY, *footprints), network_chunks=(256 << 10, 1 << 20, 4 << 20))

    def max_bytes(self, ranks: int) -> int:
        """Return the bytes of the largest array of a rank, if a node has so many."""
        exchanged = ranks * max(*self.exchanged_runs, 2 * max_eager_bytes)
        return max(*self.footprints, *self.messages, exchanged)


def _without(part: float, seconds: float | None) -> float:
    """Subtract a part from seconds; noise may make it larger than they are."""
    whole = seconds or 0.0
    return max(whole - part, _MIN_REMAINDER * whole)


def _curve(nbytes: Sequence[int], measure: Callable[[int], float | None]) -> Curve:
    """Seconds by size; a pydantic.ValidationError if a rank cannot."""
    return Curve(nbytes=list(nbytes), seconds=[measure(each) or 0.0 for each in nbytes])


@dataclasses.dataclass
class Measurements:
    """The measurements of arrays in one place, all collective; ``node`` has the ranks of this rank's node."""

    timed: TimedExchanges
    node: MPI.Intracomm
    topology: Topology
    sizes: Sizes
    place: str = "ordinary"

    def rates(self, launch: float = 0.0) -> Rates:
        """Return copies, without seconds of a launch, and exchanges."""
        copies = self._copies(launch)
        return Rates(
            copies=copies,
            node=self._within_a_node(copies) if self.topology.ranks_per_node > 1 else None,
            network=self._between_nodes() if self.topology.node_count > 1 else None,
        )

    def device_rates(self, name: str) -> DeviceRates:
        """Return the section of GPUs of a model."""
        timed, messages = self.timed, self.sizes.messages
        launch = timed.copy(_TINY, _TINY, self.place, (True, False)) or 0.0

        def staging(memory: str) -> Curve:
            """Copies between the GPU and pinned main memory, without those from or to the pinned slot."""
            return _curve(messages, lambda n: _without(timed.copy(n, n, "ordinary") or 0.0, timed.copy(n, n, memory)))

        return DeviceRates(
            **dict(self.rates(launch)),
            name=name,
            launch=launch,
            to_main_memory=staging("gpu-source"),
            to_gpu=staging("gpu-target"),
        )

    def _copies(self, launch: float) -> Copies:
        timed, place, sizes = self.timed, self.place, self.sizes

        def copied(*gaps: bool) -> Surface:
            return self._surface(sizes.runs, lambda n, run: _without(launch, timed.copy(n, run, place, gaps)))

        permuted = self._surface(sizes.items, lambda n, item: _without(launch, timed.transpose(n, item, place)))
        return Copies(pack=copied(True, False), unpack=copied(False, True), permuted=permuted)

    def _within_a_node(self, copies: Copies) -> NodeRates:
        """Exchanges of the ranks of a node."""
        timed, sizes, group = self.timed, self.sizes, (self.node, range(self.node.size))
        on_gpu = self.place == "gpu"
        kinds = {"messages": "Pack", "shared": "Shared"}
        kinds |= {} if on_gpu else {"datatypes": "Datatype", "puts": "RMA"}
        latencies = {kind: self._latency(strategy) for kind, strategy in kinds.items()}
        known = {kind: latency for kind, latency in latencies.items() if latency is not None}
        messages = _curve(sizes.messages, lambda n: timed.shift(group, "Pack", n, self.place))
        if on_gpu:
            return NodeRates(latency=known, messages=messages, push=self._exchanged("Shared", copies, known["shared"]))
        eager, longer = (
            timed.shift(group, "Shared", n, "ordinary", alone=True) or 0.0
            for n in (max_eager_bytes, max_eager_bytes + _TINY)
        )
        known["handshake"] = Latency(exchange=0.0, message=max(1e-8, longer - eager))
        message = known["shared"].message + known["handshake"].message
        shared = Latency(exchange=known["shared"].exchange, message=message)
        return NodeRates(
            latency=known,
            messages=messages,
            push=self._exchanged("Shared", copies, shared, "shared-target"),
            pull=self._exchanged("Shared", copies, shared, "shared-source"),
            staged=self._exchanged("Shared", copies, shared),
            datatypes=self._exchanged("Datatype", copies, known["datatypes"]),
        )

    def _between_nodes(self) -> NetworkRates:
        """Exchanges of one rank of each node, and of all of them, with those of the next node."""
        node_of, timed, comm = self.topology.node_of, self.timed, self.timed.comm
        places = [[rank for rank, its in enumerate(node_of) if its == node] for node in dict.fromkeys(node_of)]
        leaders = comm, [ranks[0] for ranks in places]
        position = next(ranks.index(comm.rank) for ranks in places if comm.rank in ranks)
        least, largest = min(map(len, places)), self.sizes.messages[-1]
        group: Any = comm.Split(position, comm.rank)
        everyone = group, range(group.size)

        def chunk(nbytes: int) -> float:
            seconds = timed.shift(everyone, "Pipelined", largest, self.place, chunk_bytes=nbytes)
            return nbytes * (seconds or 0.0) / (least * largest)

        messages = _curve(self.sizes.messages, lambda n: timed.shift(leaders, "Pipelined", n, self.place))
        link = _curve(self.sizes.network_chunks, chunk)
        group.Free()
        return NetworkRates(messages=messages, link=link)

    def _surface(self, runs: Sequence[int], measure: Callable[[int, int], float | None]) -> Surface:
        rows = [[(measure(n, run) or 0.0) / max(n, run) for run in runs] for n in self.sizes.footprints]
        return Surface(footprints=list(self.sizes.footprints), runs=list(runs), seconds_per_byte=rows)

    def _exchanged(self, strategy: str, copies: Copies, latency: Latency, memory: str = "") -> Surface:
        """
        Messages of each rank of a node to all others, without their latency and the self copy.

        In a vector that becomes block-cyclic, runs are followed by those of the next rank: with gaps instead, caches
        would fetch lines that nobody needs, and none would be written by two ranks. Messages are too long to be eager.
        One takes at least as long as a self copy, whose time is less certain than that of the whole.
        """
        ranks, memory = self.node.size, memory or self.place

        def measure(nbytes: int, run: int) -> float:
            moved = max(nbytes, run * ranks, 2 * max_eager_bytes * ranks)
            own = moved / ranks
            seconds = self.timed.cyclic(self.node, strategy, moved, run, memory)
            seconds = _without(latency.exchange + (ranks - 1) * latency.message, seconds)
            crossing = (seconds - own * copies.pack.at(moved, run)) / ((moved - own) or moved)
            return max(seconds / moved, crossing) * max(nbytes, run)

        return self._surface(self.sizes.exchanged_runs, measure)

    def _latency(self, strategy: str) -> Latency | None:
        """From exchanges with one rank and with all: the time of each message, and the rest. None: a rank cannot."""
        group = self.node, range(self.node.size)
        one = self.timed.shift(group, strategy, _TINY, self.place, alone=True)
        every = self.timed.cyclic(self.node, strategy, _TINY * self.node.size, _TINY, self.place)
        if one is None or every is None:
            return None
        others = self.topology.ranks_per_node - 1
        message = (every - one) / (others - 1) if others > 1 else 0.5 * one
        message = min(max(message, 1e-8), one)
        return Latency(exchange=max(0.0, one - message), message=message)


#: Rounds of all measurements, of each of which the minimum counts: other work slows a machine down for seconds.
_ROUNDS = 3


def calibrate(
    comm: Any = None,
    *,
    output: str | os.PathLike[str] | None = None,
    sizes: Sizes | None = None,
    limit_seconds: float = 45.0,
    progress: bool = True,
) -> MachineProfile:
    """
    Measure copies and messages on this machine, and write the machine profile. Collective over ``comm``.

    All ranks work at the same time. Where every rank can use a GPU, or main memory stands in for one, arrays there are
    measured, too. Errors are raised on every rank: a wrong path, an OSError, before measuring.

    :param output: File to write; default: see :func:`dace_redist.tuning.files.profile_path`.
    :param sizes: Sizes to measure in main memory; default: up to 16 MiB. On GPUs they are :meth:`Sizes.on_gpu`.
    :param limit_seconds: Time for the measurements; each is made at least once.
    :return: The profile, equal on every rank.
    :raises RuntimeError: If there is too little node-shared memory.
    :raises BuildError: If ``DACE_REDIST_DEVICE`` is set, and the library for GPUs cannot be built.
    :raises RedistributionError: If ``DACE_REDIST_DEVICE`` is set, and a rank has no GPU.
    """
    comm = checked_communicator(comm)
    with together(comm):
        path = profile_path(output)
        if comm.rank == 0:
            _check_writable(path)
    sizes, gpu_sizes = sizes or Sizes(), Sizes.on_gpu()
    topology, gpu = topology_of(comm), usable_gpu(comm)
    node = comm.Split(topology.node_of[comm.rank], comm.rank)
    with progress_bar(progress and comm.rank == 0, "calibrate", limit_seconds) as show, pinned_to_core(comm):
        with together(comm):
            timed = TimedExchanges(comm, sizes.max_bytes(topology.ranks_per_node), limit_seconds, show)
            if gpu:
                timed.add_pool("gpu", gpu_sizes.max_bytes(topology.ranks_per_node))

        def one_round() -> MachineProfile:
            main = Measurements(timed, node, topology, sizes)
            device = Measurements(timed, node, topology, gpu_sizes, "gpu").device_rates(gpu) if gpu else None
            return MachineProfile(
                **machine_profile.FILE.head,
                machine=topology.machine,
                mpi=topology.mpi,
                package=__version__,
                date=now(),
                nodes=topology.node_count,
                ranks_per_node=topology.ranks_per_node,
                cores_per_node=os.cpu_count() or 1,
                **dict(main.rates()),
                device=device,
            )

        timed.counting = True
        one_round()
        timed.counting, timed.count = False, _ROUNDS * timed.count
        made: MachineProfile = comm.bcast(machine_profile.fastest([one_round() for _ in range(_ROUNDS)]))
    node.Free()
    with together(comm):
        if comm.rank == 0:
            machine_profile.FILE.replace(path, made)
    forget_choices(comm)
    return made


def _check_writable(path: Path) -> None:
    """Fail before the measurements, not after them; an existing file stays as it is."""
    existed = path.exists()
    with machine_profile.FILE.writing(path):
        path.open("ab").close()
    if not existed:
        path.unlink()
