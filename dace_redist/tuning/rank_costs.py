"""
The time of one rank by each strategy, from its messages and a machine profile.

Formulas are after Cao et al., *Evaluating Data Redistribution in PaRSEC*, section 7 (formula 2, T = T_communication +
T_memory + T_extra, with one term of T_memory for each copy), and after Lundwall et al., *Accelerating Redistribution of
Tensors*, section 3, for what each strategy does. Start reading at: RankCosts.estimate.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from typing import Any

from dace_redist._core import max_eager_bytes
from dace_redist.strategies import STRATEGIES
from dace_redist.tuning.problem import PLACES, Problem, sides_on_gpu
from dace_redist.tuning.profile import Copies, DeviceRates, MachineProfile, NodeRates, Rates, Surface
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
        return dict(vars(self))

    def __mul__(self, factor: float) -> Terms:
        return Terms(*(factor * seconds for seconds in vars(self).values()))

    def __add__(self, other: Terms) -> Terms:
        return Terms(*map(operator.add, vars(self).values(), vars(other).values()))


class RankCosts:
    """
    Seconds of one rank, for one redistribution on a machine.

    :param problem: The redistribution, and where its arrays lie.
    :param profile: The machine; with a section of GPUs if an array lies there.
    :param ranks_per_node: Ranks that share a node.
    """

    def __init__(self, problem: Problem, profile: MachineProfile, ranks_per_node: int) -> None:
        self._profile, self._ranks_per_node = profile, ranks_per_node
        self._on_gpu = sides_on_gpu(problem.memory)
        self._mixed = self._on_gpu[0] != self._on_gpu[1]
        #: Copies and exchanges of the memory that messages are in; between a GPU and main memory that is the latter.
        self.rates: Rates = self._device if all(self._on_gpu) else profile
        source, target = (place == "shared" for place in PLACES[problem.memory])
        direct = "push" if target or all(self._on_gpu) else "pull" if source else "staged"
        if problem.schedule.reduces and not all(self._on_gpu):  # the receiver reduces all of an element at once
            direct = "pull" if source else "staged"
        self._direct = direct  # protocol of messages that are not eager
        axes, itemsize = problem.schedule.transform.axes, problem.schedule.itemsize
        self._transposed = itemsize if axes is not None and list(axes) != sorted(axes) else 0  # length of such runs
        self._found: dict[tuple[int, int, int], float] = {}  # lookups on surfaces

    def estimate(self, strategy: str, traffic: RankTraffic, options: Mapping[str, Any], crosses: bool) -> Terms | None:
        """
        Return the time of one rank by a strategy; None if the model does not know it, or it cannot move this.

        :param traffic: Messages of the rank.
        :param options: A value for every option.
        :param crosses: Whether any rank of the node sends to, or receives from, another node.
        """
        if any(self._on_gpu) and not STRATEGIES[strategy].on_gpus:
            return None
        if strategy == "RMA" and self._profile.node is not None and "puts" not in self._node.latency:
            return None  # no windows
        if strategy == "Datatype":
            return self._datatype(traffic)
        if strategy == "Threaded":  # 0 threads: one per core of the rank
            share = self._profile.cores_per_node / self._ranks_per_node
            return self._chunk(traffic, cores=max(1.0, min(options["threads"] or share, share)))
        piece = int(min(options["chunk_bytes"], options["max_message_bytes"]))
        if strategy == "Shared" and crosses:
            return None
        if strategy in ("Pack", "RMA"):
            return self._chunk(traffic, kind="puts" if strategy == "RMA" else "messages")
        if strategy == "Pipelined" or self._mixed:
            return self._chunk(traffic, piece)
        leaving = traffic.only(lambda m: not m.within)
        most = min(options["chunk_bytes"], STRATEGIES[strategy].joined_bytes)
        if leaving.count(lambda m: m.nbytes <= most) < STRATEGIES[strategy].min_joined:
            most = -1
        alone, joined = leaving.only(lambda m: m.nbytes > most), leaving.only(lambda m: m.nbytes <= most)
        return self._through_node(traffic) + self._chunk(alone, piece) + self._join(joined)

    # Transports

    def _datatype(self, traffic: RankTraffic) -> Terms:
        """MPI's derived datatypes: contiguous messages, and the excess of strided ones, half of it on each side."""
        footprint, leaving = traffic.max_footprint, traffic.only(lambda m: not m.within)
        unpack, pack = (self._copies(leaving, sent) for sent in (False, True))  # as Pack does
        for sent in (True, False):
            for m in traffic.side(sent):
                if m.within and not (m.contiguous(True) and m.contiguous(False)):
                    plain = m.total_bytes * self._node.messages.seconds_per_byte(m.nbytes, footprint)
                    excess = 0.5 * max(0.0, m.times * self._moved(self._node.datatypes, m.both, footprint) - plain)
                    pack, unpack = (pack + excess, unpack) if sent else (pack, unpack + excess)
        transfer = self._transfer(traffic)
        return Terms(self._latency(traffic, "datatypes"), transfer, pack, unpack + self._own(traffic))

    def _chunk(self, traffic: RankTraffic, piece: int | None = None, cores: float = 1, kind: str = "messages") -> Terms:
        """
        Pack, send and unpack: ``T = latency + M / B_mpi + M / B_pack + M / B_unpack``, of whole messages or of pieces.

        GPUs pack and unpack some messages or pieces while others are transferred: all of the longer of both counts, and
        of the shorter the part of one piece. Puts, the ``kind`` of RMA, are all copied out of the window.
        """
        latency, transfer = self._latency(traffic, kind), self._transfer(traffic, piece)
        pack, unpack = (self._copies(traffic, sent, piece, kind == "puts" and not sent) for sent in (True, False))
        unpack += self._own(traffic)
        if not any(self._on_gpu):
            return Terms(latency, transfer, pack / cores, unpack / cores)
        if self._mixed:
            curve = self._device.to_main_memory if self._on_gpu[0] else self._device.to_gpu
            transfer += sum(m.times * curve.at(m.nbytes) for m in self._messages(traffic, self._on_gpu[0]))
        launched = [self._on_gpu[not sent] and bool(self._packed(traffic, sent)) for sent in (True, False)]
        pieces = max(
            sum(m.times * max(1.0, m.nbytes / (piece or m.nbytes or 1)) for m in self._messages(traffic, sent))
            for sent in (True, False)
        )
        exposed = 1 / max(1.0, pieces)
        copied, transferred = (exposed, 1.0) if pack + unpack <= transfer else (1.0, exposed)
        latency += sum(launched) * self._device.launch
        return Terms(latency, transferred * transfer, copied * pack, copied * unpack)

    def _join(self, traffic: RankTraffic) -> Terms:
        """Its share of one message for each other node, and a handshake with the ranks of its node on each of them."""
        nodes, seconds = traffic.nodes, 0.0
        if nodes and self.rates.network is not None:
            seconds += nodes / self._ranks_per_node * self.rates.network.messages.latency
        if nodes and self.rates.node is not None:
            shared = self._node.latency["shared"]
            seconds += shared.exchange + nodes * shared.message
        return Terms(seconds, 0.0, self._copies(traffic, True), self._copies(traffic, False))

    def _through_node(self, traffic: RankTraffic) -> Terms:
        """Messages within the node and the self copy through the node's memory, each by the library's protocol."""
        within = traffic.only(lambda m: m.within)
        terms = Terms(self._latency(within, "shared"), unpack=self._own(traffic))
        if within.sends or within.receives:
            handshake = self._node.latency.get("handshake")
            longer = within.count(lambda m: m.nbytes > max_eager_bytes)
            terms += Terms(longer * handshake.message if handshake is not None else 0.0)
        for sends in (True, False):
            footprint = traffic.footprint(sends)
            for message in within.side(sends):
                protocol = self._protocol(message)
                seconds = message.times * self._moved(getattr(self._node, protocol), message.both, footprint)
                if protocol == "staged":
                    terms += Terms(pack=0.5 * seconds) if sends else Terms(unpack=0.5 * seconds)
                elif sends == (protocol == "push"):  # else the partner copies
                    terms += Terms(transfer=seconds)
        return terms

    # Parts

    @property
    def _node(self) -> NodeRates:
        """Rates between ranks of a node; the profile must have them."""
        assert self.rates.node is not None
        return self.rates.node

    @property
    def _device(self) -> DeviceRates:
        assert self._profile.device is not None
        return self._profile.device

    def copies(self, sent: bool) -> Copies:
        """Return the copies out of the source (``sent``), or into the target: the GPU's where that lies there."""
        return self._device.copies if self._on_gpu[not sent] else self._profile.copies

    def _protocol(self, message: Traffic) -> str:
        """The protocol of a message, see ``NodeTransport::best_protocol``, but for what depends on others."""
        return "staged" if message.nbytes <= max_eager_bytes and not all(self._on_gpu) else self._direct

    def _latency(self, traffic: RankTraffic, kind: str) -> float:
        """An exchange and its messages; ``kind`` as in the machine profile."""
        within, leaving = traffic.count(lambda m: m.within), traffic.count(lambda m: not m.within)
        seconds = 0.0
        if within:
            latency = self._node.latency[kind]
            seconds += latency.exchange + within * latency.message
        if leaving and self.rates.network is not None:
            seconds += leaving * self.rates.network.messages.latency
        return seconds

    def _transfer(self, traffic: RankTraffic, piece: int | None = None) -> float:
        """Messages within the node, half of each on either side; those between nodes take the node's link."""
        seconds = 0.0
        for m in (*traffic.sends, *traffic.receives):
            if m.within and m.nbytes:
                curve = self._node.messages
                if piece is not None and m.nbytes > piece:
                    per_byte = curve.at(piece) / piece
                else:  # messages of a large array are as slow as large ones
                    per_byte = curve.seconds_per_byte(m.nbytes, traffic.max_footprint)
                seconds += 0.5 * m.total_bytes * per_byte
        return seconds

    def _messages(self, traffic: RankTraffic, sent: bool) -> list[Traffic]:
        """The messages of a side; between a GPU and main memory the self copy is one of them."""
        return [*traffic.side(sent), *([traffic.own] if self._mixed and traffic.own.nbytes else [])]

    def _packed(self, traffic: RankTraffic, sent: bool, every: bool = False) -> list[Traffic]:
        """Messages that are copied on a side: not contiguous ones, but all in main memory opposite a GPU."""
        every = every or (self._mixed and not self._on_gpu[not sent])
        return [m for m in self._messages(traffic, sent) if every or not m.contiguous(sent)]

    def _copies(self, traffic: RankTraffic, sent: bool, piece: int | None = None, every: bool = False) -> float:
        """Packing, or unpacking, with buffers of all messages, or of a piece, in use besides the array."""
        whole = traffic.footprint(sent)
        footprint, seconds = whole + min(whole, piece or whole), 0.0
        for m in self._packed(traffic, sent, every):
            used = min(m.nbytes, piece or m.nbytes) if self._on_gpu[not sent] else footprint  # GPUs: that of a kernel
            seconds += m.times * self._copied(sent, m.sent if sent else m.received, used)
        return seconds

    def _own(self, traffic: RankTraffic) -> float:
        """The self copy within one memory."""
        return 0.0 if self._mixed else self._copied(True, traffic.own.both, traffic.max_footprint)

    def _copied(self, sent: bool, runs: Runs, footprint: int) -> float:
        """Copies of runs; runs of one element are transposed if the axes are permuted."""
        copies = self.copies(sent)
        usual = copies.pack if sent else copies.unpack
        return sum(
            self._moved(copies.permuted if run == self._transposed else usual, ((run, nbytes),), footprint)
            for run, nbytes in runs
        )

    def _moved(self, surface: Surface | None, runs: Runs, footprint: int) -> float:
        assert surface is not None  # a profile of main memory has all of them
        seconds = 0.0
        for run, nbytes in runs:
            key = (id(surface), footprint, run)
            if key not in self._found:
                self._found[key] = surface.at(footprint, run)
            seconds += nbytes * self._found[key]
        return seconds
