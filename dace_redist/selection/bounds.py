"""The bound on a redistribution of Cao et al., *Evaluating Data Redistribution in PaRSEC*, section 7.2."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from dace_redist.report.text import format_bytes

if TYPE_CHECKING:
    from dace_redist.selection.cost_model import CostModel


def parsec_bound(remote: float, local: float, rate: float, memory_rate: float) -> float:
    """
    Formula 5 without its extra time: the highest bandwidth, in bytes per second, that formula 3 can come to.

    :param remote: M_remote, in bytes, > 0.
    :param local: M_local, in bytes.
    :param rate: B_net, in bytes per second.
    :param memory_rate: B_memory, in bytes per second.
    """
    return rate * memory_rate / ((2 + local / remote) * rate + memory_rate)


@dataclasses.dataclass(frozen=True)
class Bound:
    """
    What formulas 3 and 5 need. The process of the paper is a rank where all are on one node, else a node.

    :param remote: M_remote: the most that a process sends or receives, in bytes.
    :param local: M_local: the most that stays in one, in bytes.
    :param rate: B_net, in bytes per second: of messages between ranks of a node, or of a node's link.
    :param memory_rate: B_memory, in bytes per second: copies of one rank, or of as many as a node has cores.
    """

    remote: int
    local: int
    rate: float
    memory_rate: float

    @classmethod
    def of(cls, model: CostModel) -> Bound:
        """For a redistribution on a machine."""
        profile, rates = model.profile, model.rates
        copies = rates.kernels(sent=True).pack
        copied = 1 / copies.at(copies.footprints[-1], copies.runs[-1])
        nodes = model.traffic
        if len(set(model.node_of)) > 1 and rates.network is not None:
            remote, local = [0], [0]
            for node, ranks in nodes.items():
                sent = sum(m.all_bytes for rank in ranks for m in rank.sends if not m.within)
                received = sum(m.all_bytes for rank in ranks for m in rank.receives if not m.within)
                remote.append(round(max(sent, received) / model.share(node)))
                local.append(round((sum(rank.sent_bytes for rank in ranks) - sent) / model.share(node)))
            cores = min(profile.cores_per_node, profile.ranks_per_node) * profile.turns
            return cls(max(remote), max(local), 1 / rates.network.link_seconds_per_byte, cores * copied)
        every = [rank for ranks in nodes.values() for rank in ranks]
        rate = copied if profile.node is None else rates.exchanges.messages.rate
        most_remote, most_local = max(r.remote_bytes for r in every), max(r.own.nbytes for r in every)
        return cls(most_remote, most_local, rate, copied)

    @property
    def bandwidth(self) -> float:
        """Formula 5, in bytes per second; 0 if nothing moves between processes."""
        return parsec_bound(self.remote, self.local, self.rate, self.memory_rate) if self.remote else 0.0

    def share(self, seconds: float) -> float:
        """Which part of the bound is reached in so many seconds: formula 3 to formula 5."""
        return self.remote / seconds / self.bandwidth

    def __str__(self) -> str:
        """The bound, and what it is of."""
        if not self.remote:
            return "none: nothing moves between processes"
        return (
            f"{format_bytes(self.remote)} in {1e3 * self.remote / self.bandwidth:.4g} ms, {1e-9 * self.bandwidth:.3g} "
            f"GB/s (formula 5 of Cao et al.; messages at {1e-9 * self.rate:.3g} GB/s, copies at "
            f"{1e-9 * self.memory_rate:.3g} GB/s, two of what moves)"
        )
