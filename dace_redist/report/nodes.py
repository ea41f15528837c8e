"""Traffic of a redistribution between nodes, and savings by remapped ranks: as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dace_redist.report.text import format_bytes, share

if TYPE_CHECKING:
    from dace_redist.schedule import Schedule


def nodes_text(schedule: Schedule, node_of: Sequence[int]) -> str:
    """Return the bytes between nodes and between ranks of a node, as a line; ``node_of`` has the node of each rank."""
    total, between = schedule.bytes_total(), schedule.bytes_between_nodes(node_of)
    within = schedule.bytes_moved() - between
    return (
        f"nodes     {len(set(node_of)):,}: {format_bytes(between)} ({share(between, total)}) moved between them, "
        f"{format_bytes(within)} ({share(within, total)}) between ranks of a node"
    )


def nodes_json(schedule: Schedule, node_of: Sequence[int]) -> dict[str, Any]:
    """Return the numbers of :func:`nodes_text`."""
    between = schedule.bytes_between_nodes(node_of)
    return {
        "node_of_rank": list(node_of),
        "bytes_between_nodes": between,
        "bytes_within_nodes": schedule.bytes_moved() - between,
    }


def relabelling_text(saved: int | None, moved: int, how: str = "", where: str = "") -> list[str]:
    """
    Return the bytes saved, of those moved, by remapping the target's ranks, as a line; none if that is nothing.

    :param how: Arguments of ``relabel``, as in `` with node_weights``.
    :param where: Place of these bytes, as in `` between nodes``.
    """
    less = f"{format_bytes(saved or 0)} ({share(saved or 0, moved)}) less{where}"
    line = f"relabel   the target's ranks renumbered by dace_redist.relabel{how}: {less}"
    return [line] if saved is not None and saved > 0 else []
