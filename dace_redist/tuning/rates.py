"""Parts of a machine profile: seconds by size, and seconds per byte by footprint and run length."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
import pydantic

from dace_redist.tuning.files import Strict

Count = Annotated[int, pydantic.Field(ge=1)]
Seconds = Annotated[float, pydantic.Field(gt=0, lt=1e6, allow_inf_nan=False)]


def _ascending(values: list[int]) -> list[int]:
    if not values or any(a >= b for a, b in zip(values, values[1:], strict=False)):
        raise ValueError(f"expected sizes in ascending order, got {values}")
    return values


Sizes = Annotated[list[Count], pydantic.AfterValidator(_ascending)]


class _BySize(Strict):
    """One number for each of several sizes in bytes."""

    nbytes: Sizes

    @pydantic.model_validator(mode="after")
    def _equal_lengths(self) -> Any:
        for name in type(self).model_fields:
            if len(getattr(self, name)) != len(self.nbytes):
                got = len(getattr(self, name))
                raise ValueError(f"expected {name} of {len(self.nbytes)} sizes, got {got}")
        return self


class Curve(_BySize):
    """Seconds by size in bytes."""

    seconds: list[Seconds]

    def at(self, nbytes: float) -> float:
        """Interpolate linearly; constant below the smallest size, constant bandwidth above the largest."""
        if nbytes > self.nbytes[-1]:
            return self.seconds[-1] * nbytes / self.nbytes[-1]
        return float(np.interp(nbytes, self.nbytes, self.seconds))

    @property
    def latency(self) -> float:
        """Seconds of the smallest size."""
        return self.seconds[0]

    @property
    def rate(self) -> float:
        """Bytes per second at the largest size."""
        return self.nbytes[-1] / self.seconds[-1]


class Factors(_BySize):
    """Factors of at least 1 by size in bytes."""

    factors: list[Annotated[float, pydantic.Field(ge=1, lt=1e3, allow_inf_nan=False)]]

    def at(self, nbytes: float) -> float:
        """Interpolate linearly over the logarithm of the size; constant beyond."""
        return float(np.interp(math.log(max(nbytes, 1)), np.log(self.nbytes), self.factors))


class Surface(Strict):
    """
    Seconds per byte by footprint and run length.

    :param footprints: Bytes that a rank moves, ascending: small ones stay in the cache.
    :param runs: Lengths of contiguous runs, in bytes, ascending.
    :param seconds_per_byte: For each footprint one number per run length.
    """

    footprints: Sizes
    runs: Sizes
    seconds_per_byte: list[list[Seconds]]

    @pydantic.model_validator(mode="after")
    def _equal_lengths(self) -> Surface:
        wanted = (len(self.footprints), len(self.runs))
        got = (len(self.seconds_per_byte), sorted({len(row) for row in self.seconds_per_byte}))
        if got != (wanted[0], [wanted[1]]):
            raise ValueError(f"expected {wanted[0]} x {wanted[1]} numbers, got {got[0]} rows of {got[1]}")
        return self

    def at(self, footprint: float, run: float) -> float:
        """Interpolate linearly where all axes are logarithmic; constant beyond."""
        lengths, wanted = np.log(self.runs), math.log(max(run, 1))
        rows = [np.interp(wanted, lengths, np.log(row)) for row in self.seconds_per_byte]
        return float(np.exp(np.interp(math.log(max(footprint, 1)), np.log(self.footprints), rows)))


class TwoSides(Strict):
    """
    Exchanges that are strided on one side and contiguous on the other.

    Costs of strides add up: a message that is strided on both sides takes the seconds of ``sent`` and of ``received``,
    less those of the longest runs, which are in both.

    :param sent: Strided at the sender.
    :param received: Strided at the receiver.
    """

    sent: Surface
    received: Surface

    def contiguous(self, footprint: float) -> float:
        """Seconds per byte of the longest runs, by the faster of both measurements."""
        return min(side.at(footprint, side.runs[-1]) for side in (self.sent, self.received))


class Latency(Strict):
    """
    Seconds of exchanges of nearly no bytes.

    :param exchange: Of an exchange, whatever the number of messages.
    :param message: Added by each message of a rank.
    """

    exchange: Annotated[float, pydantic.Field(ge=0, lt=1e6, allow_inf_nan=False)]
    message: Seconds


class Kernels(Strict):
    """
    Copies of one rank: to contiguous memory, from it, and transposed. The model has no use for those by non-temporal
    stores.
    """

    pack: Surface
    unpack: Surface
    permuted: Surface
    non_temporal: Surface | None = None


class Exchanges(Strict):
    """
    Exchanges between the ranks of a node, each of which sends to one and receives from another.

    :param messages: Contiguous messages.
    :param chunks: Chunks of a contiguous message that moves in chunks: seconds of one by its size.
    :param push: Copied by the sender into the target: a node-shared one, or one on a GPU.
    :param latency: By kind: ``messages``, ``shared``; in main memory also ``datatypes``, ``puts``, and ``handshake``:
        added by a message that is too long to be sent without one.
    """

    messages: Curve
    chunks: Curve
    push: TwoSides
    latency: dict[str, Latency]


class NodeRates(Exchanges):
    """
    Exchanges between the ranks of a node in main memory.

    :param puts: Contiguous puts into a window; None if MPI has no windows.
    :param datatypes: Described by MPI's derived datatypes.
    :param staged: Through a ring in node-shared memory.
    :param pull: Copied by the receiver out of a node-shared source.
    :param read: Copied by the kernel out of the sender's memory; long runs on both sides.
    :param thread_start: Seconds until OpenMP threads share a copy.
    :param staged_wait: Factor of the time of staged messages between all ranks, by the bytes of a rank's array: ranks
        that share cores wait for each other's pieces. None where each rank has a core.
    """

    puts: Curve | None
    datatypes: TwoSides
    staged: TwoSides
    pull: TwoSides
    read: Surface
    thread_start: Seconds
    staged_wait: Factors | None = None


class NetworkRates(Strict):
    """
    Exchanges between nodes; each rank sends to one and receives from another.

    :param messages: Contiguous MPI messages, one rank of each node at work.
    :param link_seconds_per_byte: Seconds per byte that a node sends, or receives at the same time, with all its ranks
        at work.
    :param chunks: Seconds of a chunk by its size, with all ranks at work. None: bandwidth does not depend on it.
    """

    messages: Curve
    link_seconds_per_byte: Seconds
    chunks: Curve | None = None

    def seconds_per_byte(self, nbytes: float) -> float:
        """Return the seconds per byte of a node's link in chunks of ``nbytes``."""
        if self.chunks is None or nbytes < self.chunks.nbytes[0]:
            return self.link_seconds_per_byte
        return self.chunks.at(nbytes) / nbytes


class DeviceRates(Strict):
    """
    Copies on GPUs and exchanges between them.

    :param name: Model of the GPUs.
    :param launch: Seconds of a kernel that copies nearly nothing, until it is done.
    :param kernels: Copies of one rank in the memory of its GPU; without ``launch``.
    :param to_main_memory: Arrays copied to pinned main memory.
    :param to_gpu: Arrays copied from there.
    :param node: Between GPUs of the ranks of a node. None where each rank has a node of its own.
    :param network: Between GPUs of different nodes; None where all ranks were on one node.
    """

    name: str
    launch: Seconds
    kernels: Kernels
    to_main_memory: Curve
    to_gpu: Curve
    node: Exchanges | None
    network: NetworkRates | None
