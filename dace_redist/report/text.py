"""Schedules as text for people: whole, of one rank, of several tensors, between nodes."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dace_redist.distribution import AnyDistribution, BoxDistribution, Distribution, TiledDistribution
from dace_redist.messages import Quantiles
from dace_redist.report.units import count, format_bytes, share, table
from dace_redist.strategies import DEFAULT_STRATEGY
from dace_redist.strategy_memory import all_extra_memory
from dace_redist.traffic import Traffic

#: Largest number of ranks whose runs are measured for the report; of more ranks, this many evenly spread ones.
MAX_MEASURED_RANKS = 256


def spread(lengths: Quantiles, itemsize: int) -> str:
    """Return lengths in bytes: the one length, or the smallest, the largest and the median."""
    smallest, median, largest = map(format_bytes, dataclasses.astuple(lengths.nbytes(itemsize)))
    return smallest if smallest == largest else f"{smallest} to {largest}, half of all bytes in up to {median}"


def block_shape(distribution: Distribution) -> tuple[int | str, ...]:
    """Return the elements per block and dimension; where nothing is split the whole extent."""
    lengths = map(distribution.core.uniform_block, range(len(distribution.shape)))
    parts = [1 if dim is None else distribution.grid[dim] for dim in distribution.dims]
    spreads = [(extent // n, -(-extent // n)) for extent, n in zip(distribution.shape, parts, strict=True)]
    spreads = [block if isinstance(block, tuple) else s for block, s in zip(distribution.block, spreads, strict=True)]
    return tuple(n if n >= 0 else f"{min(s)} to {max(s)}" for n, s in zip(lengths, spreads, strict=True))


def _joined(values: Any) -> str:
    return " x ".join(str(value) for value in values)


def describe_boxes(distribution: BoxDistribution) -> str:
    """Return the number of boxes in words."""
    return f"{len(distribution.owners):,} box{'' if len(distribution.owners) == 1 else 'es'}"


def describe(distribution: AnyDistribution) -> str:
    """Return a distribution in one line."""
    if any(distribution.halo):
        around = "".join(f" (axis {axis} periodic)" for axis, wraps in enumerate(distribution.periodic) if wraps)
        return f"{_describe_owned(distribution)}, halo {_joined(distribution.halo)}{around}"
    return _describe_owned(distribution)


def _describe_owned(distribution: AnyDistribution) -> str:
    if isinstance(distribution, TiledDistribution):
        owners = len(set(distribution.owner_of_tile.ravel().tolist()))
        tiles = count(distribution.owner_of_tile.size, "tile")
        return f"{tiles} of {_joined(distribution.tile) or 'one element'} on {count(owners, 'rank')}"
    if isinstance(distribution, BoxDistribution):
        return f"{describe_boxes(distribution)} on {count(len(np.unique(distribution.owners)), 'rank')}"
    blocks = f"blocks of {_joined(block_shape(distribution))}" if distribution.shape else "one element"
    parts = [f"grid {_joined(distribution.grid) or '()'}, {blocks}"]
    default = tuple(i if i < len(distribution.grid) else None for i in range(len(distribution.shape)))
    for name, values, usual in (
        ("dims", distribution.dims, default),
        ("pins", distribution.pins, (None,) * len(distribution.grid)),
        ("ranks", distribution.ranks, None),
    ):
        if values is not None and values != usual:
            shown = ["-" if value is None else str(value) for value in values[:12]]
            parts.append(f"{name} {','.join(shown)}{',...' if len(values) > 12 else ''}")
    if distribution.core.replicas > 1:
        parts.append(f"{distribution.core.replicas} replicas")
    return ", ".join(parts)


def header(schedule: Traffic) -> list[str]:
    """Return lines of type, shape, size, both distributions and the operation."""
    whole = math.prod(schedule.shape) * schedule.dtype.itemsize
    lines = [
        f"tensor    {schedule.dtype}[{', '.join(map(str, schedule.shape))}], {format_bytes(whole)}",
        f"from      {describe(schedule.source)}",
        f"to        {describe(schedule.target)}",
    ]
    mapped = schedule.transform.map_text
    return [*lines, *([f"as        {mapped}"] if mapped else []), *_computed(schedule)]


def _computed(schedule: Traffic) -> list[str]:
    """Lines of the operation on elements."""
    if schedule.transform.is_copy:
        return []
    lines = [f"computes  {schedule.transform.operation_text}"]
    if schedule.dtype != schedule.target_dtype or schedule.transform.wire:
        between = schedule.transform.wire_itemsize
        within = "" if between == schedule.itemsize else f" between nodes, {schedule.itemsize} within a node"
        lines.append(f"on wire   {count(between, 'byte')} an element{within}")
    if schedule.reduces:
        partial = count(schedule.source.core.replicas, "partial result")
        exchanges = count(schedule.exchanges, "exchange")
        lines.append(f"reduces   {partial} of each element, in up to {exchanges}")
    return lines


def measured_ranks(schedule: Traffic) -> range:
    """Return the ranks whose runs are measured: all, or evenly spread ones of very many."""
    return range(0, schedule.ranks, -(-schedule.ranks // MAX_MEASURED_RANKS))


def text(schedule: Traffic) -> str:
    """Return the report: messages, bytes, run lengths, the busiest rank, the share of self copies."""
    if schedule.others:
        return _text_of_several(schedule)
    totals, itemsize = schedule.totals, schedule.itemsize
    moved, total = schedule.bytes_moved(), schedule.bytes_total()
    lines = [
        *header(schedule),
        f"ranks     {schedule.ranks:,}",
        f"moved     {format_bytes(moved)} ({share(moved, total)}) in {count(int(totals.sends.sum()), 'message')}",
        f"local     {format_bytes(total - moved)} ({share(total - moved, total)}) stays on its rank",
    ]
    if moved == 0:
        return "\n".join([*lines, "nothing to send"])
    measured = measured_ranks(schedule)
    runs, busiest = schedule.run_lengths(measured), schedule.busiest_rank()
    note = "" if measured.step == 1 else f" (sent by {len(measured)} of the ranks)"
    sent, received = (format_bytes(int(values[busiest]) * itemsize) for values in (totals.sent, totals.received))
    lines += [
        f"messages  {spread(Quantiles.of(totals.sizes), itemsize)}",
        f"runs      sender's side {spread(runs.sender, itemsize)}{note}",
        f"          receiver's side {spread(runs.receiver, itemsize)}{note}",
        f"busiest   rank {busiest}: sends {sent} in {count(int(totals.sends[busiest]), 'message')}, "
        f"receives {received} in {count(int(totals.receives[busiest]), 'message')}",
    ]
    buffers = [f"{name} {format_bytes(nbytes)}" for name, nbytes in all_extra_memory(schedule).items()]
    lines.append(f"memory    besides the arrays, at most: {', '.join(buffers[:4])}")
    return "\n".join([*lines, f"          {', '.join(buffers[4:])}"])


def verdict(schedule: Traffic) -> str:
    """Return the share that moves, and the buffers of the default strategy, as a sentence."""
    moved, total = schedule.bytes_moved(), schedule.bytes_total()
    if not moved:
        return "nothing moves"
    buffers = format_bytes(all_extra_memory(schedule)[DEFAULT_STRATEGY])
    return (
        f"{share(moved, total)} of the data moves; the default strategy, {DEFAULT_STRATEGY}, takes {buffers} of buffers"
    )


def rank_text(schedule: Traffic, rank: int) -> str:
    """Return the messages of one rank as a table; costs these messages only."""
    titles = ("", "rank", "elements", "bytes", "blocks", "run where sent", "where received", "both")
    rows: list[tuple[str, ...]] = [titles]
    for message in schedule.messages(rank):
        sent, received = (Quantiles.of(runs).median for runs in (message.source_runs, message.target_runs))
        word, peer = ("sends to", message.target) if message.source == rank else ("receives from", message.source)
        word = "keeps" if message.source == message.target else word
        numbers = (sent, received, message.run_length)
        lengths = [format_bytes(number * schedule.itemsize) for number in numbers]
        nbytes = format_bytes(message.nbytes(schedule.itemsize))
        rows.append((word, str(peer), f"{message.count:,}", nbytes, f"{len(message.blocks):,}", *lengths))
    held = f"rank      {rank} of {schedule.ranks:,}, holds {schedule.source.local_shape(rank)} before, "
    lines = [*header(schedule), held + f"{schedule.target.local_shape(rank)} after"]
    return "\n".join([*lines, *(table(rows) if len(rows) > 1 else ["neither sends, receives nor keeps anything"])])


#: Largest number of different tensors that are listed of several.
_MAX_LISTED_TENSORS = 8


def joined_messages(several: Traffic) -> Counter[tuple[int, int]]:
    """Return the bytes of the message from one rank to another, of all tensors, by (source, target)."""
    rows = ((rank, several.sent_to(rank)) for rank in range(several.ranks))
    pairs = ((rank, *pair) for rank, row in rows for pair in np.column_stack(row).tolist())
    return Counter({(rank, target): nbytes for rank, target, nbytes in pairs if rank != target})


def separate_messages(several: Traffic) -> int:
    """Return the number of messages of tensors that are moved one after another."""
    return sum(int(tensor.totals.sends.sum()) for tensor in several.tensors)


def _text_of_several(several: Traffic) -> str:
    moved, total, tensors = several.bytes_moved(), several.bytes_total(), several.tensors
    messages = joined_messages(several)
    alike = all(tensor == tensors[0] for tensor in tensors)
    lines = [f"{len(tensors)} tensors, {'each ' if alike else ''}as follows, in one exchange"]
    for tensor in tensors[: 1 if alike else _MAX_LISTED_TENSORS]:
        lines += header(tensor)
    lines += ["..."] if not alike and len(tensors) > _MAX_LISTED_TENSORS else []
    lines += [
        f"ranks     {several.ranks:,}",
        f"moved     {format_bytes(moved)} ({share(moved, total)}) in {count(len(messages), 'message')}, "
        f"{separate_messages(several):,} one tensor after another",
        f"local     {format_bytes(total - moved)} ({share(total - moved, total)}) stays on its rank",
    ]
    if moved:
        lines.append(f"messages  {spread(Quantiles.of(Counter(messages.values())), 1)}")
    return "\n".join(lines)


def nodes_text(schedule: Traffic, node_of: Sequence[int]) -> str:
    """Return the bytes between nodes and between ranks of a node, as a line; ``node_of`` has the node of each rank."""
    total, between = schedule.bytes_total(), schedule.bytes_between_nodes(node_of)
    within = schedule.bytes_moved() - between
    return (
        f"nodes     {len(set(node_of)):,}: {format_bytes(between)} ({share(between, total)}) moved between them, "
        f"{format_bytes(within)} ({share(within, total)}) between ranks of a node"
    )


def relabelling_text(saved: int | None, moved: int, how: str = "", where: str = "") -> list[str]:
    """
    Return the bytes saved, of those moved, by remapping the target's ranks, as a line; none if that is nothing.

    :param how: Arguments of ``relabel``, as in `` with node_weights``.
    :param where: Place of these bytes, as in `` between nodes``.
    """
    less = f"{format_bytes(saved or 0)} ({share(saved or 0, moved)}) less{where}"
    line = f"relabel   dace_redist.relabel{how} moves {less}"
    return [line] if saved is not None and saved > 0 else []
