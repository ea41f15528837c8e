"""Schedules as JSON for programs: whole, of one rank, of several tensors, between nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from dace_redist.distribution import AnyDistribution, BoxDistribution, TiledDistribution
from dace_redist.messages import Quantiles
from dace_redist.report.text import joined_messages, measured_ranks, separate_messages
from dace_redist.strategy_memory import all_extra_memory
from dace_redist.traffic import Traffic
from dace_redist.transform import PRECISION, Transform

#: Largest number of messages that ``to_json`` lists.
MAX_LISTED_MESSAGES = 100_000


def distribution_json(distribution: AnyDistribution) -> dict[str, Any]:
    """Return the arguments that make a distribution, as plain numbers and lists."""
    if isinstance(distribution, TiledDistribution):
        fields = {"kind": "tiled", "tile": list(distribution.tile), "owner": distribution.owner_of_tile.tolist()}
    elif isinstance(distribution, BoxDistribution):
        fields = {"kind": "boxed", "boxes": distribution.boxes.tolist(), "owners": distribution.owners.tolist()}
    else:
        values = {name: getattr(distribution, name) for name in ("grid", "dims", "block", "ranks", "pins")}
        fields = {"kind": "blocked"} | {name: value if value is None else list(value) for name, value in values.items()}
        fields["block"] = [list(part) if isinstance(part, tuple) else part for part in distribution.block]
    margins = {"halo": list(distribution.halo), "periodic": list(distribution.periodic)}
    return {"shape": list(distribution.shape), **fields, **(margins if any(distribution.halo) else {})}


def to_json(schedule: Traffic) -> dict[str, Any]:
    """
    Return the report as plain numbers, lists and dictionaries.

    ``volumes`` holds [source, target, bytes] of every message and self copy, None if there are more than
    ``MAX_LISTED_MESSAGES`` messages. That of several tensors is short, and its ``volumes`` have no self copies.
    """
    if schedule.others:
        return _json_of_several(schedule)
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


def head_json(schedule: Traffic) -> dict[str, Any]:
    """Return type, shape, distributions and operation as plain numbers, lists and dictionaries."""
    return {
        "shape": list(schedule.shape),
        "dtype": str(schedule.dtype),
        "itemsize": schedule.itemsize,
        "wire_itemsize": schedule.transform.wire_itemsize,
        "ranks": schedule.ranks,
        "source": distribution_json(schedule.source),
        "target": distribution_json(schedule.target),
        "axes": schedule.transform.axes,
        "region": None if schedule.transform.region is None else schedule.transform.region._asdict(),
        "reshape": schedule.transform.reshape,
        "target_dtype": str(schedule.target_dtype),
        "operation": None if schedule.transform.is_copy else _operation_json(schedule.transform),
        "exchanges": schedule.exchanges,
    }


def _operation_json(operation: Transform) -> dict[str, Any]:
    """Return an operation without its types; complex factors as real and imaginary part."""
    factors = {"alpha": operation.alpha, "beta": operation.beta}
    plain = {name: value if value.imag == 0 else [value.real, value.imag] for name, value in factors.items()}
    return plain | {name: getattr(operation, name) for name in ("conj", "op", *PRECISION)}


def rank_json(schedule: Traffic, rank: int) -> dict[str, Any]:
    """Return the messages of one rank with their blocks, as plain numbers, lists and dictionaries."""
    messages = [{**dataclasses.asdict(m), "bytes": m.nbytes(schedule.itemsize)} for m in schedule.messages(rank)]
    sides = {"source": schedule.source, "target": schedule.target}
    shapes = {f"{name}_local_shape": list(side.local_shape(rank)) for name, side in sides.items()}
    return {**head_json(schedule), "rank": rank, **shapes, "messages": messages}


def _volumes(schedule: Traffic) -> list[list[int]]:
    rows = ((rank, schedule.sent_to(rank)) for rank in range(schedule.ranks))
    return [[rank, *pair] for rank, row in rows for pair in np.column_stack(row).tolist()]


def _json_of_several(several: Traffic) -> dict[str, Any]:
    messages = joined_messages(several)
    listed = len(messages) <= MAX_LISTED_MESSAGES
    return {
        "tensors": [head_json(tensor) for tensor in several.tensors],
        "ranks": several.ranks,
        "bytes_moved": several.bytes_moved(),
        "bytes_total": several.bytes_total(),
        "messages": len(messages),
        "separate_messages": separate_messages(several),
        "volumes": [[*pair, nbytes] for pair, nbytes in messages.items()] if listed else None,
    }


def nodes_json(schedule: Traffic, node_of: Sequence[int]) -> dict[str, Any]:
    """Return the numbers of :func:`dace_redist.report.text.nodes_text`."""
    between = schedule.bytes_between_nodes(node_of)
    return {
        "node_of_rank": list(node_of),
        "bytes_between_nodes": between,
        "bytes_within_nodes": schedule.bytes_moved() - between,
    }
