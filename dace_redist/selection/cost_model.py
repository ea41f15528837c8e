"""
How long each strategy would take for a redistribution on a machine, without moving anything. Start at: CostModel.

A node's ranks share its cores and its link: its time is that of its busiest rank, or of all its ranks' work divided by
the cores, whichever is longer, and that of the link, which strategies that work in pieces overlap with copies.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from dace_redist.schedule import Schedule
from dace_redist.selection.machine_profile import MachineProfile, NetworkRates
from dace_redist.selection.problem_key import Problem
from dace_redist.selection.rank_traffic import RankTraffic, Traffic
from dace_redist.selection.rank_work import RankWork, Rates
from dace_redist.strategies import STRATEGIES, default_options, with_options
from dace_redist.strategy_costs import Terms

#: Messages that are looked at, about: all, or those of evenly spread ranks of evenly spread nodes.
MAX_MODELLED_MESSAGES = 4000
_LEAST_RANKS = 4  # however many messages they have
#: Chunks of another size than the default are taken if they are to take less than this part of the time.
_CLEARLY_FASTER_CHUNKS = 0.9


@dataclasses.dataclass(frozen=True)
class Estimate:
    """
    The time of one strategy.

    :param strategy: Its name.
    :param options: Options that are not at their defaults.
    :param terms: Where the time of the busiest rank goes; they add up to the time of all.
    """

    strategy: str
    options: Mapping[str, int | float]
    terms: Terms

    @property
    def seconds(self) -> float:
        """The time of all ranks together."""
        return self.terms.total

    @property
    def bottleneck(self) -> str:
        """The name of the largest term."""
        return max(self.terms.by_name.items(), key=lambda term: term[1])[0]

    def __str__(self) -> str:
        """The strategy with its options."""
        return with_options(self.strategy, self.options)


@dataclasses.dataclass(frozen=True)
class CostModel:
    """
    The times of a redistribution on a machine.

    :param problem: The redistribution, and where its arrays lie.
    :param profile: The machine.
    :param node_of: Number of the node of each rank.
    :param link_seconds: What the busiest link between the nodes takes, in seconds; None: nodes share none.
    :param route_latency: What the longest route between two nodes adds to the latency of an exchange, in seconds.
    :raises ValueError: If the profile has no figures of several ranks on a node, and there are.
    """

    problem: Problem
    profile: MachineProfile
    node_of: Sequence[int]
    link_seconds: float | None = None
    route_latency: float = 0.0

    def __post_init__(self) -> None:
        if self.profile.node is None and self._ranks_per_node > 1:
            raise ValueError(
                f"the machine profile was made with one rank per node, and has no figures of {self._ranks_per_node} on "
                "a node: take one per node (--ranks-per-node 1), or calibrate with several"
            )

    def estimates(self, strategies: Sequence[str] = ()) -> list[Estimate]:
        """
        Strategies with their default options, the fastest first.

        :param strategies: Their names; default: every one that the model knows.
        """
        made = (self.estimate(name) for name in strategies or STRATEGIES)
        return sorted((one for one in made if one is not None), key=lambda one: one.seconds)

    def estimate(self, strategy: str, options: Mapping[str, Any] | None = None) -> Estimate | None:
        """
        The time of a strategy; None if the model does not know it, or it cannot move this.

        :param options: Options that are not at their defaults.
        """
        formula = STRATEGIES[strategy].formula(self.problem.on_gpu)
        if formula is None:
            return None
        given = dict(options or {})
        values = default_options(self.problem.on_gpu) | given
        network, chunk = self.rates.network, self._chunk_bytes(strategy, values)
        slowest: Terms | None = None
        for node, ranks in self._nodes.items():
            terms = [formula(rank, values) for rank in ranks]
            if any(one is None for one in terms):
                return None
            known = [
                dataclasses.replace(one, latency=one.latency + self.route_latency) for one in terms if one is not None
            ]
            wire = _wire_seconds(network, ranks, chunk) / self.share(node)
            found = self._of_node(known, ranks, self.share(node), wire, chunk)
            if slowest is None or found.total > slowest.total:
                slowest = found
        return Estimate(strategy, given, slowest or Terms())

    def with_best_options(self, strategy: str) -> Estimate | None:
        """
        As :meth:`estimate`, with the options that make it clearly faster than the default ones: the size of chunks
        between nodes, where the profile tells sizes apart. Others make no difference that was ever measured.
        """
        usual = self.estimate(strategy)
        network = self.rates.network
        crosses = any(work.crosses for ranks in self._nodes.values() for work in ranks)
        if usual is None or network is None or network.chunks is None or not crosses:
            return usual
        if "chunk_bytes" not in STRATEGIES[strategy].options:
            return usual
        tried = [self.estimate(strategy, {"chunk_bytes": nbytes}) for nbytes in network.chunks.nbytes]
        best = min((one for one in tried if one is not None), key=lambda one: one.seconds)
        return best if best.seconds < _CLEARLY_FASTER_CHUNKS * usual.seconds else usual

    def _of_node(
        self, terms: Sequence[Terms], ranks: Sequence[RankWork], share: float, wire: float, chunk: int | None
    ) -> Terms:
        """
        The terms of the busiest rank of a node with what it waits for, from those of its ranks.

        :param wire: What the node's link takes, in seconds.
        :param chunk: Bytes of the chunks in which ranks copy while the link is at work; None: they do not. The link
            waits for the first one, and the last one is unpacked when the link has done its work.
        """
        own = [one.scaled(1 / self.profile.turns) for one in terms]  # seconds that a rank has a core for
        busiest = max(own, key=lambda one: one.total)
        copying = max(busiest.total, sum(one.total for one in own) / share / self.profile.cores_per_node)
        wire = wire if self.link_seconds is None else self.link_seconds
        whole = copying + wire
        if chunk is not None:
            whole = max(copying, wire) + min(copying, wire) * _largest_share(ranks, chunk)
        exposed = whole - copying  # of the wire
        spent = dataclasses.replace(busiest, transfer=busiest.transfer + exposed)
        return dataclasses.replace(spent, wait=max(0.0, whole - spent.total))

    def _chunk_bytes(self, strategy: str, options: Mapping[str, Any]) -> int | None:
        """Bytes of the chunks in which a strategy copies while messages are on their way; None: it does not."""
        if not STRATEGIES[strategy].overlaps:
            return None
        return int(min(options["chunk_bytes"], options["max_message_bytes"]))

    @cached_property
    def _ranks_by_node(self) -> dict[int, list[int]]:
        by_node = defaultdict[int, list[int]](list)
        for rank in range(self.problem.schedule.ranks):
            by_node[self.node_of[rank]].append(rank)
        return by_node

    @cached_property
    def _ranks_per_node(self) -> int:
        return max(map(len, self._ranks_by_node.values()), default=1)

    def _looked_at(self) -> dict[int, list[int]]:
        """Some ranks of some nodes, evenly spread; all where that is not too much."""
        schedule, by_node = self.problem.schedule, self._ranks_by_node
        each = max(1, 2 * max(len(schedule.sent_to(rank)[0]) for rank in (0, schedule.ranks // 2)))
        most = max(_LEAST_RANKS, MAX_MODELLED_MESSAGES // each)
        nodes = sorted(by_node)[:: -(-len(by_node) * self._ranks_per_node // max(most, self._ranks_per_node))]
        return {node: by_node[node][:: -(-len(by_node[node]) // most)] for node in nodes}

    @cached_property
    def _nodes(self) -> dict[int, list[RankWork]]:
        """The ranks that are looked at, by their node."""
        return {node: self._work(ranks) for node, ranks in self._looked_at().items()}

    @cached_property
    def rates(self) -> Rates:
        """The machine, as it is looked up for this redistribution."""
        transposed = _transposed(self.problem.schedule)
        return Rates(self.profile, self.problem.memory, transposed, self._ranks_per_node)

    def _work(self, ranks: Sequence[int]) -> list[RankWork]:
        """What ranks of one node have to do."""
        traffic = [RankTraffic.of(self.problem.schedule, rank, self.node_of) for rank in ranks]
        crosses = any(not m.within for one in traffic for m in (*one.sends, *one.receives))
        return [RankWork(one, self.rates, crosses) for one in traffic]

    def terms_of_ranks(self, strategy: str, options: Mapping[str, Any] | None = None) -> Iterator[tuple[int, Terms]]:
        """
        What every rank does by itself, node by node: without waiting for its core, the link or other ranks.

        :param strategy: Its name; one that the model knows, and that can move this.
        :param options: Options that are not at their defaults.
        """
        formula = STRATEGIES[strategy].formula(self.problem.on_gpu)
        assert formula is not None
        values = default_options(self.problem.on_gpu) | dict(options or {})
        for ranks in self._ranks_by_node.values():
            for rank, work in zip(ranks, self._work(ranks), strict=True):
                terms = formula(work, values)
                assert terms is not None
                yield rank, terms.scaled(1 / self.profile.turns)

    def share(self, node: int) -> float:
        """Which part of the ranks of a node is looked at."""
        return len(self._nodes[node]) / len(self._ranks_by_node[node])

    @property
    def traffic(self) -> dict[int, list[RankTraffic]]:
        """What the ranks that are looked at send, receive and keep, by their node."""
        return {node: [rank.traffic for rank in ranks] for node, ranks in self._nodes.items()}


def _wire_seconds(network: NetworkRates | None, ranks: Sequence[RankWork], chunk: int | None) -> float:
    """What leaves or enters a node, whichever is more, over its link; in chunks of so many bytes, if any."""
    if network is None:
        return 0.0

    def seconds(messages: Iterable[Traffic]) -> float:
        crossing = [m for m in messages if not m.within]
        if chunk is None:
            return network.link_seconds_per_byte * sum(m.all_bytes for m in crossing)
        return sum(m.all_bytes * network.seconds_per_byte(min(m.nbytes, chunk)) for m in crossing)

    sent = seconds(m for rank in ranks for m in rank.traffic.sends)
    return max(sent, seconds(m for rank in ranks for m in rank.traffic.receives))


def _largest_share(ranks: Iterable[RankWork], chunk: int) -> float:
    """The largest chunk as a part of what a rank sends to, or receives from, other nodes: of the busiest rank."""
    sides = (side for rank in ranks for side in (rank.traffic.sends, rank.traffic.receives))
    crossing = [[m for m in side if not m.within] for side in sides]
    busiest = max(crossing, key=lambda side: sum(m.all_bytes for m in side), default=[])
    nbytes = sum(m.all_bytes for m in busiest)
    return min(chunk, max(m.nbytes for m in busiest)) / nbytes if nbytes else 0.0


def _transposed(schedule: Schedule) -> int:
    """Bytes of an element, if the axes are permuted; else 0."""
    axes = schedule.index_map.axes
    return schedule.itemsize if axes is not None and list(axes) != sorted(axes) else 0
