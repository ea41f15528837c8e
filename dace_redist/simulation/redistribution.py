"""Predicts a redistribution on a machine: cost model of its ranks, load of its links. Start: simulate_schedule."""

from __future__ import annotations

import dataclasses
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dace_redist.report.canvas import save
from dace_redist.schedule import Schedule
from dace_redist.simulation.figures import LinkUse, busiest, draw_bars
from dace_redist.simulation.machine import Job, Machine
from dace_redist.simulation.network import Array, Network
from dace_redist.strategies import DEFAULT_STRATEGY, STRATEGIES, find_strategy, host_strategies
from dace_redist.tuning.cost_model import CostModel, Estimate
from dace_redist.tuning.problem import MAIN_MEMORIES, Problem, check_memory
from dace_redist.tuning.report import CostReport

#: Senders, receivers and bytes of messages.
Flow = tuple[Array, Array, Array]

_MAX_BATCH = 1 << 20  # messages


class Operation(NamedTuple):
    """
    One operation of a rank.

    :param kind: ``"compute"``; ``"send"`` and ``"receive"``, which start a message; ``"wait"`` for one from ``peer``.
    :param amount: Seconds of work, or bytes of the message; 1 for messages on a node, whose copies count as work.
    """

    kind: str
    amount: float = 0
    peer: int = -1


#: Ranks with their operations.
RankOperations = Iterator[tuple[int, list[Operation]]]


class LinkLoads:
    """Bytes that each link of a network carries in one exchange, and the longest route."""

    def __init__(self, network: Network, node_of: Array) -> None:
        self._network, self._node_of = network, node_of
        self.nbytes = np.zeros(len(network.rates))
        self.longest = 0

    def add(self, senders: Array, receivers: Array, nbytes: Array) -> None:
        """Add messages: their senders, receivers and sizes. Messages within a node take no link."""
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

    def busiest(self) -> Iterator[LinkUse]:
        """Yield the slowest link of each kind that carries anything."""
        first = 0
        for kind in self._network.kinds:
            link = first + int(np.argmax(self.nbytes[first : first + kind.count]))
            first += kind.count
            if nbytes := float(self.nbytes[link]):
                yield LinkUse(self._network.link_name(link), nbytes, nbytes / float(kind.rate))

    @property
    def latency(self) -> float:
        """Latency of the longest route on top of that between neighbours."""
        return max(0, self.longest - 2) * self._network.hop


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulatedRedistribution(CostReport):
    """
    Times of a redistribution on a machine, by some strategies, or by all; printed, they are a table.

    :param links: The busiest link of each kind.
    :param nbytes: Bytes of all messages between ranks.
    """

    job: Job
    links: tuple[LinkUse, ...]
    nbytes: int

    @property
    def link(self) -> LinkUse:
        """The busiest link."""
        return busiest(self.links)

    @property
    def seconds(self) -> float:
        """The time of the fastest strategy."""
        return self.estimates[0].seconds

    def estimate(self, strategy: str) -> Estimate:
        """Return the time of one strategy; a ValueError if the model does not know it, or it cannot move this."""
        found = self.model.estimate(strategy)
        if found is None:
            known = ", ".join(host_strategies())
            raise ValueError(
                f"strategy {strategy} cannot be simulated here: the cost model knows {known}; Shared stays on a node"
            )
        return found

    def lines(self) -> list[str]:
        """Return lines of the machine, of each strategy, of the bound and of the busiest link."""
        return [*super().lines(), f"link      {self.link}"]

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries; times in seconds."""
        return {
            **super().to_json(),
            "ranks": self.job.ranks,
            "nodes": self.job.nodes,
            "bytes_moved": self.nbytes,
            "busiest_link": dataclasses.asdict(self.link),
        }

    def plot(self, path: str | Path) -> None:
        """Draw the strategies against each other, to a .png, .svg or .pdf file."""
        rows = {str(one): one.terms.by_name for one in self.estimates}
        save(lambda: draw_bars("strategies", f"{self.job}; {self.job.machine}", rows, self.links), path)

    def operations(self, strategy: str = "") -> RankOperations:
        """
        Yield the operations of each rank, node by node.

        A rank starts all receives, packs and sends one message after another, copies within its node, and unpacks
        messages in ascending order of the senders. Packing, unpacking and latency are spread evenly over the messages.

        :param strategy: One that can move it; default: the fastest one that sends from rank to rank.
        :raises ValueError: If it joins messages of several ranks.
        """
        strategy = strategy or min(
            (one.strategy for one in self.estimates), key=lambda name: STRATEGIES[name].joins_messages
        )
        if STRATEGIES[strategy].joins_messages:
            raise ValueError(
                f"strategy {strategy} joins messages of several ranks, but traces hold those from rank to rank: "
                "name another strategy"
            )
        model = self.model
        schedule, node_of = model.problem.schedule, model.node_of
        sizes = {
            (rank, peer): nbytes if node_of[rank] != node_of[peer] else 1
            for rank in range(schedule.ranks)
            for peer, nbytes in np.column_stack(schedule.sent_to(rank)).tolist()
            if peer != rank
        }
        senders, targets = (defaultdict[int, list[int]](list) for _ in "ab")
        for rank, peer in sizes:
            senders[peer].append(rank)
            targets[rank].append(peer)
        for rank, terms in model.terms_of_ranks(strategy):
            done = [Operation("receive", sizes[peer, rank], peer) for peer in senders[rank]]
            before = (terms.latency + terms.pack) / max(1, len(targets[rank]))
            for peer in targets[rank]:
                done += [Operation("compute", before), Operation("send", sizes[rank, peer], peer)]
            done.append(Operation("compute", terms.transfer + (0.0 if targets[rank] else before)))
            for peer in senders[rank]:
                done += [Operation("wait", peer=peer), Operation("compute", terms.unpack / len(senders[rank]))]
            if not senders[rank]:
                done.append(Operation("compute", terms.unpack))
            yield rank, [one for one in done if one.kind != "compute" or one.amount > 0]


def simulate_on(
    job: Job, schedule: Schedule, memory: str = "ordinary", strategies: tuple[str, ...] = ()
) -> SimulatedRedistribution:
    """Predict a redistribution by the ranks of a job: by the better routing of a network that adapts."""
    total, network = 0, job.machine.network
    every = [] if network is None else [LinkLoads(one, job.node_of) for one in network.routings]
    for senders, receivers, nbytes in _flows(schedule):
        total += int(nbytes.sum())
        for loads in every:
            loads.add(senders, receivers, nbytes)
    uses = [(tuple(loads.busiest()), loads.latency) for loads in every]
    links, latency = min(uses, key=lambda use: busiest(use[0]).seconds, default=((), 0.0))
    node_of = job.node_of[: schedule.ranks].tolist()
    model = CostModel(Problem(schedule, memory), job.rates, node_of, busiest(links).seconds, latency)
    return SimulatedRedistribution(model, str(job.machine), strategies, job=job, links=links, nbytes=total)


def _flows(schedule: Schedule) -> Iterator[Flow]:
    """The messages of a schedule without self copies, of many ranks at a time."""
    batch, count = list[Flow](), 0
    for rank in range(schedule.ranks):
        targets, nbytes = schedule.sent_to(rank)
        others = targets != rank
        batch.append((np.full(int(others.sum()), rank, np.int64), targets[others], nbytes[others]))
        count += int(others.sum())
        if rank + 1 == schedule.ranks or count >= _MAX_BATCH:
            senders, receivers, sizes = (np.concatenate(part) for part in zip(*batch, strict=True))
            yield senders, receivers, sizes
            batch, count = [], 0


def simulate_schedule(
    schedule: Schedule,
    machine: str | os.PathLike[str] | Machine,
    *,
    ranks_per_node: int | None = None,
    scattered: bool = False,
    memory: str = "ordinary",
    strategies: Sequence[str] = (),
) -> SimulatedRedistribution:
    """
    Predict a redistribution on a machine that is described.

    :param machine: Path of a machine file, or name of a machine that ships with the package.
    :param ranks_per_node: Ranks on each node, which fill one node after another; default: one per core.
    :param scattered: True if the nodes lie anywhere in the machine, not side by side.
    :param memory: Where the arrays lie, one of :data:`dace_redist.tuning.problem.MAIN_MEMORIES`.
    :param strategies: Names of strategies; default: all that the cost model knows. ``"Auto"`` is the default one.
    :raises ValueError: If the machine file is wrong (names the line), the machine is too small, ``ranks_per_node`` is
        less than 1, or a strategy is unknown or cannot move this.
    :raises FileNotFoundError: If there is no such machine.
    """
    job = Job.of(Machine.load(machine), schedule.ranks, ranks_per_node, scattered)
    wanted = tuple(dict.fromkeys(find_strategy(name).name for name in strategies))
    simulated = simulate_on(job, schedule, check_memory(memory, MAIN_MEMORIES), wanted)
    for name in wanted or (DEFAULT_STRATEGY,):
        simulated.estimate(name)  # an error where it cannot be known
    return simulated
