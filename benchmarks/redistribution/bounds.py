"""Bounds of a redistribution: a plain copy of as many bytes on one node, the busiest link between nodes."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist.schedule import Schedule

_BITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


def parse_rate(text: str) -> float:
    """
    Bytes per second of a rate such as ``1gbit`` or ``100mbit``, in the words of tc(8): bits, powers of 1000.

    :raises ValueError: If it is no such rate.
    """
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)(bit|kbit|mbit|gbit)", text.strip().lower())
    if match is None or not float(match[1]) > 0:
        raise ValueError(f"{text!r} is no rate; expected a number and one of {', '.join(_BITS)}, such as 1gbit")
    return float(match[1]) * _BITS[match[2]] / 8


class PlainCopy:
    """
    Every rank copies, with ``memmove``, as many bytes as its part of the target holds.

    :param source: Memory to copy from, if there is enough of it; else new memory is taken.
    :param target: Memory to copy to, this rank's part of the target; contiguous, or new memory is taken.
    """

    def __init__(self, source: npt.NDArray[Any], target: npt.NDArray[Any]) -> None:
        self._nbytes = target.nbytes
        self._to = target if target.flags.c_contiguous else np.ones(target.nbytes, np.uint8)
        enough = source.flags.c_contiguous and source.nbytes >= target.nbytes
        self._from = source if enough else np.ones(target.nbytes, np.uint8)
        self._addresses = self._to.ctypes.data, self._from.ctypes.data

    def run(self) -> None:
        """Copy once."""
        ctypes.memmove(*self._addresses, self._nbytes)


@dataclass(frozen=True)
class NodeTraffic:
    """
    Bytes that a redistribution moves between nodes, in the terms of Cao et al., *Redistribution in PaRSEC*, section 7.

    :param remote: Per node the larger of what it sends to and receives from other nodes: M_remote of formula 4.
    :param local: Per node what stays on it: M_local.
    """

    remote: tuple[int, ...]
    local: tuple[int, ...]

    @classmethod
    def of(cls, schedule: Schedule, node_of: Sequence[int]) -> NodeTraffic:
        """
        Count the traffic of a redistribution.

        :param schedule: The redistribution.
        :param node_of: Number of the node of each rank, from 0.
        """
        nodes = max(node_of) + 1
        volume = np.zeros((nodes, nodes), np.int64)
        matrix = schedule.volume_matrix()
        for source in range(schedule.ranks):
            np.add.at(volume[node_of[source]], list(node_of[: schedule.ranks]), matrix[source])
        kept = np.diag(volume)
        sent, received = volume.sum(1) - kept, volume.sum(0) - kept
        return cls(tuple(np.maximum(sent, received).tolist()), tuple(kept.tolist()))

    def wire_seconds(self, rate: float) -> float:
        """Time of the busiest link, full duplex, at ``rate`` bytes per second: formula 3 solved for the time."""
        return max(self.remote) / rate

    def bound_seconds(self, rate: float, memory_rate: float) -> float:
        """
        Formula 4 without its extra time: the wire, two copies of what is remote, one of what is local.

        :param rate: Bytes per second of a node's link, B_net.
        :param memory_rate: Bytes per second that a node copies, B_memory.
        """
        return max(m / rate + (2 * m + k) / memory_rate for m, k in zip(self.remote, self.local, strict=True))
