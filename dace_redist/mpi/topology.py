"""Place where a communicator runs: machine, MPI, the ranks of each node, and the core of each rank."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import os
import platform
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dace_redist.mpi.collective import remembered
from dace_redist.mpi.launch import mpi_name

#: Environment variable: so many consecutive ranks count as a node, where they share one; see ``mpi.hpp``.
NODE_RANKS_VARIABLE = "DACE_REDIST_NODE_RANKS"

#: Numbers of a processor's revision, with their names in ``/proc/cpuinfo``.
_REVISION = {"family": "cpu family", "model": "model", "stepping": "stepping"}

#: A layout that takes more characters than this is named by a digest.
_MAX_LAYOUT_LENGTH = 80


@dataclasses.dataclass(frozen=True)
class Topology:
    """
    Conditions that a measurement holds for, besides the redistribution itself.

    :param machine: Processor and number of cores of the nodes.
    :param mpi: Name and version of the MPI library.
    :param node_of: Number of the node of each rank; nodes are numbered as they appear.
    :param gpu: Model of the ranks' GPUs; ``""`` where no array lies on one.
    """

    machine: str
    mpi: str
    node_of: tuple[int, ...]
    gpu: str = ""

    @property
    def layout(self) -> str:
        """
        Short description of the nodes of all ranks.

        Ranks that fill one node after another: the number of ranks per node, ``4+4+2`` as ``2x4+2``. Ranks in any other
        order: the number of each rank's node, ``0,1,0,1``, or a digest of it if that is long.
        """
        runs = [(node, len(list(ranks))) for node, ranks in itertools.groupby(self.node_of)]
        if self.node_count == len(runs):
            equal = [(ranks, len(list(nodes))) for ranks, nodes in itertools.groupby(ranks for _, ranks in runs)]
            layout = "+".join(f"{nodes}x{ranks}" if nodes > 1 else str(ranks) for ranks, nodes in equal)
        else:
            layout = ",".join(map(str, self.node_of))
        if len(layout) <= _MAX_LAYOUT_LENGTH:
            return layout
        digest = hashlib.blake2b(layout.encode(), digest_size=8).hexdigest()
        return f"{len(self.node_of)} ranks on {self.node_count} nodes, {digest}"

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
    from mpi4py import MPI

    places = remembered(comm, "places", lambda: _find_places(comm))
    most = _max_node_ranks()  # a rank may have another value: so this is not remembered
    nodes = [(leader, world // most if most else 0) for leader, world, _ in places]
    numbers = {node: number for number, node in enumerate(dict.fromkeys(nodes))}
    machine = " and ".join(sorted({machine for *_, machine in places}))
    return Topology(machine, mpi_name(MPI.Get_library_version()), tuple(numbers[node] for node in nodes))


@contextlib.contextmanager
def alone_in(comm: Any) -> Iterator[Any]:
    """Make a communicator of this rank with the topology of ``comm``, to choose for it on one rank. Collective."""
    topology_of(comm)
    alone = comm.Split(comm.rank)
    remembered(alone, "places", lambda: remembered(comm, "places", list))
    try:
        yield alone
    finally:
        alone.Free()


def _find_places(comm: Any) -> list[tuple[int, int, str]]:
    """Return the lowest rank of its node, the rank in the world, and the machine of each rank. Collective."""
    from mpi4py import MPI

    # Processor and cores, not the node's name, which in a cluster changes from job to job.
    machine = f"{processor()}, {os.cpu_count()} cores"
    with _node_communicator(comm) as node:
        leader = node.bcast(comm.rank)
    return list(comm.allgather((leader, MPI.COMM_WORLD.rank, machine)))


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
