"""What the parts of a rank's work take on a machine: a schedule's messages looked up in a machine profile."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable

from dace_redist._core import max_scattered_run, min_remote_run, several_receivers
from dace_redist.selection.curves import Curve, Surface, TwoSides
from dace_redist.selection.machine_profile import (
    DeviceRates,
    Exchanges,
    Kernels,
    MachineProfile,
    NetworkRates,
    NodeRates,
)
from dace_redist.selection.problem_key import sides_on_gpu
from dace_redist.selection.rank_traffic import RankTraffic, Runs, Traffic, times_within
from dace_redist.strategy_costs import Terms

#: Short runs of a source of so many bytes are not pulled by several receivers, see ``Handshake::scatters`` in
#: ``handshake.hpp``. The library takes half of the second-level cache, which is not in the profile, and of converted
#: elements the size in the source.
_LEAST_SCATTERED_BYTES = 512 << 10


@dataclasses.dataclass(frozen=True)
class Rates:
    """
    A machine profile as it is looked up for one redistribution; what was looked up is kept.

    :param profile: The profile.
    :param memory: Where the arrays lie, one of :data:`dace_redist.selection.problem_key.MEMORIES`.
    :param transposed: Bytes of an element, if the axes are permuted; else 0.
    :param ranks_per_node: Ranks that share a node.
    """

    profile: MachineProfile
    memory: str
    transposed: int
    ranks_per_node: int

    @functools.cached_property
    def look_up(self) -> Callable[[Surface, int, int], float]:
        """Seconds per byte on a surface at a footprint and a run length."""
        found: dict[tuple[int, int, int], float] = {}

        def at(surface: Surface, footprint: int, run: int) -> float:
            key = (id(surface), footprint, run)
            if key not in found:
                found[key] = surface.at(footprint, run)
            return found[key]

        return at

    @functools.cached_property
    def on_gpu(self) -> tuple[bool, bool]:
        """Whether source and target lie on a GPU."""
        return sides_on_gpu(self.memory)

    def kernels(self, sent: bool) -> Kernels:
        """What copies out of the source (``sent``), or into the target: the GPU where that lies there."""
        return self.device.kernels if self.on_gpu[not sent] else self.profile.copies

    def copied(self, kernels: Kernels, surface: Surface, runs: Runs, footprint: int) -> float:
        """Seconds to copy runs, given as bytes by length; runs of one element are transposed if the axes are."""
        seconds = 0.0
        for run, nbytes in runs:
            used = kernels.permuted if run == self.transposed else surface
            seconds += nbytes * self.look_up(used, footprint, run)
        return seconds

    def excess(self, kernels: Kernels, surface: Surface, runs: Runs, footprint: int) -> float:
        """The same without what the longest runs take."""
        least = self.look_up(surface, footprint, surface.runs[-1])
        return sum(
            nbytes
            * max(
                0.0,
                self.look_up(kernels.permuted, footprint, run) - self.look_up(kernels.pack, footprint, surface.runs[-1])
                if run == self.transposed
                else self.look_up(surface, footprint, run) - least,
            )
            for run, nbytes in runs
        )

    @property
    def node(self) -> NodeRates:
        """What moves between ranks of a node in main memory; only asked for where something does."""
        assert self.profile.node is not None
        return self.profile.node

    @property
    def device(self) -> DeviceRates:
        """What GPUs take; only asked for where an array lies on one."""
        assert self.profile.device is not None
        return self.profile.device

    @property
    def exchanges(self) -> Exchanges:
        """What moves between ranks of a node, wherever the arrays lie; only asked for where something does."""
        if not any(self.on_gpu):
            return self.node
        assert self.device.node is not None
        return self.device.node

    @property
    def network(self) -> NetworkRates | None:
        """What moves between nodes, wherever the arrays lie."""
        return self.device.network if any(self.on_gpu) else self.profile.network


@dataclasses.dataclass(frozen=True)
class RankWork:
    """
    What one rank has to do, and what each part of it takes on a machine, in seconds.

    :param traffic: What it sends, receives and keeps.
    :param rates: The machine.
    :param crosses: Whether anything leaves or enters its node.
    """

    traffic: RankTraffic
    rates: Rates
    crosses: bool

    def latency(self, kind: str) -> float:
        """An exchange and its messages; kind as in the machine profile."""
        traffic, seconds = self.traffic, 0.0
        within, leaving = (
            max(times_within(side, inside) for side in (traffic.sends, traffic.receives)) for inside in (True, False)
        )
        if within:
            of = self.rates.exchanges.latency[kind]
            seconds += of.exchange + within * of.message
        if leaving and self.rates.network is not None:
            seconds += leaving * self.rates.network.messages.latency
        return seconds

    def messages(self, piece: float | None = None) -> float:
        """All messages over MPI within the node, without their latencies; in pieces of so many bytes."""
        seconds = self._moved(lambda: self.rates.exchanges.messages, piece)
        for own in self._own_between_memories:
            device = self.rates.device
            seconds += (device.to_main_memory if self.rates.on_gpu[0] else device.to_gpu).at(own.nbytes)
        return seconds

    def puts(self) -> float:
        """All messages within the node put into a window."""
        return self._moved(lambda: self.rates.node.puts or self.rates.node.messages, None)

    def can_put(self) -> bool:
        """Whether MPI has windows."""
        return self.rates.profile.node is None or self.rates.node.puts is not None

    def _moved(self, curve_of: Callable[[], Curve], piece: float | None) -> float:
        """Messages within the node; those between nodes take the link, which the node's ranks share."""
        footprint, seconds = max(self.traffic.sent_bytes, self.traffic.received_bytes), 0.0
        sides = zip((self.traffic.sends, self.traffic.receives), self._transferred, strict=True)
        for message in (message for side, transferred in sides if transferred for message in side):
            if not message.within or not message.nbytes:
                continue
            if piece is not None and message.nbytes > piece:
                per_byte = self.rates.exchanges.chunks.at(piece) / piece
            else:
                per_byte = self._per_byte(curve_of(), message, footprint)
            seconds += 0.5 * message.all_bytes * per_byte  # what was measured is of a message sent and one received
        return seconds

    @property
    def _transferred(self) -> tuple[bool, bool]:
        """Whether sent and received messages are transferred: opposite a GPU main memory is only copied."""
        return (True, True) if not any(self.rates.on_gpu) else self.rates.on_gpu

    @staticmethod
    def _per_byte(curve: Curve, message: Traffic, footprint: int) -> float:
        """
        Of a message: as one of its size, or as one of all that the rank has, if that is slower. Not less than nothing,
        where noise has made the least message the slowest.
        """
        return max(0.0, *((curve.at(each) - curve.latency) / each for each in (message.nbytes, footprint)))

    def pieces(self, nbytes: float) -> float:
        """What messages between nodes take more if they are cut into pieces of so many bytes."""
        network = self.rates.network
        if network is None or network.chunks is not None:  # the time of chunks was measured with all that they take
            return 0.0
        sides = ([m for m in side if not m.within] for side in (self.traffic.sends, self.traffic.receives))
        more = max(sum(m.times * max(0.0, m.nbytes / nbytes - 1) for m in side) for side in sides)
        return more * network.messages.latency / _PIECES_IN_FLIGHT

    def packed(self, piece: float | None = None) -> float:
        """What is not contiguous where it is sent from, copied into messages, or pieces, of so many bytes."""
        kernels, always = self.rates.kernels(sent=True), not self._transferred[0]
        messages = (*self.traffic.sends, *self._own_between_memories)
        runs = [(m.times, m.sent) for m in messages if always or not m.one_run_sent]
        if self.rates.on_gpu[0]:
            return self._by_kernels(kernels, kernels.pack, runs, piece)
        return self._copied(kernels, kernels.pack, runs, self.traffic.sent_bytes, piece)

    def unpacked(self, piece: float | None = None) -> float:
        """The same where it arrives."""
        kernels, always = self.rates.kernels(sent=False), not self._transferred[1]
        messages = (*self.traffic.receives, *self._own_between_memories)
        runs = [(m.times, m.received) for m in messages if always or not m.one_run_received]
        if self.rates.on_gpu[1]:
            return self._by_kernels(kernels, kernels.unpack, runs, piece)
        return self._copied(kernels, kernels.unpack, runs, self.traffic.received_bytes, piece)

    def _by_kernels(
        self, kernels: Kernels, surface: Surface, messages: Iterable[tuple[int, Runs]], piece: float | None
    ) -> float:
        """A kernel of the GPU for each message, or piece: the more it has to copy, the faster."""
        seconds = 0.0
        for times, runs in messages:
            nbytes = sum(of_this_length for _, of_this_length in runs)
            footprint = nbytes if piece is None else min(nbytes, int(piece))
            seconds += times * self.rates.copied(kernels, surface, runs, footprint)
        return seconds

    def _copied(
        self,
        kernels: Kernels,
        surface: Surface,
        messages: Iterable[tuple[int, Runs]],
        footprint: int,
        piece: float | None,
    ) -> float:
        """
        Whole messages lie in buffers as large as the arrays: all is twice what the profile's copies have in use.
        Pieces stay in the cache, but the array does not: half of the copy is as fast as the cache is.
        """
        seconds = 0.0
        for times, runs in messages:
            if piece is None:
                seconds += times * self.rates.copied(kernels, surface, runs, 2 * footprint)
            else:
                small = self.rates.copied(kernels, surface, runs, min(footprint, int(piece)))
                seconds += 0.5 * times * (self.rates.copied(kernels, surface, runs, footprint) + small)
        return seconds

    def put_unpacked(self) -> float:
        """What strides cost where messages arrive; the time of a put has contiguous ones copied out already."""
        kernels, footprint = self.rates.kernels(sent=False), 2 * self.traffic.received_bytes
        return sum(
            m.times * self.rates.excess(kernels, kernels.unpack, m.received, footprint) for m in self.traffic.receives
        )

    def kept(self) -> float:
        """What stays on the rank; between memories it is packed and unpacked as messages are."""
        own, kernels = self.traffic.own, self.rates.kernels(sent=True)
        if not own.nbytes or self._own_between_memories:
            return 0.0
        footprint = max(self.traffic.sent_bytes, self.traffic.received_bytes)
        sent = self.rates.copied(kernels, kernels.pack, own.sent, footprint)
        return sent + self.rates.excess(kernels, kernels.unpack, own.received, footprint)

    def typed(self, sent: bool) -> float:
        """What strides cost MPI's datatypes, where messages are sent from or where they arrive."""
        traffic, seconds = self.traffic, 0.0
        footprint = traffic.sent_bytes if sent else traffic.received_bytes
        for message in traffic.sends if sent else traffic.receives:
            runs, kernels = message.sent if sent else message.received, self.rates.kernels(sent)
            if not message.within:  # MPI copies what it cannot send as it lies
                surface = kernels.pack if sent else kernels.unpack
                seconds += message.times * self.rates.copied(kernels, surface, runs, footprint)
            elif not (message.one_run_sent and message.one_run_received):
                both, plain = self.rates.node.datatypes, self._per_byte(self.rates.node.messages, message, footprint)
                seconds += 0.5 * message.all_bytes * max(0.0, both.contiguous(footprint) - plain)
                strided = self.rates.excess(kernels, both.sent if sent else both.received, runs, footprint)
                seconds += message.times * strided
        return seconds

    def threads(self, wanted: int) -> float:
        """Cores that so many threads of this rank can have; 0: what OpenMP would take."""
        share = self.rates.profile.cores_per_node / self.rates.ranks_per_node
        return max(1.0, min(wanted or share, share))

    def thread_start(self) -> float:
        """Starting threads for all copies."""
        copies = sum(message.times for message in (*self.traffic.sends, *self.traffic.receives)) + 1
        return copies * self.rates.node.thread_start if self.rates.profile.node is not None else 0.0

    def shared(self) -> Terms:
        """Messages within the node through its memory, each by the protocol that the library would take."""
        traffic = self.traffic
        moved = [*(self._shared(m, True) for m in traffic.sends), *(self._shared(m, False) for m in traffic.receives)]
        terms = [sum(parts) for parts in zip(*moved, strict=True)] or [0.0, 0.0, 0.0]
        return Terms(self.within_latency(), terms[0], terms[1], terms[2] + self.kept())

    def within_latency(self) -> float:
        """Agreeing with the partners on the node."""
        within = max(times_within(side, True) for side in (self.traffic.sends, self.traffic.receives))
        if not within:
            return 0.0
        of = self.rates.exchanges.latency["shared"]
        return of.exchange + within * of.message

    def _shared(self, message: Traffic, sends: bool) -> tuple[float, float, float]:
        """Transfer, pack and unpack of a message by the protocol of its pair, on the side of its sender or receiver."""
        if not message.within:
            return 0.0, 0.0, 0.0
        protocol = self._protocol(message)
        footprint = self.traffic.sent_bytes if sends else self.traffic.received_bytes
        if protocol == "staged":
            staged = self.rates.node.staged
            side, runs = (staged.sent, message.sent) if sends else (staged.received, message.received)
            seconds = 0.5 * message.all_bytes * staged.contiguous(footprint)
            seconds += message.times * self.rates.excess(self.rates.kernels(sends), side, runs, footprint)
            wait = self.rates.node.staged_wait
            if wait is not None and self.rates.ranks_per_node > self.rates.profile.cores_per_node:
                seconds *= wait.at(footprint)
            return (0.0, seconds, 0.0) if sends else (0.0, 0.0, seconds)
        if sends != (protocol == "push"):  # the partner copies
            return 0.0, 0.0, 0.0
        if protocol == "read":
            return message.all_bytes * self.rates.node.read.at(footprint, message.shortest_run), 0.0, 0.0
        both = self.rates.exchanges.push if protocol == "push" else self.rates.node.pull
        return self._copied_once(message, both, footprint), 0.0, 0.0

    def _copied_once(self, message: Traffic, both: TwoSides, footprint: int) -> float:
        kernels = self.rates.kernels(sent=True)
        sent = self.rates.excess(kernels, both.sent, message.sent, footprint)
        received = self.rates.excess(kernels, both.received, message.received, footprint)
        return message.times * (message.nbytes * both.contiguous(footprint) + sent + received)

    def _protocol(self, message: Traffic) -> str:
        """
        What the library takes, see ``Handshake::best_protocol`` in ``handshake.hpp``; but for what depends on more than
        this message: whose runs are longer where both arrays are shared, and who has less to copy.
        """
        memory = self.rates.memory
        if memory in ("shared-target", "shared-both", "gpu"):
            return "push"
        if memory == "shared-source":
            return "staged" if self._scatters(message) else "pull"
        return "read" if message.shortest_run >= min_remote_run else "staged"

    def _scatters(self, message: Traffic) -> bool:
        """Whether its sender, supposed to send what this rank does, has short runs of a large source for several."""
        longest = max((run for run, _ in message.sent), default=0)
        within = sum(each.all_bytes for each in self.traffic.sends if each.within) + self.traffic.own.nbytes
        return (
            longest <= max_scattered_run
            and longest != self.rates.transposed  # of permuted axes: such runs mostly lie beside each other
            and within >= _LEAST_SCATTERED_BYTES
            and times_within(self.traffic.sends, True) >= several_receivers
        )

    def network(self, wanted: Callable[[Traffic], bool] = lambda _: True) -> RankWork:
        """The same rank with nothing but those of its messages to other nodes that are ``wanted``."""
        return dataclasses.replace(self, traffic=self.traffic.to_other_nodes(wanted))

    def joined_latency(self) -> float:
        """Its share of one message for each other node, and agreeing with the ranks of its node on each of them."""
        nodes, network, seconds = self.traffic.nodes, self.rates.network, 0.0
        if nodes and network is not None:
            seconds += nodes / self.rates.ranks_per_node * network.messages.latency
        if nodes and self.rates.profile.node is not None:
            of = self.rates.node.latency["shared"]
            seconds += of.exchange + nodes * of.message
        return seconds

    def leaves_node(self) -> bool:
        """Whether any rank of the node sends to, or receives from, another node."""
        return self.crosses

    @property
    def both_on_gpu(self) -> bool:
        """Whether source and target lie on a GPU."""
        return all(self.rates.on_gpu)

    @property
    def _own_between_memories(self) -> tuple[Traffic, ...]:
        """What stays on the rank, if it goes between a GPU and main memory."""
        own = self.traffic.own
        return (own,) if own.nbytes and any(self.rates.on_gpu) and not self.both_on_gpu else ()

    def piece_count(self, piece: float | None = None) -> float:
        """Messages that it sends or receives, whichever are more; in pieces of so many bytes."""
        sides = ((*side, *self._own_between_memories) for side in (self.traffic.sends, self.traffic.receives))
        return max(sum(m.times * max(1.0, m.nbytes / (piece or m.nbytes or 1)) for m in side) for side in sides)

    def launches(self) -> float:
        """What the first kernel of a pipeline that packs, and the last one that unpacks, take besides their copies."""
        traffic, own, (packs, unpacks) = self.traffic, self._own_between_memories, self.rates.on_gpu
        kernels = (
            packs and any(not message.one_run_sent for message in (*traffic.sends, *own)),
            unpacks and any(not message.one_run_received for message in (*traffic.receives, *own)),
        )
        return sum(kernels) * self.rates.device.launch


_PIECES_IN_FLIGHT = 4  # a piece's latency is hidden behind the others in flight
