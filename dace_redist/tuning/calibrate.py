"""Measures a machine profile on the ranks of an MPI job. Start reading at: calibrate."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mpi4py import MPI

from dace_redist._version import __version__
from dace_redist.mpi.collective_errors import checked_communicator, together
from dace_redist.mpi.core_binding import pinned_to_core
from dace_redist.mpi.topology import Topology, topology_of
from dace_redist.redistribution.plan_cache import forget_choices
from dace_redist.selection import machine_profile
from dace_redist.selection.curves import Curve, Latency, Surface, TwoSides
from dace_redist.selection.machine_profile import Copies, MachineProfile, NetworkRates, NodeRates
from dace_redist.selection.paths import profile_path
from dace_redist.tuning.progress import progress_bar
from dace_redist.tuning.timed_exchanges import Side, TimedExchanges

_CONTIGUOUS, _TINY = Side(), 8
#: All is measured so often, and the fastest counts: a machine that does other work too is slow for seconds at a time.
_ROUNDS = 3


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
    """

    footprints: Sequence[int] = (32 << 10, 512 << 10, 4 << 20, 16 << 20)
    runs: Sequence[int] = (8, 32, 128, 512, 2048, 8192, 32768)
    read_runs: Sequence[int] = (16 << 10, 128 << 10, 1 << 20)
    items: Sequence[int] = (4, 8, 16, 64)
    messages: Sequence[int] = (_TINY, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20)
    chunks: Sequence[int] = (8 << 10, 60 << 10, 512 << 10)
    network_chunks: Sequence[int] = (15 << 10, 60 << 10, 120 << 10, 1 << 20)

    @property
    def staged_runs(self) -> Sequence[int]:
        """Runs that are not left to the kernel."""
        return [run for run in self.runs if run < 16 << 10]

    @property
    def count(self) -> int:
        """Measurements on one node, and as many again at most between nodes."""
        surfaces = 9 * len(self.runs) + 2 * len(self.staged_runs) + len(self.read_runs) + len(self.items)
        return (
            len(self.footprints) * surfaces + 3 * len(self.messages) + len(self.chunks) + 12 + len(self.network_chunks)
        )


def calibrate(
    comm: Any = None,
    *,
    output: str | os.PathLike[str] | None = None,
    sizes: Sizes | None = None,
    limit_seconds: float = 45.0,
    progress: bool = True,
) -> MachineProfile:
    """
    Measures what copies and messages take on this machine, and writes the machine profile. Collective over ``comm``.

    Start it with as many ranks on each node as programs will have; all work at the same time.

    :param comm: mpi4py communicator; default: the world.
    :param output: File to write; default: ``DACE_REDIST_MACHINE``, else one in the user's data folder.
    :param sizes: What to measure; default: up to 16 MiB.
    :param limit_seconds: Time for the measurements; each is made at least once.
    :param progress: Whether to show how far it is.
    :return: The profile, the same on every rank.
    :raises TypeError: On every rank, if something is of the wrong type.
    :raises OSError: On every rank, if the file cannot be written; checked before measuring.
    """
    comm = checked_communicator(comm)
    with together(comm):
        path = profile_path(output)
        if comm.rank == 0:
            _check_writable(path)
    sizes, topology = sizes or Sizes(), topology_of(comm)
    node = comm.Split(topology.node_of[comm.rank], comm.rank)
    with progress_bar(progress and comm.rank == 0, "calibrate", limit_seconds) as show, pinned_to_core(comm):
        most, count = max(*sizes.footprints, *sizes.read_runs, *sizes.messages), _ROUNDS * sizes.count
        timed = TimedExchanges(comm, most, limit_seconds, count, show)
        rounds = [_profile(_Calibration(comm, node, topology, sizes, timed)) for _ in range(_ROUNDS)]
        made: MachineProfile = comm.bcast(machine_profile.fastest(rounds))
    node.Free()
    with together(comm):
        if comm.rank == 0:
            machine_profile.save(made, path)
    forget_choices(comm)
    return made


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


def _profile(made: _Calibration) -> MachineProfile:
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
    )


def _curve(nbytes: Sequence[int], seconds: Sequence[float | None]) -> Curve:
    return Curve(nbytes=list(nbytes), seconds=[each or 0.0 for each in seconds])


#: Takes footprint and run length, returns seconds; None: cannot be measured.
_Measure = Callable[[int, int], "float | None"]


@dataclasses.dataclass
class _Calibration:
    """The measurements of a profile, all collective over ``comm``; ``node`` has the ranks of this rank's node."""

    comm: MPI.Intracomm
    node: MPI.Intracomm
    topology: Topology
    sizes: Sizes
    timed: TimedExchanges

    def copies(self) -> Copies:
        """What each rank copies in its own memory."""
        copy, runs = self.timed.copy, self.sizes.runs
        return Copies(
            pack=self._surface(runs, lambda nbytes, run: copy("Pack", nbytes, Side(run), _CONTIGUOUS)),
            unpack=self._surface(runs, lambda nbytes, run: copy("Pack", nbytes, _CONTIGUOUS, Side(run))),
            permuted=self._surface(self.sizes.items, self.timed.transpose),
            # into node-shared memory the copy that stays on a rank takes non-temporal stores much sooner
            non_temporal=self._surface(runs, lambda nbytes, run: copy("Shared", nbytes, Side(run), Side(0, True))),
        )

    def within_a_node(self) -> NodeRates:
        """What each rank of a node exchanges with the next one."""
        runs, staged = self.sizes.runs, self.sizes.staged_runs
        puts = self._contiguous("RMA")
        return NodeRates(
            messages=_curve(self.sizes.messages, self._contiguous("Pack")),
            chunks=_curve(self.sizes.chunks, [self._chunk(nbytes) for nbytes in self.sizes.chunks]),
            puts=None if None in puts else _curve(self.sizes.messages, puts),
            datatypes=self._two_sides("Datatype", runs),
            staged=self._two_sides("Shared", staged),
            push=self._two_sides("Shared", runs, shared_target=True),
            pull=self._two_sides("Shared", runs, shared_source=True),
            read=self._surface(
                self.sizes.read_runs, lambda nbytes, run: self._shift("Shared", nbytes, Side(run), Side(run))
            ),
            latency={
                kind: self._latency(strategy)
                for kind, strategy in (
                    ("messages", "Pack"),
                    ("datatypes", "Datatype"),
                    ("puts", "RMA"),
                    ("shared", "Shared"),
                )
            },
            thread_start=max(1e-7, (self._tiny("Threaded") or 0.0) - (self._tiny("Pack") or 0.0)),
        )

    def between_nodes(self) -> NetworkRates:
        """What one rank of each node, and what all of them, exchange with those of the next node."""
        positions = [self._position(rank) for rank in range(self.comm.size)]
        leaders = [rank for rank, position in enumerate(positions) if position == 0]
        least = min(Counter(self.topology.node_of).values())
        group: Any = self.comm.Split(positions[self.comm.rank], self.comm.rank)
        largest = self.sizes.messages[-1]

        def shift(nbytes: int) -> float | None:
            return self.timed.shift(self.comm, leaders, "Pipelined", nbytes, _CONTIGUOUS, _CONTIGUOUS)

        def all_ranks(**options: Any) -> float:
            seconds = self.timed.shift(
                group, range(group.size), "Pipelined", largest, _CONTIGUOUS, _CONTIGUOUS, **options
            )
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

    def _position(self, rank: int) -> int:
        """Number of a rank among those of its node."""
        return sum(node == self.topology.node_of[rank] for node in self.topology.node_of[:rank])

    def _surface(self, runs: Sequence[int], measure: _Measure) -> Surface:
        rows = [[(measure(nbytes, run) or 0.0) / max(nbytes, run) for run in runs] for nbytes in self.sizes.footprints]
        return Surface(footprints=list(self.sizes.footprints), runs=list(runs), seconds_per_byte=rows)

    def _two_sides(
        self, strategy: str, runs: Sequence[int], shared_source: bool = False, shared_target: bool = False
    ) -> TwoSides:
        def strided(source: bool, target: bool) -> Surface:
            return self._surface(
                runs,
                lambda nbytes, run: self._shift(
                    strategy, nbytes, Side(run * source, shared_source), Side(run * target, shared_target)
                ),
            )

        return TwoSides(sent=strided(True, False), received=strided(False, True))

    def _shift(self, strategy: str, nbytes: int, source: Side, target: Side, alone: bool = False) -> float | None:
        return self.timed.shift(self.node, range(self.node.size), strategy, nbytes, source, target, alone)

    def _tiny(self, strategy: str) -> float | None:
        return self._shift(strategy, _TINY, _CONTIGUOUS, _CONTIGUOUS, alone=True)

    def _contiguous(self, strategy: str) -> list[float | None]:
        return [self._shift(strategy, nbytes, _CONTIGUOUS, _CONTIGUOUS) for nbytes in self.sizes.messages]

    def _chunk(self, nbytes: int) -> float:
        """Seconds of a chunk."""
        whole = self.sizes.footprints[len(self.sizes.footprints) // 2]
        members = range(self.node.size)
        seconds = self.timed.shift(self.node, members, "Pipelined", whole, _CONTIGUOUS, _CONTIGUOUS, chunk_bytes=nbytes)
        return (seconds or 0.0) * min(nbytes, whole) / whole

    def _latency(self, strategy: str) -> Latency:
        """From exchanges with one rank and with all: what each message adds, and what remains."""
        one, every = self._tiny(strategy) or 0.0, self.timed.all_to_all(self.node, strategy) or 0.0
        others = self.topology.ranks_per_node - 1
        message = (every - one) / (others - 1) if others > 1 else 0.5 * one
        message = min(max(message, 1e-8), one)
        return Latency(exchange=max(0.0, one - message), message=message)
