"""
How long each strategy would take for a redistribution on a machine, without moving anything. Start at: CostModel.

A node's ranks share its cores and its link: its time is that of its busiest rank, or of all its ranks' work divided by
the cores, whichever is longer, and that of the link, which strategies that work in pieces overlap with copies.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from dace_redist.schedule import Schedule
from dace_redist.selection.machine_profile import MachineProfile
from dace_redist.selection.problem_key import Problem
from dace_redist.selection.rank_traffic import RankTraffic
from dace_redist.selection.rank_work import RankWork, Rates
from dace_redist.strategies import OPTIONS, STRATEGIES, with_options
from dace_redist.strategy_costs import Terms

#: Messages that are looked at, about: all, or those of evenly spread ranks of evenly spread nodes.
MAX_MODELLED_MESSAGES = 4000
_LEAST_RANKS = 4  # however many messages they have


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
    """

    problem: Problem
    profile: MachineProfile
    node_of: Sequence[int]
    link_seconds: float | None = None
    route_latency: float = 0.0

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
        formula = STRATEGIES[strategy].seconds
        if formula is None:
            return None
        given = dict(options or {})
        values = {name: option.default for name, option in OPTIONS.items()} | given
        slowest: Terms | None = None
        for node, ranks in self._nodes.items():
            terms = [formula(rank, values) for rank in ranks]
            if any(one is None for one in terms):
                return None
            known = [
                dataclasses.replace(one, latency=one.latency + self.route_latency) for one in terms if one is not None
            ]
            found = self._of_node(known, ranks, self.share(node), STRATEGIES[strategy].overlaps)
            if slowest is None or found.total > slowest.total:
                slowest = found
        return Estimate(strategy, given, slowest or Terms())

    def _of_node(self, terms: Sequence[Terms], ranks: Sequence[RankWork], share: float, overlaps: bool) -> Terms:
        """The terms of the busiest rank of a node with what it waits for, from those of its ranks."""
        own = [one.scaled(1 / self.profile.turns) for one in terms]  # seconds that a rank has a core for
        busiest = max(own, key=lambda one: one.total)
        copying = max(busiest.total, sum(one.total for one in own) / share / self.profile.cores_per_node)
        wire = self._wire_seconds(ranks) / share if self.link_seconds is None else self.link_seconds
        whole = max(copying, wire) if overlaps else copying + wire
        exposed = whole - copying  # of the wire
        spent = dataclasses.replace(busiest, transfer=busiest.transfer + exposed)
        return dataclasses.replace(spent, wait=max(0.0, whole - spent.total))

    def _wire_seconds(self, ranks: Sequence[RankWork]) -> float:
        """What leaves or enters a node, whichever is more, over its link."""
        if self.profile.network is None:
            return 0.0
        sent = sum(m.all_bytes for rank in ranks for m in rank.traffic.sends if not m.within)
        received = sum(m.all_bytes for rank in ranks for m in rank.traffic.receives if not m.within)
        return max(sent, received) * self.profile.network.link_seconds_per_byte

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
    def _rates(self) -> Rates:
        transposed = _transposed(self.problem.schedule)
        return Rates(self.profile, self.problem.memory, transposed, self._ranks_per_node)

    def _work(self, ranks: Sequence[int]) -> list[RankWork]:
        """What ranks of one node have to do."""
        traffic = [RankTraffic.of(self.problem.schedule, rank, self.node_of) for rank in ranks]
        crosses = any(not m.within for one in traffic for m in (*one.sends, *one.receives))
        return [RankWork(one, self._rates, crosses) for one in traffic]

    def terms_of_ranks(self, strategy: str, options: Mapping[str, Any] | None = None) -> Iterator[tuple[int, Terms]]:
        """
        What every rank does by itself, node by node: without waiting for its core, the link or other ranks.

        :param strategy: Its name; one that the model knows, and that can move this.
        :param options: Options that are not at their defaults.
        """
        formula = STRATEGIES[strategy].seconds
        assert formula is not None
        values = {name: option.default for name, option in OPTIONS.items()} | dict(options or {})
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


def _transposed(schedule: Schedule) -> int:
    """Bytes of an element, if the axes are permuted; else 0."""
    axes = schedule.index_map.axes
    return schedule.itemsize if axes is not None and list(axes) != sorted(axes) else 0
