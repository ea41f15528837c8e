"""A schedule of several tensors in one exchange as text and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from dace_redist.messages import Quantiles
from dace_redist.report.text import MAX_LISTED_MESSAGES, count, format_bytes, head_json, header, share, spread

if TYPE_CHECKING:
    from dace_redist.joint_schedule import JointSchedule

#: Largest number of different tensors that ``joint_text`` lists.
_MAX_LISTED_TENSORS = 8


def joint_text(joint: JointSchedule) -> str:
    """Return the report of several tensors in one exchange."""
    moved, total, tensors = joint.bytes_moved(), joint.bytes_total(), joint.tensors
    alike = all(tensor == tensors[0] for tensor in tensors)
    lines = [f"{len(tensors)} tensors, {'each ' if alike else ''}as follows, in one exchange"]
    for tensor in tensors[:1] if alike else tensors[:_MAX_LISTED_TENSORS]:
        lines += header(tensor)
    if not alike and len(tensors) > _MAX_LISTED_TENSORS:
        lines.append("...")
    messages = count(len(joint.messages), "message")
    lines += [
        f"ranks     {joint.ranks:,}",
        f"moved     {format_bytes(moved)} ({share(moved, total)}) in {messages}, "
        f"{joint.separate_messages:,} one tensor after another",
        f"local     {format_bytes(total - moved)} ({share(total - moved, total)}) stays on its rank",
    ]
    if moved:
        lines.append(f"messages  {spread(Quantiles.of(Counter(joint.messages.values())), 1)}")
    return "\n".join(lines)


def joint_json(joint: JointSchedule) -> dict[str, Any]:
    """Return plain numbers, lists and dictionaries; ``volumes`` as in :func:`to_json`, without self copies."""
    listed = len(joint.messages) <= MAX_LISTED_MESSAGES
    return {
        "tensors": [head_json(tensor) for tensor in joint.tensors],
        "ranks": joint.ranks,
        "bytes_moved": joint.bytes_moved(),
        "bytes_total": joint.bytes_total(),
        "messages": len(joint.messages),
        "separate_messages": joint.separate_messages,
        "volumes": [[*pair, nbytes] for pair, nbytes in joint.messages.items()] if listed else None,
    }
