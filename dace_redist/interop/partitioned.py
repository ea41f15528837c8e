"""Arrays with ``__partitioned__``, the partition interface of Heat, Intel's DPPY and others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from mpi4py import MPI

from dace_redist.interop import Part, blocks


def read(array: Any, comm: MPI.Intracomm) -> Part:
    """
    Return this rank's part of an array; a copy if a rank has several partitions. Local.

    :raises ValueError: If a partition lies on another process than a rank of ``comm``.
    """
    interface = array.__partitioned__
    partitions, boxes, held = interface["partitions"].values(), [], []
    owners: list[int] = []
    get = interface.get("get", lambda data: data)
    for partition in partitions:
        places = list(partition["location"])
        if not places or not all(isinstance(place, int | np.integer) and 0 <= place < comm.size for place in places):
            raise ValueError(f"location of a partition must be ranks of comm, 0 to {comm.size - 1}, got {places}")
        boxes += [(tuple(map(int, partition["start"])), tuple(map(int, partition["shape"])))] * len(places)
        owners += map(int, places)
        held += [get(partition["data"])] if comm.rank in places else []
    where = blocks.of_boxes(interface["shape"], boxes, owners)
    held = [one for one in held if 0 not in one.shape] or held[:1]
    if len(held) > 1:
        return Part(np.concatenate([np.ravel(one) for one in held]), where, comm)
    return Part(held[0] if held else np.empty(0, next(iter(partitions))["dtype"]), where, comm)


def make(part: Part) -> Any:
    """Return an object with ``__partitioned__`` whose partitions are the parts of the ranks, without a copy."""
    of = blocks.Blocks.of(part.distribution)
    starts = [np.cumsum([0, *lengths])[:-1].tolist() for lengths in of.lengths]
    partitions, own = {}, []
    for cell in np.ndindex(of.ranks.shape[:-1]):
        places = of.ranks[cell].tolist()
        here = part.comm.rank in places
        own += [cell] if here else []
        partitions[cell] = {
            "start": tuple(first[i] for first, i in zip(starts, cell, strict=True)),
            "shape": tuple(lengths[i] for lengths, i in zip(of.lengths, cell, strict=True)),
            "data": part.local if here else None,
            "location": places,
            "dtype": part.local.dtype,
            "device": "cpu",
        }
    interface = {
        "shape": of.shape,
        "partition_tiling": of.ranks.shape[:-1],
        "partitions": partitions,
        "locals": own,
        "get": lambda data: data,
    }
    return SimpleNamespace(__partitioned__=interface)
