"""Whether a method's buffers fit into the memory that the nodes have left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dace_redist.bench.cases import Case
from dace_redist.explain import format_bytes

#: Strategies whose plans hold all that a rank sends and receives; the others' buffers are bounded by options.
_WHOLE_BUFFERS = ("Pack", "Threaded", "RMA")

#: Part of the free memory that the buffers of one method may take: the next ones, MPI and other programs need some.
_USABLE = 0.4


def too_little(case: Case, strategy: str, comm: Any) -> str | None:
    """
    Why the plans of a strategy do not fit, or None if they do; the same on every rank. Collective.

    :param case: What is redistributed.
    :param strategy: Name of the strategy.
    :param comm: Communicator of the ranks of the case.
    """
    from mpi4py import MPI

    needed = _buffer_bytes(case, strategy, comm.rank)
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    on_node, free = node.allreduce(needed), _available()
    node.Free()
    reason = None
    if free is not None and on_node > _USABLE * free:
        reason = f"its buffers need {format_bytes(on_node)} on a node, and there are {format_bytes(free)} left"
    reasons: list[str | None] = comm.allgather(reason)
    return next((text for text in reasons if text), None)


def _buffer_bytes(case: Case, strategy: str, rank: int) -> int:
    if strategy not in _WHOLE_BUFFERS:
        return 0
    messages = [*case.schedule.sends(rank), *case.schedule.receives(rank)]
    return sum(message.nbytes(case.dtype.itemsize) for message in messages)


def _available() -> int | None:
    """Bytes of memory that this node has left; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)
