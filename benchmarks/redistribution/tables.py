"""Tables of results: per case, per group, and against what is required. They read the lines that ``run`` writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from redistribution import requirements

Record = Mapping[str, Any]


def read(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """
    Return the lines of files that ``run`` wrote; of repeated measurements of a method in a case, the last one counts.

    :raises ValueError: If a line is not one of them; says which.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            try:
                record = json.loads(line)
                nodes = record.get("environment", {}).get("nodes", 1)
                found[record["case"], record["preset"], record["method"], nodes] = record
            except (json.JSONDecodeError, KeyError, AttributeError, TypeError):
                raise ValueError(f"{path}: line {number} is no result of benchmarks/bench.py") from None
    return list(found.values())


def measured(records: Iterable[Record]) -> list[Record]:
    """Return the records of measured methods."""
    return [record for record in records if "median" in record]


def format_seconds(seconds: float) -> str:
    """Three digits, in s, ms or µs."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < 999.5 else f"{seconds * factor:.0f} {unit}"
    raise AssertionError


def bound_of(record: Record) -> float | None:
    """Share of the bound that applies: of the wire between nodes, of the plain copy on one."""
    share = record.get("share_of_wire", record.get("share_of_copy"))
    return None if share is None else float(share)


def case_table(records: Iterable[Record]) -> str:
    """Return the methods of one case, the fastest first: median, interval, ratio to stock, share of the bound."""
    rows = sorted(measured(records), key=lambda record: float(record["median"]))
    if not rows:
        return ""
    first = rows[0]
    shape = "x".join(map(str, first["shape"]))
    nodes = first["environment"]["nodes"]
    machine = f"{first['ranks']} ranks" + (f" on {nodes} nodes" if nodes > 1 else "")
    head = f"\n{first['case']}: {first['dtype']}[{shape}], {first['bytes'] / 1e6:.3g} MB, {machine}"
    cells = [("method", "median", "95 % interval", "repetitions", "x stock", "of bound")]
    for row in rows:
        interval = f"{format_seconds(row['low'])} - {format_seconds(row['high'])}"
        median, count = format_seconds(row["median"]), str(row["repetitions"])
        cells.append(
            (row["method"], median, interval, count, _number(row.get("ratio_to_stock")), _number(bound_of(row)))
        )
    return head + "\n" + _aligned(cells)


def group_table(records: Iterable[Record]) -> str:
    """Per group of cases and method: geometric mean and worst case of the ratio to stock and of the share of bound."""
    by_group: dict[tuple[str, str], list[Record]] = {}
    for record in measured(records):
        by_group.setdefault((record["group"], record["method"]), []).append(record)
    cells = [("group", "method", "cases", "x stock, mean", "worst", "of bound, mean", "worst")]
    for (group, method), rows in by_group.items():
        stock = _mean_and_worst([float(row["ratio_to_stock"]) for row in rows if "ratio_to_stock" in row])
        bound = _mean_and_worst([share for share in map(bound_of, rows) if share is not None])
        cells.append((group, method, str(len(rows)), *stock, *bound))
    return "\nGeometric means and worst cases\n" + _aligned(cells, words=2)


def requirements_table(records: Iterable[Record]) -> str:
    """Return the requirements with their values; a requirement without results has no value."""
    cells = [("must reach", "required", "seen", "cases", "worst case")]
    for row in requirements.rows(records):
        verdict = {None: "", True: "", False: " MISSED"}[row.is_met]
        seen = _number(row.seen) + verdict
        cells.append((row.what, f">= {row.required:g}", seen, str(row.cases), row.worst or "-"))
    return "\n" + _aligned(cells)


def _mean_and_worst(values: Sequence[float]) -> tuple[str, str]:
    return (_number(requirements.geometric_mean(values)), _number(min(values))) if values else ("-", "-")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _aligned(rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Columns; the first ones hold words, the others numbers."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        lines.append("  ".join(cell.ljust(w) if i < words else cell.rjust(w) for i, (cell, w) in enumerate(cells)))
    return "\n".join(lines)
