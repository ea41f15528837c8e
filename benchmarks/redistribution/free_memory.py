"""Check of arrays and buffers against the free memory of the nodes: cases that do not fit are skipped with a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dace_redist.report.units import format_bytes
from dace_redist.strategy_memory import extra_memory
from redistribution.catalogue import Case, ConfiguredStrategy

#: Part of a node's memory that remains free: for MPI, the programs themselves, and other users of the node.
_RESERVE = 0.25


def extra_bytes(case: Case, choice: ConfiguredStrategy) -> int:
    """Return the maximum bytes of buffers of a rank for a strategy; 0 if only MPI or the tuner knows."""
    if choice.strategy == "Auto":
        return 0
    return extra_memory(case.schedule, choice.strategy, **dict(choice.options)) or 0


def too_little(nbytes: int, comm: Any) -> str | None:
    """
    Why memory does not fit, or None if it does; the same on every rank. Collective.

    :param nbytes: Bytes that this rank is about to take.
    :param comm: Communicator of the ranks that take theirs.
    """
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    on_node, (free, reserve) = node.allreduce(nbytes), _memory()
    node.Free()
    reason = None
    if on_node and on_node > free - reserve:
        reason = (
            f"{format_bytes(on_node)} of memory on a node are needed, there are {format_bytes(free)}, "
            f"of which {format_bytes(reserve)} are to stay free"
        )
    reasons: list[str | None] = comm.allgather(reason)
    return next((text for text in reasons if text), None)


def _memory() -> tuple[float, float]:
    """Bytes of memory that this node has left, and that are to stay; where it does not say, there is enough."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return float("inf"), 0
    sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines}
    return sizes.get("MemAvailable", float("inf")), _RESERVE * sizes.get("MemTotal", 0)
