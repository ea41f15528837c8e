"""One exchange on a machine: the cost model of its ranks, and the load of the links between nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from dace_redist.report.units import format_bytes, format_seconds
from dace_redist.schedule import Schedule
from dace_redist.simulation.machine import Machine
from dace_redist.simulation.network import Array, Network
from dace_redist.tuning.cost_model import CostModel, Estimate
from dace_redist.tuning.problem import MODELLED, Problem

#: Senders, receivers and bytes of messages.
Flow = tuple[Array, Array, Array]

_MAX_BATCH = 1 << 20  # messages


@dataclasses.dataclass(frozen=True)
class Job:
    """
    Ranks on the nodes of a machine.

    :param ranks: Number of ranks, which fill one node after another.
    :param scattered: True if the nodes lie anywhere in the machine, not side by side.
    :raises ValueError: If the machine has not so many nodes, or none has a rank.
    """

    machine: Machine
    ranks: int
    ranks_per_node: int
    scattered: bool = False

    def __post_init__(self) -> None:
        self.machine.node_of(self.ranks, self.ranks_per_node)

    @classmethod
    def of(cls, machine: Machine, ranks: int, ranks_per_node: int | None = None, scattered: bool = False) -> Job:
        """Return a job; default: as many ranks on a node as it has cores, and at least one."""
        each = max(1, int(machine.cores)) if ranks_per_node is None else ranks_per_node
        return cls(machine, ranks, each, scattered)

    @property
    def node_of(self) -> Array:
        """The node of each rank."""
        return self.machine.node_of(self.ranks, self.ranks_per_node, self.scattered)

    @property
    def busy_ranks_per_node(self) -> int:
        """Ranks of a full node."""
        return min(self.ranks, self.ranks_per_node)

    @property
    def nodes(self) -> int:
        """Number of its nodes."""
        return -(-self.ranks // self.ranks_per_node)


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

    def busiest(self) -> Iterator[tuple[int, float, float]]:
        """Yield the slowest link of each kind that carries anything: its number, bytes and seconds."""
        first = 0
        for kind in self._network.kinds:
            link = first + int(np.argmax(self.nbytes[first : first + kind.count]))
            first += kind.count
            if self.nbytes[link]:
                yield link, float(self.nbytes[link]), float(self.nbytes[link] / kind.rate)

    @property
    def latency(self) -> float:
        """Latency of the longest route on top of that between neighbours."""
        return max(0, self.longest - 2) * self._network.hop


@dataclasses.dataclass(frozen=True)
class LinkUse:
    """The slowest link of all, or of a kind, in an exchange; without a name if nothing goes between nodes."""

    name: str = ""
    nbytes: float = 0.0
    seconds: float = 0.0

    def __str__(self) -> str:
        """Its name and load."""
        if not self.name:
            return "none: nothing goes between nodes"
        return f"{self.name} carries most: {format_bytes(self.nbytes)} in {format_seconds(self.seconds)}"


@dataclasses.dataclass(frozen=True)
class Exchange:
    """A redistribution on a machine: the cost model, the busiest link of each kind, and the bytes between ranks."""

    model: CostModel
    links: tuple[LinkUse, ...]
    nbytes: int

    @property
    def link(self) -> LinkUse:
        """The busiest link."""
        return busiest(self.links)

    @classmethod
    def of(cls, schedule: Schedule, job: Job, memory: str = "ordinary") -> Exchange:
        """Return the exchange of a schedule by the ranks of a job."""
        links, latency, nbytes = _loaded(schedule, job)
        rates = job.machine.rates(job.busy_ranks_per_node)
        node_of = job.node_of[: schedule.ranks].tolist()
        model = CostModel(Problem(schedule, memory), rates, node_of, busiest(links).seconds, latency)
        return cls(model, links, nbytes)

    def estimate(self, strategy: str) -> Estimate:
        """Return the time of one strategy; a ValueError if the model does not know it, or it cannot move this."""
        found = self.model.estimate(strategy)
        if found is None:
            known = ", ".join(MODELLED)
            raise ValueError(
                f"strategy {strategy} cannot be simulated here: the cost model knows {known}; Shared stays on a node"
            )
        return found


def busiest(links: Iterable[LinkUse]) -> LinkUse:
    """Return the slowest link; one without a name if there is none."""
    return max(links, key=lambda link: link.seconds, default=LinkUse())


def _loaded(schedule: Schedule, job: Job) -> tuple[tuple[LinkUse, ...], float, int]:
    """The busiest links, the extra latency of the longest route, and the bytes of all messages."""
    total, network = 0, job.machine.network
    every = [] if network is None else [LinkLoads(one, job.node_of) for one in network.routings]
    for senders, receivers, nbytes in _flows(schedule):
        total += int(nbytes.sum())
        for loads in every:
            loads.add(senders, receivers, nbytes)
    if network is None:
        return (), 0.0, total
    uses = [
        tuple(LinkUse(network.link_name(link), nbytes, seconds) for link, nbytes, seconds in loads.busiest())
        for loads in every
    ]
    best = min(range(len(every)), key=lambda routing: busiest(uses[routing]).seconds)
    return uses[best], every[best].latency, total


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
