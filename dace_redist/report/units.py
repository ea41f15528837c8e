"""Numbers for people: bytes and seconds with units, percentages, counts, and aligned tables."""

from __future__ import annotations

from collections.abc import Sequence

#: Bytes of each binary unit.
BYTE_UNITS = {unit: 1 << 10 * power for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))}


def format_bytes(nbytes: float) -> str:
    """Return ``nbytes`` with three digits and a binary unit, as in ``15.2 MiB``."""
    return in_units(nbytes, 1024, tuple(BYTE_UNITS))


def format_seconds(seconds: float) -> str:
    """Return ``seconds`` with three digits and a unit, as in ``1.35 ms``."""
    return in_units(seconds * 1e9, 1000, ("ns", "us", "ms", "s"))


def milliseconds(seconds: float) -> str:
    """Return seconds as a number of milliseconds for a column of a table: to a hundredth of a microsecond at most."""
    return _digits(round(1e3 * seconds, 5))


def byte_unit(largest: float) -> str:
    """Return the unit for numbers of bytes up to ``largest``: MiB, unless these would be hard to read."""
    if (1 << 20) / 10 <= largest < 10_000 * (1 << 20):
        return "MiB"
    return max((unit for unit, nbytes in BYTE_UNITS.items() if nbytes <= max(largest, 1)), key=BYTE_UNITS.__getitem__)


def in_units(value: float, step: int, units: Sequence[str]) -> str:
    """Return a number with three digits in the largest of units, each ``step`` times the one before, that it fills."""
    unit = 0
    while value >= step - 0.5 and unit < len(units) - 1:
        value, unit = value / step, unit + 1
    return f"{_digits(value)} {units[unit]}"


def _digits(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def count(number: int, noun: str) -> str:
    """Return a number with a noun, as in ``2 ranks``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def share(part: float, whole: float) -> str:
    """Return a part in percent."""
    return f"{100 * part / whole if whole else 0:.1f} %"


def table(rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Lines of a table whose columns are aligned: the first ``left`` ones to the left, others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [
        [cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(r, widths, strict=True))]
        for r in rows
    ]
    return ["  ".join(row).rstrip() for row in cells]
