"""Place where a communicator runs: the ranks of each node, the core of each rank, and the processor."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dace_redist.mpi.collective import remembered

#: Environment variable: so many consecutive ranks count as a node, where they share one; see ``mpi.hpp``.
NODE_RANKS_VARIABLE = "DACE_REDIST_NODE_RANKS"

#: Numbers of a processor's revision, with their names in ``/proc/cpuinfo``.
_REVISION = {"family": "cpu family", "model": "model", "stepping": "stepping"}


@dataclasses.dataclass(frozen=True)
class Topology:
    """
    Nodes that the ranks of a communicator run on.

    :param node_of: Number of the node of each rank; nodes are numbered as they appear.
    """

    node_of: tuple[int, ...]

    @property
    def node_count(self) -> int:
        """Number of nodes that have ranks."""
        return len(set(self.node_of))

    @property
    def ranks_per_node(self) -> int:
        """Number of ranks on the node that has most of them."""
        return max(Counter(self.node_of).values())


def topology_of(comm: Any) -> Topology:
    """Return where a communicator runs, the same on every rank. Collective at the first call for it."""
    places = remembered(comm, "places", lambda: _find_places(comm))
    most = _max_node_ranks()  # a rank may have another value: so this is not remembered
    nodes = [(leader, world // most if most else 0) for leader, world in places]
    numbers = {node: number for number, node in enumerate(dict.fromkeys(nodes))}
    return Topology(tuple(numbers[node] for node in nodes))


def _find_places(comm: Any) -> list[tuple[int, int]]:
    """Return the lowest rank of its node, and the rank in the world, of each rank. Collective."""
    from mpi4py import MPI

    with _node_communicator(comm) as node:
        leader = node.bcast(comm.rank)
    return list(comm.allgather((leader, MPI.COMM_WORLD.rank)))


@contextlib.contextmanager
def _node_communicator(comm: Any) -> Iterator[Any]:
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    yield node
    node.Free()


def _max_node_ranks() -> int:
    """Return how many ranks count as a node at most, 0: all; the library refuses a value that is not a number."""
    value = os.environ.get(NODE_RANKS_VARIABLE, "")
    return int(value) if value.isdecimal() else 0


def processor_facts() -> dict[str, str]:
    """Return what Linux tells of a processor, by name; nothing where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def processor() -> str:
    """
    Return name, family, model and stepping of this node's processor, as far as the system tells.

    Virtual machines call processors of several generations by one name.
    """
    facts = processor_facts()
    part = " ".join(f"{name} {facts[name]}" for name in ("CPU implementer", "CPU part") if name in facts)
    name = facts.get("model name") or part or platform.processor() or platform.machine()
    revision = [f"{word} {facts[fact]}" for word, fact in _REVISION.items() if fact in facts]
    return f"{name} ({', '.join(revision)})" if revision else name


@contextlib.contextmanager
def pinned_to_core(comm: Any) -> Iterator[int | None]:
    """
    Keep this rank on one core, if the ranks of its node share all cores and there are no more cores than ranks.

    Linux may leave three of four busy ranks on one of two cores for tens of milliseconds while a rank on the other only
    waits; a measurement then shows where they happened to wake up. Ranks that the launcher bound to cores of their own
    are left alone. Entering is collective; afterwards the rank may run where it could before. Gives the core, or None.
    """
    cores = sorted(os.sched_getaffinity(0))
    with _node_communicator(comm) as node:
        shared = all(other == cores for other in node.allgather(cores))
        rank, ranks = int(node.rank), int(node.size)
    if not shared or ranks < len(cores):
        yield None
        return
    core = cores[rank * len(cores) // ranks]
    os.sched_setaffinity(0, [core])
    try:
        yield core
    finally:
        os.sched_setaffinity(0, cores)
