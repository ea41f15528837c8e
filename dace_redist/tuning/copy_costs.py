"""The parts of the time of one rank, and its copies, from its messages and a machine profile."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from dace_redist.tuning.problem import Problem, sides_on_gpu
from dace_redist.tuning.profile import MachineProfile
from dace_redist.tuning.rates import DeviceRates, Exchanges, Kernels, NetworkRates, NodeRates, Surface
from dace_redist.tuning.traffic import RankTraffic, Runs, Traffic


@dataclasses.dataclass(frozen=True)
class Terms:
    """
    Parts of the time of a rank, in seconds.

    :param latency: Starting messages and handshakes, whatever their size.
    :param transfer: MPI's copies, copies straight from array to array, the wire between nodes.
    :param pack: Copies from the array into messages, by the library or by MPI's datatypes.
    :param unpack: Copies from messages into the array, and the self copy.
    :param wait: Idle time: the time of all ranks minus this rank's own work.
    """

    latency: float = 0.0
    transfer: float = 0.0
    pack: float = 0.0
    unpack: float = 0.0
    wait: float = 0.0

    @property
    def total(self) -> float:
        """Their sum."""
        return sum(self.by_name.values())

    @property
    def by_name(self) -> dict[str, float]:
        """The terms by their names."""
        return dataclasses.asdict(self)

    def scaled(self, factor: float) -> Terms:
        """Return all of them times a factor."""
        return Terms(**{name: factor * seconds for name, seconds in self.by_name.items()})

    def __add__(self, other: Terms) -> Terms:
        return Terms(**{name: seconds + getattr(other, name) for name, seconds in self.by_name.items()})


class CopyCosts:
    """
    Seconds of the copies of one redistribution on a machine, and the rates of the machine where its arrays lie.

    :param problem: The redistribution, and where its arrays lie.
    :param profile: The machine.
    """

    def __init__(self, problem: Problem, profile: MachineProfile) -> None:
        self.profile, self.on_gpu = profile, sides_on_gpu(problem.memory)
        axes, itemsize = problem.schedule.transform.axes, problem.schedule.itemsize
        #: Bytes of an element, if the axes are permuted; else 0.
        self.transposed = itemsize if axes is not None and list(axes) != sorted(axes) else 0
        self._found: dict[tuple[int, int, int], float] = {}  # lookups on surfaces

    def kernels(self, sent: bool) -> Kernels:
        """Return the copies out of the source (``sent``), or into the target: the GPU's where that lies there."""
        return self.device.kernels if self.on_gpu[not sent] else self.profile.copies

    @property
    def node(self) -> NodeRates:
        """Rates between ranks of a node in main memory; the profile must have them."""
        assert self.profile.node is not None
        return self.profile.node

    @property
    def device(self) -> DeviceRates:
        """Rates of GPUs; the profile must have them."""
        assert self.profile.device is not None
        return self.profile.device

    @property
    def exchanges(self) -> Exchanges:
        """Rates between ranks of a node, wherever the arrays lie; the profile must have them."""
        if not any(self.on_gpu):
            return self.node
        assert self.device.node is not None
        return self.device.node

    @property
    def network(self) -> NetworkRates | None:
        """Rates between nodes, wherever the arrays lie."""
        return self.device.network if any(self.on_gpu) else self.profile.network

    def copies(self, traffic: RankTraffic, sent: bool, piece: int | None) -> float:
        """Packing, or unpacking, of messages that are not contiguous, in pieces if any."""
        kernels, on_gpu, whole = self.kernels(sent), self.on_gpu[not sent], traffic.footprint(sent)
        surface = kernels.pack if sent else kernels.unpack
        always = any(self.on_gpu) and not on_gpu  # main memory opposite a GPU copies contiguous messages, too
        seconds = 0.0
        for message in (*traffic.side(sent), *self.own_between_memories(traffic)):
            if message.contiguous(sent) and not always:
                continue
            if on_gpu:  # a kernel for each message, or piece: the more it has to copy, the faster
                footprints = [message.nbytes if piece is None else min(message.nbytes, piece)]
            elif piece is None:  # buffers as large as the messages: twice the bytes of the profile's copies
                footprints = [2 * whole]
            else:  # the array does not stay in the cache, but the pieces do
                footprints = [whole, min(whole, piece)]
            rates = (self.copied(sent, surface, message.runs(sent), each) for each in footprints)
            seconds += message.times * sum(rates) / len(footprints)
        return seconds

    def self_copy(self, traffic: RankTraffic) -> float:
        """Return the time of the self copy within one memory."""
        own, footprint = traffic.own, traffic.max_footprint
        if not own.nbytes or self.own_between_memories(traffic):  # those are packed and unpacked as messages are
            return 0.0
        kernels = self.kernels(True)
        sent = self.copied(True, kernels.pack, own.sent, footprint)
        return sent + self.strides(True, kernels.unpack, own.received, footprint)

    def own_between_memories(self, traffic: RankTraffic) -> tuple[Traffic, ...]:
        """The self copy, if it goes between a GPU and main memory."""
        return (traffic.own,) if traffic.own.nbytes and self.on_gpu[0] != self.on_gpu[1] else ()

    def launches(self, traffic: RankTraffic) -> float:
        """The first kernel of a pipeline that packs, and the last one that unpacks, besides their copies."""
        own = self.own_between_memories(traffic)
        launched = (
            self.on_gpu[not sent] and any(not m.contiguous(sent) for m in (*traffic.side(sent), *own))
            for sent in (True, False)
        )
        return sum(launched) * self.device.launch

    def copied(self, sent: bool, surface: Surface, runs: Runs, footprint: int) -> float:
        """Copies of runs; runs of one element are transposed if the axes are permuted."""
        return sum(nbytes * self._at(used, footprint, run) for run, nbytes, used, _ in self._used(sent, surface, runs))

    def strides(self, sent: bool, surface: Surface, runs: Runs, footprint: int) -> float:
        """Copies of runs less those of the longest runs, each at least 0."""
        return sum(
            nbytes * max(0.0, self._at(used, footprint, run) - self._at(least, footprint, surface.runs[-1]))
            for run, nbytes, used, least in self._used(sent, surface, runs)
        )

    def _used(self, sent: bool, surface: Surface, runs: Runs) -> Iterable[tuple[int, int, Surface, Surface]]:
        """Each run, its bytes, the surface to look it up on, and the one that has the longest runs."""
        kernels = self.kernels(sent)
        for run, nbytes in runs:
            transposed = run == self.transposed
            yield run, nbytes, *((kernels.permuted, kernels.pack) if transposed else (surface, surface))

    def _at(self, surface: Surface, footprint: int, run: int) -> float:
        key = (id(surface), footprint, run)
        if key not in self._found:
            self._found[key] = surface.at(footprint, run)
        return self._found[key]
