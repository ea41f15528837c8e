"""
Predicts the time of each strategy for a redistribution on a machine, without moving anything. Start at: CostModel.

The ranks of a node share its cores and its link. A node's time is that of its busiest rank, or of the work of all its
ranks divided by the cores, whichever is longer, and that of the link, which strategies that work in chunks overlap with
copies.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from dace_redist.strategies import STRATEGIES, default_options, with_options
from dace_redist.tuning.problem import Problem
from dace_redist.tuning.profile import MachineProfile
from dace_redist.tuning.rank_costs import RankCosts, Terms
from dace_redist.tuning.traffic import RankTraffic, Traffic

#: Approximate maximum of modelled messages; of more, evenly spread ranks of evenly spread nodes are sampled.
MAX_MODELLED_MESSAGES = 4000
_MIN_SAMPLED_RANKS = 4  # however many messages they have
#: Minimum relative improvement for chunks of another size than the default.
_CLEARLY_FASTER_CHUNKS = 0.9


@dataclasses.dataclass(frozen=True)
class Estimate:
    """
    The time of one strategy.

    :param options: Options that are not at their defaults.
    :param terms: Parts of the time of the busiest rank; they add up to the time of all.
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
        return with_options(self.strategy, self.options)


@dataclasses.dataclass(frozen=True)
class CostModel:
    """
    The times of a redistribution on a machine.

    :param node_of: Number of the node of each rank.
    :param link_seconds: Time of the busiest link between the nodes; None: nodes share none.
    :param route_latency: Latency that the longest route between two nodes adds to an exchange, in seconds.
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
                "a node: use one per node (--ranks-per-node 1), or calibrate with several"
            )

    def estimates(self, strategies: Sequence[str] = ()) -> list[Estimate]:
        """Return strategies with their default options, the fastest first; default: all that the model knows."""
        made = (self.estimate(name) for name in strategies or STRATEGIES)
        return sorted((one for one in made if one is not None), key=lambda one: one.seconds)

    def estimate(self, strategy: str, options: Mapping[str, Any] | None = None) -> Estimate | None:
        """
        Return the time of a strategy; None if the model does not know it, or it cannot move this.

        :param options: Options that are not at their defaults.
        """
        values, slowest = default_options(self.problem.on_gpu) | dict(options or {}), Terms()
        chunk = None
        if STRATEGIES[strategy].overlaps:
            chunk = int(min(values["chunk_bytes"], values["max_message_bytes"]))
        for node, ranks in self.traffic.items():
            terms = self._terms(strategy, ranks, values)
            if terms is None:
                return None
            found = self._of_node([one + Terms(self.route_latency) for one in terms], ranks, self.share(node), chunk)
            slowest = max(slowest, found, key=lambda one: one.total)
        return Estimate(strategy, dict(options or {}), slowest)

    def with_best_options(self, strategy: str) -> Estimate | None:
        """
        Return as :meth:`estimate` the time with the chunk size between nodes that is clearly faster than the default,
        if any. No other option was ever measured to make a difference.
        """
        usual, network = self.estimate(strategy), self.costs.rates.network
        if usual is None or network is None or not any(map(_crosses, self.traffic.values())):
            return usual
        if "chunk_bytes" not in STRATEGIES[strategy].options:
            return usual
        tried = [self.estimate(strategy, {"chunk_bytes": nbytes}) for nbytes in network.link.nbytes]
        best = min((one for one in tried if one is not None), key=lambda one: one.seconds)
        return best if best.seconds < _CLEARLY_FASTER_CHUNKS * usual.seconds else usual

    def terms_of_ranks(self, strategy: str) -> Iterator[tuple[int, Terms]]:
        """
        Yield each rank's own work, node by node: without waiting for its core, the link or other ranks.

        :param strategy: One that the model knows, and that can move this; with its default options.
        """
        for ranks in self._ranks_by_node.values():
            terms = self._terms(strategy, self._traffic_of(ranks), default_options(self.problem.on_gpu))
            assert terms is not None
            yield from zip(ranks, terms, strict=True)

    def share(self, node: int) -> float:
        """Return the part of the ranks of a node that is sampled."""
        return len(self.traffic[node]) / len(self._ranks_by_node[node])

    @cached_property
    def traffic(self) -> dict[int, list[RankTraffic]]:
        """Traffic of the modelled ranks by their node: of a sample, evenly spread, where all are too many."""
        schedule, by_node = self.problem.schedule, self._ranks_by_node
        each = max(1, 2 * max(len(schedule.sent_to(rank)[0]) for rank in (0, schedule.ranks // 2)))
        sampled = max(_MIN_SAMPLED_RANKS, MAX_MODELLED_MESSAGES // each)
        nodes = sorted(by_node)[:: -(-len(by_node) * self._ranks_per_node // max(sampled, self._ranks_per_node))]
        return {node: self._traffic_of(by_node[node][:: -(-len(by_node[node]) // sampled)]) for node in nodes}

    @cached_property
    def costs(self) -> RankCosts:
        """The costs of a rank of this redistribution on this machine."""
        return RankCosts(self.problem, self.profile, self._ranks_per_node)

    def _terms(self, strategy: str, ranks: Sequence[RankTraffic], values: Mapping[str, Any]) -> list[Terms] | None:
        """Seconds on a core of each rank, without those in which it waits for one."""
        crosses = _crosses(ranks)
        terms = [self.costs.estimate(strategy, rank, values, crosses) for rank in ranks]
        known = [one * (1 / self.profile.oversubscription) for one in terms if one is not None]
        return known if len(known) == len(terms) else None

    def _of_node(self, terms: Sequence[Terms], ranks: Sequence[RankTraffic], share: float, chunk: int | None) -> Terms:
        """
        The terms of the busiest rank of a node with its waiting time.

        :param chunk: Bytes of the chunks in which ranks copy while the link is at work, if they do. The link waits for
            the first one, and the last one is unpacked when the link has done its work.
        """
        busiest = max(terms, key=lambda one: one.total)
        copying = max(busiest.total, sum(one.total for one in terms) / share / self.profile.cores_per_node)
        wire = self._wire_seconds(ranks, chunk) / share if self.link_seconds is None else self.link_seconds
        whole = copying + wire
        if chunk is not None:
            whole = max(copying, wire) + min(copying, wire) * _largest_share(ranks, chunk)
        spent = dataclasses.replace(busiest, transfer=busiest.transfer + (whole - copying))  # the wire not hidden
        idle = whole - spent.total
        return dataclasses.replace(spent, wait=idle if idle > 1e-9 * whole else 0.0)  # else rounding

    def _wire_seconds(self, ranks: Sequence[RankTraffic], chunk: int | None) -> float:
        """Time of the node's link: traffic into or out of the node, whichever is larger, in chunks if any."""
        network = self.costs.rates.network
        if network is None:
            return 0.0
        sides = ([m for rank in ranks for m in rank.side(sent) if not m.within] for sent in (True, False))
        per_byte = network.link_seconds_per_byte
        return max(sum(m.total_bytes * per_byte(min(m.nbytes, chunk or m.nbytes)) for m in side) for side in sides)

    @cached_property
    def _ranks_by_node(self) -> dict[int, list[int]]:
        by_node = defaultdict[int, list[int]](list)
        for rank in range(self.problem.schedule.ranks):
            by_node[self.node_of[rank]].append(rank)
        return by_node

    @cached_property
    def _ranks_per_node(self) -> int:
        return max(map(len, self._ranks_by_node.values()), default=1)

    def _traffic_of(self, ranks: Sequence[int]) -> list[RankTraffic]:
        return [RankTraffic.of(self.problem.schedule, rank, self.node_of) for rank in ranks]


def _crosses(ranks: Iterable[RankTraffic]) -> bool:
    """True if anything leaves or enters the node of these ranks."""
    return any(not m.within for rank in ranks for m in (*rank.sends, *rank.receives))


def _largest_share(ranks: Iterable[RankTraffic], chunk: int) -> float:
    """The largest chunk as a part of the busiest rank's traffic to, or from, other nodes."""
    sides = (side for rank in ranks for side in (rank.sends, rank.receives))
    crossing = ([m for m in side if not m.within] for side in sides)
    busiest: list[Traffic] = max(crossing, key=lambda side: sum(m.total_bytes for m in side), default=[])
    nbytes = sum(m.total_bytes for m in busiest)
    return min(chunk, max(m.nbytes for m in busiest)) / nbytes if nbytes else 0.0
