"""Values of machine files: numbers with units, as types of pydantic models. Start reading at: Fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import pydantic
from pydantic import BeforeValidator, Field

_POWERS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_BYTES_PER_SECOND = {
    f"{p}{unit}": power * n for p, power in _POWERS.items() for unit, n in (("B/s", 1), ("bit/s", 0.125))
}
_FLOPS = {f"{prefix}FLOP/s": power for prefix, power in _POWERS.items()}

A_RATE = "a rate from 1 kB/s to 1e6 TB/s with its unit, such as 10 GB/s or 100 Gbit/s"
A_TIME = "a time above 0 and at most 1000 s with its unit, such as 1.3 us"
OPERATIONS = "above 0 with its unit, such as 40 GFLOP/s"


def _checked(value: Any, least: float = 0.0, most: float = float("inf")) -> float:
    """A number above 0 and below infinity, within limits."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError
    if not least <= value <= most:
        raise ValueError
    return float(value)


def _with_unit(units: Mapping[str, float], least: float = 0.0, most: float = float("inf")) -> BeforeValidator:
    """Reads a number with one of these units."""

    def read(value: Any) -> float:
        found = re.fullmatch(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(\S+)\s*", value) if isinstance(value, str) else None
        if found is None or found[2] not in units:
            raise ValueError
        return _checked(float(found[1]) * units[found[2]], least, most)

    return BeforeValidator(read)


def _positive(value: Any) -> float:
    return _checked(float(value) if isinstance(value, str) else value)  # YAML takes 1e3 for a text


def _word(value: Any) -> str:
    if not isinstance(value, str | int) or not str(value).strip():
        raise ValueError
    return str(value).strip()


Whole = Annotated[int, Field(strict=True, ge=1)]
Wholes = Annotated[tuple[Whole, ...], Field(min_length=1)]
Positive = Annotated[float, BeforeValidator(_positive)]
Word = Annotated[str, BeforeValidator(_word)]
Rate = Annotated[float, _with_unit(_BYTES_PER_SECOND, 1e3, 1e18)]
Time = Annotated[float, _with_unit(_SECONDS, most=1e3)]
Flops = Annotated[float, _with_unit(_FLOPS)]


class Fields(pydantic.BaseModel):
    """The fields of a mapping; descriptions are for errors, and name other fields in braces."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)
