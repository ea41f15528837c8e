"""What a redistribution moves between nodes, and what less with ranks renumbered: as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dace_redist.report.text import format_bytes, share

if TYPE_CHECKING:
    from dace_redist.schedule import Schedule


def nodes_text(schedule: Schedule, node_of: Sequence[int]) -> str:
    """
    Bytes that leave their node and bytes that only leave their rank, as a line.

    :param node_of: Number of the node of each rank.
    """
    total, between = schedule.bytes_total(), schedule.bytes_between_nodes(node_of)
    within = schedule.bytes_moved() - between
    return (
        f"nodes     {len(set(node_of)):,}: {format_bytes(between)} ({share(between, total)}) moved between them, "
        f"{format_bytes(within)} ({share(within, total)}) between ranks of a node"
    )


def nodes_json(schedule: Schedule, node_of: Sequence[int]) -> dict[str, Any]:
    """The same as numbers, see :func:`nodes_text`."""
    between = schedule.bytes_between_nodes(node_of)
    return {
        "node_of_rank": list(node_of),
        "bytes_between_nodes": between,
        "bytes_within_nodes": schedule.bytes_moved() - between,
    }


def relabelling_text(saved: int | None, moved: int, how: str = "", where: str = "") -> list[str]:
    """
    What other ranks for the target would save, as a line; none where that is nothing or not known.

    :param saved: Bytes that would be saved.
    :param moved: Bytes that are moved.
    :param how: What ``relabel`` is called with, as in `` with node_weights``.
    :param where: Which bytes these are, as in `` between nodes``.
    """
    less = f"{format_bytes(saved or 0)} ({share(saved or 0, moved)}) less{where}"
    line = f"relabel   the target's ranks renumbered by dace_redist.relabel{how}: {less}"
    return [line] if saved is not None and saved > 0 else []
