"""
The time that each strategy takes, as formulas: what one rank does, in seconds. The table of strategies names them.

Formulas are after Cao et al., *Evaluating Data Redistribution in PaRSEC*, section 7 (formula 2, T = T_communication +
T_memory + T_extra, with one term of T_memory for each copy), and after Lundwall et al., *Accelerating Redistribution of
Tensors*, section 3, for what each strategy does. Start reading at: packed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dace_redist._core import max_joined_bytes

if TYPE_CHECKING:
    from dace_redist.selection.rank_work import RankWork


@dataclasses.dataclass(frozen=True)
class Terms:
    """
    Where the time of a rank goes, in seconds.

    :param latency: Starting messages and agreeing with partners, whatever their size.
    :param transfer: Bytes on their way: MPI's copies, copies straight from array to array, the wire between nodes.
    :param pack: Copies from the array into messages, by the library or by MPI's datatypes.
    :param unpack: Copies from messages into the array, and of what stays on the rank.
    :param wait: What is left of the time of all: for a core, or for the slowest rank.
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
        """All of them times a factor."""
        return Terms(**{name: factor * seconds for name, seconds in self.by_name.items()})


#: Seconds of one rank for what it has to do and a value for every option; None: it cannot do it.
CostFormula = Callable[["RankWork", Mapping[str, Any]], "Terms | None"]


def datatypes(work: RankWork, _: Mapping[str, Any]) -> Terms:
    """Contiguous messages, and what MPI takes for strides on both sides."""
    return Terms(work.latency("datatypes"), work.messages(), work.typed(True), work.typed(False) + work.kept())


def packed(work: RankWork, _: Mapping[str, Any]) -> Terms:
    """Pack, send, unpack, one after another: ``T = latency + M / B_mpi + M / B_pack + M / B_unpack``."""
    return Terms(work.latency("messages"), work.messages(), work.packed(), work.unpacked() + work.kept())


def threaded(work: RankWork, options: Mapping[str, Any]) -> Terms:
    """As :func:`packed`, copies divided by the cores that the threads of a rank have."""
    terms, cores = packed(work, options), work.threads(options["threads"])
    return Terms(terms.latency + work.thread_start(), terms.transfer, terms.pack / cores, terms.unpack / cores)


def chunks(work: RankWork, options: Mapping[str, Any]) -> Terms:
    """Pieces that stay in the cache: each is packed, sent and unpacked for itself, at the price of more messages."""
    piece = min(options["chunk_bytes"], options["max_message_bytes"])
    latency = work.latency("messages") + work.pieces(piece)
    return Terms(latency, work.messages(piece), work.packed(piece), work.unpacked(piece) + work.kept())


def puts(work: RankWork, _: Mapping[str, Any]) -> Terms | None:
    """Pack, put, synchronise, unpack out of the window."""
    if not work.can_put():
        return None
    return Terms(work.latency("puts"), work.puts(), work.packed(), work.put_unpacked() + work.kept())


def shared(work: RankWork, _: Mapping[str, Any]) -> Terms | None:
    """Each message by the protocol of its pair; no way to other nodes."""
    return None if work.leaves_node() else work.shared()


def hierarchical(work: RankWork, options: Mapping[str, Any]) -> Terms:
    """:func:`shared` within the node, and :func:`chunks` of what leaves it."""
    within = work.shared()
    if not work.leaves_node():
        return within
    return _sum(within, chunks(work.network(), options))


def aggregated(work: RankWork, options: Mapping[str, Any]) -> Terms:
    """:func:`hierarchical`, but short messages to other nodes cost one message for all ranks of a node."""
    within = work.shared()
    if not work.leaves_node():
        return within
    most = min(options["chunk_bytes"], max_joined_bytes)
    alone, joined = work.network(lambda m: m.nbytes > most), work.network(lambda m: m.nbytes <= most)
    together = Terms(joined.joined_latency(), 0.0, joined.packed(), joined.unpacked())
    return _sum(within, chunks(alone, options), together)


def packed_on_gpu(work: RankWork, options: Mapping[str, Any]) -> Terms:
    """:func:`packed` by kernels; those of a message run beside the transfers of others."""
    return _overlapped(packed(work, options), work.piece_count(), work.launches())


def chunks_on_gpu(work: RankWork, options: Mapping[str, Any]) -> Terms:
    """:func:`chunks` by kernels; those of a chunk run beside the transfers of others."""
    piece = min(options["chunk_bytes"], options["max_message_bytes"])
    return _overlapped(chunks(work, options), work.piece_count(piece), work.launches())


def _overlapped(terms: Terms, pieces: float, launches: float) -> Terms:
    """
    Pieces of which some are copied while others are transferred: all of the longer of both, and of the shorter what one
    piece takes. The first launch of a kernel and the last one are waited for.
    """
    exposed = 1 / max(1.0, pieces)
    copied, transferred = (exposed, 1.0) if terms.pack + terms.unpack <= terms.transfer else (1.0, exposed)
    latency, transfer = terms.latency + launches, transferred * terms.transfer
    return Terms(latency, transfer, copied * terms.pack, copied * terms.unpack)


def shared_on_gpu(work: RankWork, options: Mapping[str, Any]) -> Terms | None:
    """
    One kernel of the sender writes into the arrays of all receivers, where the GPUs reach each other; in
    :func:`chunks_on_gpu` if one array lies in main memory.
    """
    return None if work.leaves_node() else hierarchical_on_gpu(work, options)


def hierarchical_on_gpu(work: RankWork, options: Mapping[str, Any]) -> Terms:
    """:func:`shared_on_gpu` within the node, and :func:`chunks_on_gpu` of what leaves it."""
    if not work.both_on_gpu:
        return chunks_on_gpu(work, options)
    within = work.shared()
    return _sum(within, chunks_on_gpu(work.network(), options)) if work.leaves_node() else within


def _sum(*terms: Terms) -> Terms:
    return Terms(*(sum(parts) for parts in zip(*(one.by_name.values() for one in terms), strict=True)))
