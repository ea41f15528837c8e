"""What a machine profile is made of: seconds by size, and seconds per byte by footprint and run length."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import pydantic

from dace_redist.selection.json_file import Strict

Count = Annotated[int, pydantic.Field(ge=1)]
Seconds = Annotated[float, pydantic.Field(gt=0, lt=1e6, allow_inf_nan=False)]


def _ascending(values: list[int]) -> list[int]:
    if not values or any(a >= b for a, b in zip(values, values[1:], strict=False)):
        raise ValueError(f"expected sizes in ascending order, got {values}")
    return values


Sizes = Annotated[list[Count], pydantic.AfterValidator(_ascending)]


def _check_lengths(nbytes: list[int], name: str, values: list[float]) -> None:
    if len(nbytes) != len(values):
        raise ValueError(f"expected {name} of {len(nbytes)} sizes, got {len(values)}")


class Curve(Strict):
    """
    Seconds by size.

    :param nbytes: Sizes, in bytes, ascending.
    :param seconds: Seconds of each.
    """

    nbytes: Sizes
    seconds: list[Seconds]

    @pydantic.model_validator(mode="after")
    def _same_lengths(self) -> Curve:
        _check_lengths(self.nbytes, "seconds", self.seconds)
        return self

    def at(self, nbytes: float) -> float:
        """Seconds at a size, linear between those measured; below the least its seconds, above the largest its rate."""
        if nbytes > self.nbytes[-1]:
            return self.seconds[-1] * nbytes / self.nbytes[-1]
        return float(np.interp(nbytes, self.nbytes, self.seconds))

    @property
    def latency(self) -> float:
        """Seconds of the least size."""
        return self.seconds[0]

    @property
    def rate(self) -> float:
        """Bytes per second at the largest size."""
        return self.nbytes[-1] / self.seconds[-1]


class Factors(Strict):
    """
    How many times as long something takes, by size.

    :param nbytes: Sizes, in bytes, ascending.
    :param factors: A number of at least 1 for each.
    """

    nbytes: Sizes
    factors: list[Annotated[float, pydantic.Field(ge=1, lt=1e3, allow_inf_nan=False)]]

    @pydantic.model_validator(mode="after")
    def _same_lengths(self) -> Factors:
        _check_lengths(self.nbytes, "factors", self.factors)
        return self

    def at(self, nbytes: float) -> float:
        """The factor at a size, linear in its logarithm between those measured; constant beyond."""
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
    def _same_lengths(self) -> Surface:
        wanted = (len(self.footprints), len(self.runs))
        got = (len(self.seconds_per_byte), sorted({len(row) for row in self.seconds_per_byte}))
        if got != (wanted[0], [wanted[1]]):
            raise ValueError(f"expected {wanted[0]} x {wanted[1]} numbers, got {got[0]} rows of {got[1]}")
        return self

    def at(self, footprint: float, run: float) -> float:
        """Seconds per byte, linear between what was measured if all is drawn on logarithmic scales; constant beyond."""
        lengths, wanted = np.log(self.runs), math.log(max(run, 1))
        rows = [np.interp(wanted, lengths, np.log(row)) for row in self.seconds_per_byte]
        return float(np.exp(np.interp(math.log(max(footprint, 1)), np.log(self.footprints), rows)))

    def excess(self, footprint: float, run: float) -> float:
        """What runs of this length take more than the longest that were measured, in seconds per byte."""
        return max(0.0, self.at(footprint, run) - self.at(footprint, self.runs[-1]))


class TwoSides(Strict):
    """
    Exchanges that are strided on one side and contiguous on the other.

    What strides cost adds up: seconds of a message that is strided on both sides are those of ``sent`` and of
    ``received``, less those of the longest runs, which are in both.

    :param sent: Strided where it is sent from.
    :param received: Strided where it arrives.
    """

    sent: Surface
    received: Surface

    def contiguous(self, footprint: float) -> float:
        """Seconds per byte of the longest runs; of both measurements the faster one, which was disturbed less."""
        return min(side.at(footprint, side.runs[-1]) for side in (self.sent, self.received))


class Latency(Strict):
    """
    What exchanges of nearly no bytes take.

    :param exchange: Seconds of an exchange, whatever the number of messages.
    :param message: Seconds that each message of a rank adds.
    """

    exchange: Annotated[float, pydantic.Field(ge=0, lt=1e6, allow_inf_nan=False)]
    message: Seconds
