"""Bytes on the links of a network. Start reading at: LinkLoads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dace_redist.simulation.network import Array, Network


class LinkLoads:
    """
    Bytes that each link carries in one exchange, and the longest route.

    :param network: The network.
    :param node_of: Node of each rank.
    """

    def __init__(self, network: Network, node_of: Array) -> None:
        self._network, self._node_of = network, node_of
        self.nbytes = np.zeros(len(network.rates))
        self.longest = 0

    def add(self, senders: Array, receivers: Array, nbytes: Array) -> None:
        """
        Messages of an exchange.

        :param senders: Rank that sends each.
        :param receivers: Rank that receives each; those on the sender's node take no link.
        :param nbytes: Size of each.
        """
        sources, targets = self._node_of[senders], self._node_of[receivers]
        leaving = sources != targets
        sources, targets, nbytes = sources[leaving], targets[leaving], nbytes[leaving]
        if not len(sources):
            return
        lengths = np.zeros(len(sources), np.int64)
        for which, links in self._network.routes(sources, targets):
            self.nbytes += np.bincount(links, nbytes[which], len(self.nbytes))
            lengths[which] += 1
        self.longest = max(self.longest, int(lengths.max()))

    def busiest(self) -> Iterator[tuple[int, float, float]]:
        """Of each kind that carries anything the link that takes longest: its number, bytes and seconds."""
        first = 0
        for kind in self._network.kinds:
            link = first + int(np.argmax(self.nbytes[first : first + kind.count]))
            first += kind.count
            if self.nbytes[link]:
                yield link, float(self.nbytes[link]), float(self.nbytes[link] / kind.rate)

    @property
    def latency(self) -> float:
        """What the longest route takes more than one between neighbours."""
        return max(0, self.longest - 2) * self._network.hop
