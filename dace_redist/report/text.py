"""A schedule as text for people (``text``, ``rank_text``) and as JSON for programs (``to_json``)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dace_redist.distribution import AnyDistribution, Distribution, TiledDistribution
from dace_redist.element_operation import ElementOperation
from dace_redist.messages import Message, Quantiles
from dace_redist.strategy_memory import all_extra_memory

if TYPE_CHECKING:
    from dace_redist.schedule import Schedule

#: Largest number of ranks whose runs are measured for the report; of more ranks, this many evenly spread ones.
MAX_MEASURED_RANKS = 256
#: Largest number of messages that ``to_json`` lists.
MAX_LISTED_MESSAGES = 100_000

#: Bytes of each binary unit.
BYTE_UNITS = {unit: 1 << 10 * power for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))}


def format_bytes(nbytes: float) -> str:
    """Return ``nbytes`` with three digits and a binary unit, as in ``15.2 MiB``."""
    return in_units(nbytes, 1024, tuple(BYTE_UNITS))


def byte_unit(largest: float) -> str:
    """Return the unit for numbers of bytes up to ``largest``: MiB, unless these would be hard to read."""
    if (1 << 20) / 10 <= largest < 10_000 * (1 << 20):
        return "MiB"
    return max((unit for unit, nbytes in BYTE_UNITS.items() if nbytes <= max(largest, 1)), key=BYTE_UNITS.__getitem__)


def in_units(value: float, step: int, units: Sequence[str]) -> str:
    """Return a number with three digits in the largest of units, each ``step`` times the one before, that it fills."""
    unit = 0
    while value >= 999.5 and unit < len(units) - 1:
        value, unit = value / step, unit + 1
    return f"{value:.3g} {units[unit]}"


def count(number: int, noun: str) -> str:
    """Return a number with a noun, as in ``2 ranks``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def share(part: int, whole: int) -> str:
    """Return a part in percent."""
    return f"{100 * part / whole if whole else 0:.1f} %"


def table(rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Lines of a table whose columns are aligned: the first ``left`` ones to the left, others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [
        [cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(r, widths, strict=True))]
        for r in rows
    ]
    return ["  ".join(row) for row in cells]


def spread(lengths: Quantiles, itemsize: int) -> str:
    """Return lengths in bytes: the one length, or the smallest, the largest and the median."""
    smallest, median, largest = map(format_bytes, dataclasses.astuple(lengths.nbytes(itemsize)))
    return smallest if smallest == largest else f"{smallest} to {largest}, half of all bytes in up to {median}"


def block_shape(distribution: Distribution) -> tuple[int | str, ...]:
    """Return the elements per block and dimension; where nothing is split the whole extent."""
    lengths = map(distribution.core.uniform_block, range(len(distribution.shape)))
    return tuple("balanced" if length < 0 else length for length in lengths)


def _joined(values: Any) -> str:
    return " x ".join(str(value) for value in values)


def describe(distribution: AnyDistribution) -> str:
    """Return a distribution in one line."""
    if isinstance(distribution, TiledDistribution):
        owners = len(set(distribution.owner_of_tile.ravel().tolist()))
        tiles = count(distribution.owner_of_tile.size, "tile")
        return f"{tiles} of {_joined(distribution.tile) or 'one element'} on {count(owners, 'rank')}"
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


def header(schedule: Schedule) -> list[str]:
    """Return lines of type, shape, size, both distributions and the operation."""
    whole = math.prod(schedule.shape) * schedule.dtype.itemsize
    lines = [
        f"tensor    {schedule.dtype}[{', '.join(map(str, schedule.shape))}], {format_bytes(whole)}",
        f"from      {describe(schedule.source)}",
        f"to        {describe(schedule.target)}",
    ]
    return [*lines, *([f"as        {schedule.index_map}"] if str(schedule.index_map) else []), *_computed(schedule)]


def _computed(schedule: Schedule) -> list[str]:
    """Lines of the operation on elements."""
    if schedule.operation is None:
        return []
    lines = [f"computes  {schedule.operation}"]
    if schedule.dtype != schedule.target_dtype:
        lines.append(f"on wire   {count(schedule.itemsize, 'byte')} an element")
    if schedule.reduces:
        partial = count(schedule.source.core.replicas, "partial result")
        exchanges = count(schedule.exchanges, "exchange")
        lines.append(f"reduces   {partial} of each element, in up to {exchanges}")
    return lines


def measured_ranks(schedule: Schedule) -> range:
    """Return the ranks whose runs are measured: all, or evenly spread ones of very many."""
    return range(0, schedule.ranks, -(-schedule.ranks // MAX_MEASURED_RANKS))


def text(schedule: Schedule) -> str:
    """Return the report: messages, bytes, run lengths, the busiest rank, the share of self copies."""
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
        f"memory    besides the arrays, at most: {_memory(schedule)}",
    ]
    return "\n".join(lines)


def _memory(schedule: Schedule) -> str:
    return ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in all_extra_memory(schedule).items())


def rank_text(schedule: Schedule, rank: int) -> str:
    """Return the messages of one rank as a table; costs these messages only."""
    titles = ("", "rank", "elements", "bytes", "blocks", "run where sent", "where received", "both")
    rows: list[tuple[str, ...]] = [titles]
    for message in schedule.messages(rank):
        sent, received = (Quantiles.of(runs).median for runs in (message.source_runs, message.target_runs))
        word, peer = _direction(message, rank)
        numbers = (sent, received, message.run_length)
        lengths = [format_bytes(number * schedule.itemsize) for number in numbers]
        nbytes = format_bytes(message.nbytes(schedule.itemsize))
        rows.append((word, str(peer), f"{message.count:,}", nbytes, f"{len(message.blocks):,}", *lengths))
    held = f"rank      {rank} of {schedule.ranks:,}, holds {schedule.source.local_shape(rank)} before, "
    lines = [*header(schedule), held + f"{schedule.target.local_shape(rank)} after"]
    return "\n".join([*lines, *(table(rows) if len(rows) > 1 else ["neither sends, receives nor keeps anything"])])


def _direction(message: Message, rank: int) -> tuple[str, int]:
    if message.source == message.target:
        return "keeps", rank
    return ("sends to", message.target) if message.source == rank else ("receives from", message.source)


def distribution_json(distribution: AnyDistribution) -> dict[str, Any]:
    """Return the arguments that make a distribution, as plain numbers and lists."""
    if isinstance(distribution, TiledDistribution):
        owner = distribution.owner_of_tile.tolist()
        return {"kind": "tiled", "shape": list(distribution.shape), "tile": list(distribution.tile), "owner": owner}
    fields = ("shape", "grid", "dims", "block", "ranks", "pins")
    values = [(name, getattr(distribution, name)) for name in fields]
    return {"kind": "blocked"} | {name: None if value is None else list(value) for name, value in values}


def to_json(schedule: Schedule) -> dict[str, Any]:
    """
    Return the report as plain numbers, lists and dictionaries; lengths in elements unless named bytes.

    ``volumes`` holds [source, target, bytes] of every message and self copy, None if there are more than
    ``MAX_LISTED_MESSAGES`` messages.
    """
    totals, itemsize = schedule.totals, schedule.itemsize
    messages = int(totals.sends.sum())
    measured = measured_ranks(schedule)
    runs, busiest = schedule.run_lengths(measured), schedule.busiest_rank()
    in_bytes = {name: (getattr(totals, name) * itemsize).tolist() for name in ("sent", "received", "kept")}
    return {
        **head_json(schedule),
        "bytes_moved": schedule.bytes_moved(),
        "bytes_total": schedule.bytes_total(),
        "messages": messages,
        "message_lengths": dataclasses.asdict(Quantiles.of(totals.sizes)),
        "run_lengths": {**dataclasses.asdict(runs), "ranks_measured": len(measured)},
        "busiest_rank": busiest,
        "extra_bytes": all_extra_memory(schedule),
        "per_rank": {f"bytes_{name}": values for name, values in in_bytes.items()},
        "volumes": _volumes(schedule) if messages <= MAX_LISTED_MESSAGES else None,
    }


def head_json(schedule: Schedule) -> dict[str, Any]:
    """Return type, shape, distributions and operation as plain numbers, lists and dictionaries."""
    return {
        "shape": list(schedule.shape),
        "dtype": str(schedule.dtype),
        "itemsize": schedule.itemsize,
        "ranks": schedule.ranks,
        "source": distribution_json(schedule.source),
        "target": distribution_json(schedule.target),
        "axes": schedule.index_map.axes,
        "region": None if schedule.index_map.region is None else schedule.index_map.region._asdict(),
        "target_dtype": str(schedule.target_dtype),
        "operation": None if schedule.operation is None else operation_json(schedule.operation),
        "exchanges": schedule.exchanges,
    }


def operation_json(operation: ElementOperation) -> dict[str, Any]:
    """Return an operation without its types; complex factors as real and imaginary part."""
    factors = {"alpha": operation.alpha, "beta": operation.beta}
    plain = {name: value if value.imag == 0 else [value.real, value.imag] for name, value in factors.items()}
    return {**plain, "conj": operation.conj, "op": operation.op}


def rank_json(schedule: Schedule, rank: int) -> dict[str, Any]:
    """Return the messages of one rank with their blocks, as plain numbers, lists and dictionaries."""
    messages = [
        {**dataclasses.asdict(message), "bytes": message.nbytes(schedule.itemsize)}
        for message in schedule.messages(rank)
    ]
    shapes = {
        "source_local_shape": list(schedule.source.local_shape(rank)),
        "target_local_shape": list(schedule.target.local_shape(rank)),
    }
    return {**head_json(schedule), "rank": rank, **shapes, "messages": messages}


def _volumes(schedule: Schedule) -> list[list[int]]:
    rows = ((rank, schedule.sent_to(rank)) for rank in range(schedule.ranks))
    return [[rank, *pair] for rank, row in rows for pair in np.column_stack(row).tolist()]
