"""Where a communicator runs: which machine, which MPI, and which of its ranks share a node."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import platform
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dace_redist.mpi.remembered import remembered

#: Environment variable: so many consecutive ranks count as a node, where they share one; see ``mpi.hpp``.
NODE_RANKS_VARIABLE = "DACE_REDIST_NODE_RANKS"

#: A layout that takes more characters than this is named by a digest.
_LONGEST_LAYOUT = 80


@dataclasses.dataclass(frozen=True)
class Topology:
    """
    What a measurement holds for, besides the redistribution itself.

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
        """Which ranks share a node, in short: see :func:`layout_of`."""
        return layout_of(self.node_of)

    @property
    def node_count(self) -> int:
        """Nodes that have ranks."""
        return len(set(self.node_of))

    @property
    def ranks_per_node(self) -> int:
        """Ranks on the node that has most of them."""
        return max(Counter(self.node_of).values())


def layout_of(node_of: Sequence[int]) -> str:
    """
    Which ranks share a node, in short.

    Ranks that fill one node after another: the number of ranks per node, ``4+4+2`` as ``2x4+2``. Ranks in any other
    order: the number of each rank's node, ``0,1,0,1``, or a digest of it if that is long.

    :param node_of: Number of the node of each rank; nodes are numbered as they appear.
    """
    runs = [(node, len(list(ranks))) for node, ranks in itertools.groupby(node_of)]
    if len({node for node, _ in runs}) == len(runs):
        equal = [(ranks, len(list(nodes))) for ranks, nodes in itertools.groupby(ranks for _, ranks in runs)]
        layout = "+".join(f"{nodes}x{ranks}" if nodes > 1 else str(ranks) for ranks, nodes in equal)
    else:
        layout = ",".join(map(str, node_of))
    if len(layout) <= _LONGEST_LAYOUT:
        return layout
    digest = hashlib.blake2b(layout.encode(), digest_size=8).hexdigest()
    return f"{len(node_of)} ranks on {len(set(node_of))} nodes, {digest}"


def topology_of(comm: Any) -> Topology:
    """
    Where a communicator runs. Collective at the first call for it; every rank gets the same answer.

    :param comm: mpi4py intra-communicator.
    """
    from mpi4py import MPI

    places = remembered(comm, "places", lambda: _find_places(comm))
    most = _most_node_ranks()  # a rank may have another value: so this is not remembered
    nodes = [(leader, world // most if most else 0) for leader, world, _ in places]
    numbers = {node: number for number, node in enumerate(dict.fromkeys(nodes))}
    machine = " and ".join(sorted({machine for *_, machine in places}))
    return Topology(machine, mpi_name(MPI.Get_library_version()), tuple(numbers[node] for node in nodes))


def _find_places(comm: Any) -> list[tuple[int, int, str]]:
    """The lowest rank of its node, the rank in the world, and the machine of each rank. Collective."""
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    leader = node.bcast(comm.rank)
    node.Free()
    return list(comm.allgather((leader, MPI.COMM_WORLD.rank, _machine())))


def _most_node_ranks() -> int:
    """Ranks that count as a node at most, 0: all; the library refuses what is no number."""
    value = os.environ.get(NODE_RANKS_VARIABLE, "")
    return int(value) if value.isdecimal() else 0


def mpi_name(library: str) -> str:
    """
    Name and version of an MPI library, such as ``Open MPI v5.0.11``.

    :param library: What ``MPI_Get_library_version`` says, with everything about how it was built.
    """
    return " ".join(library.split("\n")[0].split(",")[0].split())


def _machine() -> str:
    """Processor and cores of this node; not its name, which in a cluster changes from job to job."""
    return f"{processor()}, {os.cpu_count()} cores"


def processor() -> str:
    """Name of this node's processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    part = " ".join(f"{name} {facts[name]}" for name in ("CPU implementer", "CPU part") if name in facts)
    return facts.get("model name") or part or platform.processor() or platform.machine()
