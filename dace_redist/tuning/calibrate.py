"""Measures a machine profile on the ranks of an MPI job. Start reading at: calibrate."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpi4py import MPI

from dace_redist._core import min_remote_run
from dace_redist._version import __version__
from dace_redist.errors import RedistributionError
from dace_redist.mpi.collective_errors import checked_communicator, together
from dace_redist.mpi.core_binding import pinned_to_core
from dace_redist.mpi.topology import Topology, topology_of
from dace_redist.native.device import DEVICE_VARIABLE
from dace_redist.redistribution.plan_cache import forget_choices
from dace_redist.schedule import schedule
from dace_redist.selection import machine_profile
from dace_redist.selection.cost_model import CostModel
from dace_redist.selection.curves import Curve, Factors, Latency, Surface, TwoSides
from dace_redist.selection.machine_profile import (
    Copies,
    DeviceRates,
    Exchanges,
    Kernels,
    MachineProfile,
    NetworkRates,
    NodeRates,
)
from dace_redist.selection.paths import profile_path
from dace_redist.selection.problem_key import Problem
from dace_redist.selection.selection import gpus_of
from dace_redist.tuning.progress import progress_bar
from dace_redist.tuning.timed_exchanges import Side, TimedExchanges, matrix

_TINY = 8
#: All is measured so often, and the fastest counts: a machine that does other work too is slow for seconds at a time.
_ROUNDS = 3
#: A larger factor by which staged messages take longer is a disturbed measurement.
_MOST_WAIT = 4.0


@dataclasses.dataclass(frozen=True)
class Sizes:
    """
    What is measured; all sizes in bytes.

    :param footprints: Bytes that a rank moves, where runs matter.
    :param runs: Lengths of contiguous runs.
    :param read_runs: The same where the kernel copies, which takes long runs only.
    :param items: Sizes of elements that are transposed.
    :param messages: Sizes of contiguous messages.
    :param chunks: Sizes of the chunks of a message of the footprint in the middle.
    :param network_chunks: Sizes of the chunks of the largest message, between nodes.
    :param matrices: What each rank has of a matrix of which all send a part to all.
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
        """What is measured of arrays on GPUs, which copy more at a time: up to 64 MiB."""
        return cls(
            footprints=(64 << 10, 1 << 20, 16 << 20, 64 << 20),
            messages=(_TINY, 64 << 10, 1 << 20, 16 << 20, 64 << 20),
            chunks=(256 << 10, 1 << 20, 4 << 20),
            network_chunks=(256 << 10, 1 << 20, 4 << 20),
        )

    @property
    def staged_runs(self) -> Sequence[int]:
        """Runs that are not left to the kernel."""
        return [run for run in self.runs if run < min_remote_run]

    @property
    def most_bytes(self) -> int:
        """Most bytes that a rank sends."""
        return max(*self.footprints, *self.read_runs, *self.messages, *self.matrices)

    @property
    def count(self) -> int:
        """Measurements on one node, and as many again at most between nodes."""
        surfaces = 9 * len(self.runs) + 2 * len(self.staged_runs) + len(self.read_runs) + len(self.items)
        curves = 3 * len(self.messages) + len(self.chunks) + len(self.network_chunks) + len(self.matrices)
        return len(self.footprints) * surfaces + curves + 12

    @property
    def gpu_count(self) -> int:
        """The same of arrays on GPUs."""
        surfaces = 4 * len(self.runs) + len(self.items)
        return (
            len(self.footprints) * surfaces + 5 * len(self.messages) + len(self.chunks) + 6 + len(self.network_chunks)
        )


def calibrate(
    comm: Any = None,
    *,
    output: str | os.PathLike[str] | None = None,
    sizes: Sizes | None = None,
    gpu_sizes: Sizes | None = None,
    limit_seconds: float = 45.0,
    progress: bool = True,
) -> MachineProfile:
    """
    Measures what copies and messages take on this machine, and writes the machine profile. Collective over ``comm``.

    Start it with as many ranks on each node as programs will have; all work at the same time. Where every rank can use
    a GPU, or main memory stands in for one, arrays there are measured, too.

    :param comm: mpi4py communicator; default: the world.
    :param output: File to write; default: ``DACE_REDIST_MACHINE``, else one in the user's data folder.
    :param sizes: What to measure; default: up to 16 MiB.
    :param gpu_sizes: What to measure of arrays on GPUs; default: :meth:`Sizes.on_gpu`.
    :param limit_seconds: Time for the measurements; each is made at least once.
    :param progress: Whether to show how far it is.
    :return: The profile, the same on every rank.
    :raises TypeError: On every rank, if something is of the wrong type.
    :raises OSError: On every rank, if the file cannot be written; checked before measuring.
    :raises BuildError: On every rank, if ``DACE_REDIST_DEVICE`` is set, and the library for GPUs cannot be built.
    :raises RedistributionError: On every rank, if ``DACE_REDIST_DEVICE`` is set, and a rank has no GPU.
    """
    comm = checked_communicator(comm)
    with together(comm):
        path = profile_path(output)
        if comm.rank == 0:
            _check_writable(path)
    sizes, topology, gpu = sizes or Sizes(), topology_of(comm), _usable_gpu(comm)
    gpu_sizes = gpu_sizes or Sizes.on_gpu()
    node = comm.Split(topology.node_of[comm.rank], comm.rank)
    with progress_bar(progress and comm.rank == 0, "calibrate", limit_seconds) as show, pinned_to_core(comm):
        count = _ROUNDS * (sizes.count + (gpu_sizes.gpu_count if gpu else 0))
        timed = TimedExchanges(comm, sizes.most_bytes, limit_seconds, count, show)
        made_in_main_memory = _Calibration(comm, node, topology, sizes, timed)
        made_on_gpus = None
        if gpu:
            with together(comm):
                timed.use_device(gpu_sizes.most_bytes)
            made_on_gpus = _Calibration(comm, node, topology, gpu_sizes, timed, gpu)
        rounds, staged = [], []
        for _ in range(_ROUNDS):
            rounds.append(_profile(made_in_main_memory, made_on_gpus))
            staged.append(made_in_main_memory.staged_matrices())
        least = [min(seconds) for seconds in zip(*staged, strict=False)]  # none if a round has none
        made: MachineProfile = comm.bcast(with_staged_wait(machine_profile.fastest(rounds), sizes.matrices, least))
    node.Free()
    with together(comm):
        if comm.rank == 0:
            machine_profile.save(made, path)
    forget_choices(comm)
    return made


def with_staged_wait(profile: MachineProfile, sizes: Sequence[int], seconds: Sequence[float]) -> MachineProfile:
    """
    The profile with what was measured of whole exchanges of staged messages, compared with what the model says of them.

    :param profile: The profile without that.
    :param sizes: What each rank had of a matrix, see :func:`dace_redist.tuning.timed_exchanges.matrix`.
    :param seconds: What it took to move it; none if that was not measured.
    :return: A profile with ``node.staged_wait``, or ``profile`` if nothing was measured.
    """
    if profile.node is None or not seconds:
        return profile
    node, ranks = profile.node, profile.ranks_per_node

    def waiting(factors: Sequence[float]) -> MachineProfile:
        wait = Factors(nbytes=list(sizes), factors=list(factors))
        return profile.model_copy(update={"node": node.model_copy(update={"staged_wait": wait})})

    def predicted(nbytes: int, factor: float) -> float:
        problem = Problem(schedule(*matrix(ranks, nbytes)))
        found = CostModel(problem, waiting([factor] * len(sizes)), [0] * ranks).estimate("Shared")
        assert found is not None  # nothing leaves the node
        return found.seconds

    factors = []
    for nbytes, measured in zip(sizes, seconds, strict=True):
        without = predicted(nbytes, 1)
        staged = predicted(nbytes, 2) - without  # seconds of staged messages; runs may be long enough for none
        factors.append(min(max(1.0, 1 + (measured - without) / staged), _MOST_WAIT) if staged > 0 else 1.0)
    return waiting(factors)


def _check_writable(path: Path) -> None:
    """Fails before the measurements, not after them; leaves what is there as it is."""
    existed = path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        kind = machine_profile.KIND
        raise OSError(f"{kind} {path} cannot be written: {error}; name another file with --output") from None
    if not existed:
        path.unlink()


def _usable_gpu(comm: MPI.Intracomm) -> str:
    """
    Model of the ranks' GPUs; ``""`` if one cannot be used on a rank. Collective.

    :raises BuildError: On every rank, if it was asked for one by the variable, and the library cannot be built.
    :raises RedistributionError: The same, if there is none.
    """
    wanted = bool(os.environ.get(DEVICE_VARIABLE))
    try:
        return gpus_of(comm)
    except (RuntimeError, RedistributionError, OSError):  # a BuildError is a RuntimeError
        if comm.allreduce(wanted, MPI.LOR):
            raise
        return ""


def _profile(made: _Calibration, on_gpus: _Calibration | None) -> MachineProfile:
    topology = made.topology
    return MachineProfile(
        format=f"dace-redist {machine_profile.KIND}",
        version=machine_profile.VERSION,
        machine=topology.machine,
        mpi=topology.mpi,
        package=__version__,
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        nodes=topology.node_count,
        ranks_per_node=topology.ranks_per_node,
        cores_per_node=os.cpu_count() or 1,
        copies=made.copies(),
        node=made.within_a_node() if topology.ranks_per_node > 1 else None,
        network=made.between_nodes() if topology.node_count > 1 else None,
        device=None if on_gpus is None else _device_rates(on_gpus),
    )


def _device_rates(made: _Calibration) -> DeviceRates:
    launch = made.launch()
    to_main_memory, to_gpu = made.staging()
    return DeviceRates(
        name=made.gpu,
        launch=launch,
        kernels=Kernels(**made.kernels(launch)),
        to_main_memory=to_main_memory,
        to_gpu=to_gpu,
        node=Exchanges(**made.exchanges()) if made.topology.ranks_per_node > 1 else None,
        network=made.between_nodes() if made.topology.node_count > 1 else None,
    )


def _without(part: float, seconds: float | None) -> float:
    """Seconds without those of a part, of which noise may leave less than nothing."""
    whole = seconds or 0.0
    return max(whole - part, _LEAST_LEFT * whole)


#: What is left of seconds at least, as a part of them, where others are taken off.
_LEAST_LEFT = 0.05


def _curve(nbytes: Sequence[int], seconds: Sequence[float | None]) -> Curve:
    return Curve(nbytes=list(nbytes), seconds=[each or 0.0 for each in seconds])


#: Takes footprint and run length, returns seconds; None: cannot be measured.
_Measure = Callable[[int, int], "float | None"]


@dataclasses.dataclass
class _Calibration:
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

    def copies(self) -> Copies:
        """What each rank copies in its own memory."""
        copy, runs = self.timed.copy, self.sizes.runs
        return Copies(
            **self.kernels(),
            # into node-shared memory the copy that stays on a rank takes non-temporal stores much sooner
            non_temporal=self._surface(runs, lambda nbytes, run: copy("Shared", nbytes, Side(run), Side(0, True))),
        )

    def kernels(self, launch: float = 0.0) -> dict[str, Any]:
        """The fields of :class:`Kernels`, without seconds of a launch."""
        copy, side, runs = self.timed.copy, self._side, self.sizes.runs

        def surface(runs: Sequence[int], measure: _Measure) -> Surface:
            return self._surface(runs, lambda nbytes, run: _without(launch, measure(nbytes, run)))

        return {
            "pack": surface(runs, lambda nbytes, run: copy("Pack", nbytes, side(run), side())),
            "unpack": surface(runs, lambda nbytes, run: copy("Pack", nbytes, side(), side(run))),
            "permuted": surface(
                self.sizes.items, lambda nbytes, item: self.timed.transpose(nbytes, item, self._on_gpu)
            ),
        }

    def launch(self) -> float:
        """Seconds of a copy of nearly nothing."""
        return self.timed.copy("Pack", _TINY, self._side(), self._side())

    def staging(self) -> tuple[Curve, Curve]:
        """Copies of all sizes of messages from the GPU to pinned main memory, and from there."""
        copy, sizes = self.timed.copy, self.sizes.messages
        host, gpu = Side(), Side(on_gpu=True)
        copied = [copy("Pack", nbytes, host, host) for nbytes in sizes]  # from or to the pinned slot, too
        down = [copy("Pack", nbytes, gpu, host) for nbytes in sizes]
        up = [copy("Pack", nbytes, host, gpu) for nbytes in sizes]
        return _curve(sizes, list(map(_without, copied, down))), _curve(sizes, list(map(_without, copied, up)))

    def within_a_node(self) -> NodeRates:
        """What each rank of a node exchanges with the next one."""
        runs, staged = self.sizes.runs, self.sizes.staged_runs
        puts = self._contiguous("RMA")
        exchanges = self.exchanges({"datatypes": "Datatype", "puts": "RMA"})
        return NodeRates(
            **exchanges,
            puts=None if None in puts else _curve(self.sizes.messages, puts),
            datatypes=self._two_sides("Datatype", runs),
            staged=self._two_sides("Shared", staged),
            pull=self._two_sides("Shared", runs, shared_source=True),
            read=self._surface(
                self.sizes.read_runs, lambda nbytes, run: self._shift("Shared", nbytes, Side(run), Side(run))
            ),
            thread_start=max(1e-7, (self._tiny("Threaded") or 0.0) - (self._tiny("Pack") or 0.0)),
        )

    def staged_matrices(self) -> list[float]:
        """Seconds in which the ranks of a node move a matrix; none where each rank has a core."""
        if not self.comm.bcast(self.topology.ranks_per_node > (os.cpu_count() or 1)):  # nodes may differ
            return []
        seconds = [self.timed.all_to_all(self.node, "Shared", nbytes=nbytes) for nbytes in self.sizes.matrices]
        return [] if None in seconds else [each or 0.0 for each in seconds]

    def exchanges(self, further: Mapping[str, str] | None = None) -> dict[str, Any]:
        """
        The fields of :class:`Exchanges`.

        :param further: Strategies of further kinds of messages, whose latency is measured, too.
        """
        kinds = {"messages": "Pack", "shared": "Shared", **(further or {})}
        latencies = {kind: self._latency(strategy) for kind, strategy in kinds.items()}
        return {
            "messages": _curve(self.sizes.messages, self._contiguous("Pack")),
            "chunks": _curve(self.sizes.chunks, [self._chunk(nbytes) for nbytes in self.sizes.chunks]),
            "push": self._two_sides("Shared", self.sizes.runs) if self._on_gpu else self._pushed(latencies["shared"]),
            "latency": {kind: latency for kind, latency in latencies.items() if latency is not None},
        }

    def between_nodes(self) -> NetworkRates:
        """What one rank of each node, and what all of them, exchange with those of the next node."""
        positions = [self._position(rank) for rank in range(self.comm.size)]
        leaders = [rank for rank, position in enumerate(positions) if position == 0]
        least = min(Counter(self.topology.node_of).values())
        group: Any = self.comm.Split(positions[self.comm.rank], self.comm.rank)
        largest = self.sizes.messages[-1]

        def shift(nbytes: int) -> float | None:
            return self.timed.shift(self.comm, leaders, "Pipelined", nbytes, self._side(), self._side())

        def all_ranks(**options: Any) -> float:
            members, sides = range(group.size), (self._side(), self._side())
            seconds = self.timed.shift(group, members, "Pipelined", largest, *sides, **options)
            assert seconds is not None  # Pipelined can always be planned
            return seconds / (least * largest)

        measured = [shift(nbytes) for nbytes in self.sizes.messages]
        link = all_ranks()
        chunks = [nbytes * all_ranks(chunk_bytes=nbytes) for nbytes in self.sizes.network_chunks]
        group.Free()
        return NetworkRates(
            messages=_curve(self.sizes.messages, measured),
            link_seconds_per_byte=link,
            chunks=_curve(self.sizes.network_chunks, chunks),
        )

    @property
    def _on_gpu(self) -> bool:
        return self.gpu != ""

    def _side(self, run: int = 0, shared: bool = False) -> Side:
        return Side(run, shared, self._on_gpu)

    def _position(self, rank: int) -> int:
        """Number of a rank among those of its node."""
        return sum(node == self.topology.node_of[rank] for node in self.topology.node_of[:rank])

    def _surface(self, runs: Sequence[int], measure: _Measure) -> Surface:
        rows = [[(measure(nbytes, run) or 0.0) / max(nbytes, run) for run in runs] for nbytes in self.sizes.footprints]
        return Surface(footprints=list(self.sizes.footprints), runs=list(runs), seconds_per_byte=rows)

    def _two_sides(self, strategy: str, runs: Sequence[int], shared_source: bool = False) -> TwoSides:
        def strided(source: bool, target: bool) -> Surface:
            return self._surface(
                runs,
                lambda nbytes, run: self._shift(
                    strategy, nbytes, self._side(run * source, shared_source), self._side(run * target)
                ),
            )

        return TwoSides(sent=strided(True, False), received=strided(False, True))

    def _pushed(self, latency: Latency | None) -> TwoSides:
        """
        What each rank of a node writes into arrays of all: runs that are followed by those for, or from, the next rank.
        With gaps instead, caches would fetch lines that nobody needs, and none would be written by two ranks.

        :param latency: Of the messages, of which all but one are left out, as there is one in other exchanges.
        """
        ranks = self.node.size
        others = max(0, ranks - 2) * latency.message if latency is not None else 0.0

        def dealt(back: bool) -> Surface:
            def measure(nbytes: int, run: int) -> float | None:
                moved = max(nbytes, run * ranks)
                seconds = self.timed.dealt(self.node, "Shared", moved, run, shared=(False, True), back=back)
                return _without(others, seconds) * max(nbytes, run) / moved

            return self._surface(self.sizes.runs, measure)

        return TwoSides(sent=dealt(back=False), received=dealt(back=True))

    def _shift(self, strategy: str, nbytes: int, source: Side, target: Side, alone: bool = False) -> float | None:
        return self.timed.shift(self.node, range(self.node.size), strategy, nbytes, source, target, alone)

    def _tiny(self, strategy: str) -> float | None:
        return self._shift(strategy, _TINY, self._side(), self._side(), alone=True)

    def _contiguous(self, strategy: str) -> list[float | None]:
        return [self._shift(strategy, nbytes, self._side(), self._side()) for nbytes in self.sizes.messages]

    def _chunk(self, nbytes: int) -> float:
        """Seconds of a chunk."""
        whole = self.sizes.footprints[len(self.sizes.footprints) // 2]
        members, sides = range(self.node.size), (self._side(), self._side())
        seconds = self.timed.shift(self.node, members, "Pipelined", whole, *sides, chunk_bytes=nbytes)
        return (seconds or 0.0) * min(nbytes, whole) / whole

    def _latency(self, strategy: str) -> Latency | None:
        """From exchanges with one rank and with all: what each message adds, and what remains. None: a rank cannot."""
        one, every = self._tiny(strategy), self.timed.all_to_all(self.node, strategy, self._on_gpu)
        if one is None or every is None:
            return None
        others = self.topology.ranks_per_node - 1
        message = (every - one) / (others - 1) if others > 1 else 0.5 * one
        message = min(max(message, 1e-8), one)
        return Latency(exchange=max(0.0, one - message), message=message)
