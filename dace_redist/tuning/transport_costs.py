"""
The time that one rank spends in each transport of the library, from its messages and a machine profile.

Formulas are after Cao et al., *Evaluating Data Redistribution in PaRSEC*, section 7 (formula 2, T = T_communication +
T_memory + T_extra, with one term of T_memory for each copy), and after Lundwall et al., *Accelerating Redistribution of
Tensors*, section 3, for what each strategy does. Start reading at: TransportCosts.estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dace_redist._core import max_eager_bytes, max_joined_bytes, max_scattered_run, min_remote_run, several_receivers
from dace_redist.strategies import STRATEGIES
from dace_redist.tuning.copy_costs import CopyCosts, Terms
from dace_redist.tuning.problem import MODELLED, Problem
from dace_redist.tuning.profile import MachineProfile
from dace_redist.tuning.rates import Curve, TwoSides
from dace_redist.tuning.traffic import RankTraffic, Traffic

#: A source of fewer bytes is not large, see ``NodeTransport::best_protocol``. The library takes half of the
#: second-level cache, which is not in the profile.
_MIN_SCATTERED_BYTES = 512 << 10
#: The latency of a chunk is hidden behind the others in flight.
_CHUNKS_IN_FLIGHT = 4


class TransportCosts:
    """
    Seconds of one rank in each transport, for one redistribution on a machine.

    :param problem: The redistribution, and where its arrays lie.
    :param profile: The machine.
    :param ranks_per_node: Ranks that share a node.
    """

    def __init__(self, problem: Problem, profile: MachineProfile, ranks_per_node: int) -> None:
        self.profile, self.ranks_per_node = profile, ranks_per_node
        self.rates = CopyCosts(problem, profile)
        self._memory, self._reduces = problem.memory, problem.schedule.reduces
        self._on_gpu = any(self.rates.on_gpu)

    # Strategies

    def estimate(self, strategy: str, traffic: RankTraffic, options: Mapping[str, Any], crosses: bool) -> Terms | None:
        """
        Return the time of one rank by a strategy; None if the model does not know it, or it cannot move this.

        :param traffic: Messages of the rank.
        :param options: A value for every option.
        :param crosses: Whether any rank of the node sends to, or receives from, another node.
        """
        if strategy not in MODELLED or (self._on_gpu and not STRATEGIES[strategy].on_gpus):
            return None
        piece = int(min(options["chunk_bytes"], options["max_message_bytes"]))
        simple: dict[str, Callable[[RankTraffic], Terms | None]] = {
            "Datatype": self._datatype,
            "Pack": self._chunk,
            "Threaded": partial(self._threaded, wanted=options["threads"]),
            "Pipelined": partial(self._chunk, piece=piece),
            "RMA": self._put,
        }
        if strategy in simple:
            return simple[strategy](traffic)
        if strategy == "Shared" and crosses:
            return None
        if self._on_gpu and not all(self.rates.on_gpu):
            return self._chunk(traffic, piece)
        if not crosses:
            return self._through_node(traffic)
        if strategy == "Hierarchical":
            return self._through_node(traffic) + self._chunk(traffic.to_other_nodes(), piece)
        most = min(options["chunk_bytes"], max_joined_bytes)
        joined, alone = (
            traffic.to_other_nodes(wanted) for wanted in (lambda m: m.nbytes <= most, lambda m: m.nbytes > most)
        )
        return self._through_node(traffic) + self._chunk(alone, piece) + self._join(joined)

    # Transports

    def _datatype(self, traffic: RankTraffic) -> Terms:
        """MPI's derived datatypes: contiguous messages, and what MPI takes for strides on both sides."""
        pack, unpack = (self._strides_of_datatypes(traffic, sent) for sent in (True, False))
        transfer = self._transfer(traffic, lambda: self.rates.exchanges.messages)
        return Terms(self._latency(traffic, "datatypes"), transfer, pack, unpack + self.rates.self_copy(traffic))

    def _chunk(self, traffic: RankTraffic, piece: int | None = None) -> Terms:
        """
        Pack, send and unpack: ``T = latency + M / B_mpi + M / B_pack + M / B_unpack``, of whole messages or of pieces.

        Pieces stay in the cache, at the price of more messages. GPUs pack and unpack some pieces while others are
        transferred: all of the longer of both counts, and of the shorter what one piece takes.
        """
        transfer = self._transfer(traffic, lambda: self.rates.exchanges.messages, piece)
        for own in self.rates.own_between_memories(traffic):
            transfer += (self.rates.device.to_main_memory if self.rates.on_gpu[0] else self.rates.device.to_gpu).at(
                own.nbytes
            )
        latency = self._latency(traffic, "messages") + self._chunking_latency(traffic, piece)
        pack, unpack = (self.rates.copies(traffic, sent, piece) for sent in (True, False))
        unpack += self.rates.self_copy(traffic)
        if self._on_gpu:
            exposed = 1 / max(1.0, self._piece_count(traffic, piece))
            copied, transferred = (exposed, 1.0) if pack + unpack <= transfer else (1.0, exposed)
            latency += self.rates.launches(traffic)
            return Terms(latency, transferred * transfer, copied * pack, copied * unpack)
        return Terms(latency, transfer, pack, unpack)

    def _threaded(self, traffic: RankTraffic, wanted: int) -> Terms:
        """Whole messages, copies divided by the cores that a rank has; 0 threads: as many as OpenMP would take."""
        terms = self._chunk(traffic)
        share = self.profile.cores_per_node / self.ranks_per_node
        cores = max(1.0, min(wanted or share, share))
        copies = sum(message.times for message in (*traffic.sends, *traffic.receives)) + 1
        start = copies * self.rates.node.thread_start if self.profile.node is not None else 0.0
        return Terms(terms.latency + start, terms.transfer, terms.pack / cores, terms.unpack / cores)

    def _put(self, traffic: RankTraffic) -> Terms | None:
        """Pack, put, synchronise, unpack out of the window; None if MPI has no windows."""
        if self.profile.node is not None and self.rates.node.puts is None:
            return None
        transfer = self._transfer(traffic, lambda: self.rates.node.puts or self.rates.node.messages)
        # the time of a put contains a contiguous copy out of the window
        surface, footprint = self.rates.kernels(False).unpack, 2 * traffic.footprint(False)
        unpack = sum(m.times * self.rates.strides(False, surface, m.received, footprint) for m in traffic.receives)
        pack = self.rates.copies(traffic, True, None)
        return Terms(self._latency(traffic, "puts"), transfer, pack, unpack + self.rates.self_copy(traffic))

    def _join(self, traffic: RankTraffic) -> Terms:
        """Its share of one message for each other node, and a handshake with the ranks of its node on each of them."""
        nodes, seconds = traffic.nodes, 0.0
        if nodes and self.rates.network is not None:
            seconds += nodes / self.ranks_per_node * self.rates.network.messages.latency
        if nodes and self.profile.node is not None:
            shared = self.rates.node.latency["shared"]
            seconds += shared.exchange + nodes * shared.message
        return Terms(seconds, 0.0, self.rates.copies(traffic, True, None), self.rates.copies(traffic, False, None))

    def _through_node(self, traffic: RankTraffic) -> Terms:
        """Messages within the node and the self copy through the node's memory, each by the library's protocol."""
        within = traffic.count(lambda m: m.within)
        latency = 0.0
        if within:
            kinds = self.rates.exchanges.latency
            latency = kinds["shared"].exchange + within * kinds["shared"].message
            if "handshake" in kinds:
                longer = traffic.count(lambda m: m.within and m.nbytes > max_eager_bytes)
                latency += longer * kinds["handshake"].message
        terms = Terms(latency, unpack=self.rates.self_copy(traffic))
        for sends in (True, False):
            for message in traffic.side(sends):
                if message.within:
                    terms += self._within(traffic, message, sends)
        return terms

    # Parts

    def _within(self, traffic: RankTraffic, message: Traffic, sends: bool) -> Terms:
        """A message by the protocol of its pair, on the side of its sender or of its receiver."""
        protocol, footprint = self._protocol(traffic, message), traffic.footprint(sends)
        if protocol == "staged":
            staged = self.rates.node.staged
            seconds = 0.5 * message.total_bytes * staged.contiguous(footprint)
            surface = staged.sent if sends else staged.received
            seconds += message.times * self.rates.strides(sends, surface, message.runs(sends), footprint)
            wait = self.rates.node.staged_wait
            shares_cores = self.ranks_per_node > self.profile.cores_per_node
            if wait is not None and shares_cores and message.nbytes > max_eager_bytes:
                seconds *= wait.at(footprint)
            return Terms(pack=seconds) if sends else Terms(unpack=seconds)
        if sends != (protocol == "push"):  # the partner copies
            return Terms()
        if protocol == "read":
            return Terms(transfer=message.total_bytes * self.rates.node.read.at(footprint, message.min_run))
        both: TwoSides = self.rates.exchanges.push if protocol == "push" else self.rates.node.pull
        strides = self.rates.strides(True, both.sent, message.sent, footprint)
        strides += self.rates.strides(True, both.received, message.received, footprint)
        return Terms(transfer=message.times * (message.nbytes * both.contiguous(footprint) + strides))

    def _protocol(self, traffic: RankTraffic, message: Traffic) -> str:
        """
        The protocol that the library takes, see ``NodeTransport::best_protocol``, except for what depends on more than
        this message: whose runs are longer where both arrays are shared, and who has less to copy.
        """
        if self._on_gpu:
            return "push"
        shared_source = self._memory in ("shared-source", "shared-both")
        if message.nbytes <= max_eager_bytes:
            return "staged"
        if self._reduces:  # the receiver reduces all partial results of an element at once
            return "pull" if shared_source else "staged"
        if self._memory in ("shared-target", "shared-both"):
            return "push"
        if shared_source:
            return "staged" if self._scatters(traffic, message) else "pull"
        return "read" if message.min_run >= min_remote_run else "staged"

    def _scatters(self, traffic: RankTraffic, message: Traffic) -> bool:
        """
        True for short runs of a large source with several receivers, which the library stages.

        The sender's messages are assumed to look like this rank's.
        """
        max_run = max((run for run, _ in message.sent), default=0)
        within = sum(each.total_bytes for each in traffic.sends if each.within) + traffic.own.nbytes
        return (
            max_run <= max_scattered_run
            and max_run != self.rates.transposed  # of permuted axes: such runs mostly lie beside each other
            and within >= _MIN_SCATTERED_BYTES
            and sum(each.times for each in traffic.sends if each.within) >= several_receivers
        )

    def _latency(self, traffic: RankTraffic, kind: str) -> float:
        """An exchange and its messages over MPI; ``kind`` as in the machine profile."""
        within, leaving = traffic.count(lambda m: m.within), traffic.count(lambda m: not m.within)
        seconds = 0.0
        if within:
            latency = self.rates.exchanges.latency[kind]
            seconds += latency.exchange + within * latency.message
        if leaving and self.rates.network is not None:
            seconds += leaving * self.rates.network.messages.latency
        return seconds

    def _chunking_latency(self, traffic: RankTraffic, piece: int | None) -> float:
        """Extra latency of cutting messages between nodes into pieces."""
        if piece is None or self.rates.network is None or self.rates.network.chunks is not None:  # which contain it
            return 0.0
        sides = ([m for m in side if not m.within] for side in (traffic.sends, traffic.receives))
        more = max(sum(m.times * max(0.0, m.nbytes / piece - 1) for m in side) for side in sides)
        return more * self.rates.network.messages.latency / _CHUNKS_IN_FLIGHT

    def _transfer(self, traffic: RankTraffic, curve: Callable[[], Curve], piece: int | None = None) -> float:
        """Messages within the node without their latencies; those between nodes take the node's link."""
        seconds = 0.0
        for sent in (True, False):
            if self._on_gpu and not self.rates.on_gpu[not sent]:  # opposite a GPU main memory is only copied
                continue
            for message in traffic.side(sent):
                if not message.within or not message.nbytes:
                    continue
                if piece is not None and message.nbytes > piece:
                    per_byte = self.rates.exchanges.chunks.at(piece) / piece
                else:
                    per_byte = self._per_byte(curve(), message, traffic.max_footprint)
                seconds += 0.5 * message.total_bytes * per_byte  # measured with a message sent and one received
        return seconds

    @staticmethod
    def _per_byte(curve: Curve, message: Traffic, footprint: int) -> float:
        """
        Seconds per byte: the slower of the rates for the message's size and for the rank's footprint. At least 0, since
        noise can make the smallest message the slowest.
        """
        return max(0.0, *((curve.at(each) - curve.latency) / each for each in (message.nbytes, footprint)))

    def _strides_of_datatypes(self, traffic: RankTraffic, sent: bool) -> float:
        seconds, footprint, kernels = 0.0, traffic.footprint(sent), self.rates.kernels(sent)
        for message in traffic.side(sent):
            runs = message.runs(sent)
            if not message.within:  # MPI copies what it cannot send as it lies
                surface = kernels.pack if sent else kernels.unpack
                seconds += message.times * self.rates.copied(sent, surface, runs, footprint)
            elif not (message.contiguous(True) and message.contiguous(False)):
                both, plain = self.rates.node.datatypes, self._per_byte(self.rates.node.messages, message, footprint)
                seconds += 0.5 * message.total_bytes * max(0.0, both.contiguous(footprint) - plain)
                strided = self.rates.strides(sent, both.sent if sent else both.received, runs, footprint)
                seconds += message.times * strided
        return seconds

    def _piece_count(self, traffic: RankTraffic, piece: int | None) -> float:
        """Pieces that it sends or receives, whichever are more."""
        sides = ((*side, *self.rates.own_between_memories(traffic)) for side in (traffic.sends, traffic.receives))
        return max(sum(m.times * max(1.0, m.nbytes / (piece or m.nbytes or 1)) for m in side) for side in sides)
