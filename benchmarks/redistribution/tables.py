"""Results of the benchmark as text: the methods of a case, and means and worst cases over all. They read JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from dace_redist.report.units import format_seconds, table
from redistribution import methods as kinds

Record = Mapping[str, Any]

#: What methods are compared with: the best of these in a case.
REFERENCES = {
    "stock DaCe": (kinds.STOCK,),
    "Alltoallw or mpi4py-fft": (kinds.ALLTOALLW, kinds.NESTED, kinds.PENCIL),
    "ScaLAPACK": (kinds.SCALAPACK,),
    "COSTA": (kinds.COSTA,),
    "PETSc": (kinds.PETSC,),
    "DTensor": (kinds.DTENSOR,),
    "plain copy": (kinds.COPY,),
}


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """
    Yield the lines of a file of results.

    :raises ValueError: If a line is no result; names it.
    """
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            record: dict[str, Any] = json.loads(line)
            _ = record["case"], record["preset"], record["method"], record["environment"]["nodes"]
        except (json.JSONDecodeError, KeyError, TypeError):
            raise ValueError(f"{path}: line {number} is no result of benchmarks/bench.py") from None
        yield record


def read(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the lines of results; of repeated measurements of a method in a case, the last one counts."""
    records = (record for path in paths for record in lines(path))
    keys = ("case", "preset", "method")
    return list({(*(r[key] for key in keys), r["environment"]["nodes"]): r for r in records}.values())


def measured(records: Iterable[Record]) -> list[Record]:
    """Return the records of measured methods."""
    return [record for record in records if "median" in record]


def case_table(records: Iterable[Record]) -> str:
    """Return the methods of one case, the fastest first: median, interval, ratio to stock DaCe, share of the bound."""
    rows = sorted(measured(records), key=lambda record: float(record["median"]))
    if not rows:
        return ""
    first = rows[0]
    shape, nodes = "x".join(map(str, first["shape"])), first["environment"]["nodes"]
    machine = f"{first['ranks']} ranks" + (f" on {nodes} nodes" if nodes > 1 else "")
    cells = [("method", "median", "95 % interval", "repetitions", "x stock", "of a copy", "of the bound")]
    for row in rows:
        interval = f"{format_seconds(row['low'])} - {format_seconds(row['high'])}"
        ratios = (row.get(name) for name in ("ratio_to_stock", "share_of_copy", "share_of_bound"))
        numbers = ("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
        cells.append((row["method"], format_seconds(row["median"]), interval, str(row["repetitions"]), *numbers))
    head = f"\n{first['case']}: {first['dtype']}[{shape}], {first['bytes'] / 1e6:.3g} MB, {machine}"
    return "\n".join([head, *table(cells, left=1)])


def speedups(records: Iterable[Record], method: str, others: Sequence[str]) -> dict[tuple[str, int], float]:
    """Return by case and number of nodes how many times as fast a method is as the fastest of others."""
    medians: dict[tuple[str, int], dict[str, float]] = {}
    for row in measured(records):
        medians.setdefault((row["case"], row["environment"]["nodes"]), {})[row["method"]] = row["median"]
    return {
        case: min(found[other] for other in others if other in found) / found[method]
        for case, found in medians.items()
        if method in found and any(other in found for other in others)
    }


def two_copies(records: Iterable[Record]) -> Iterator[Record]:
    """Yield the time of two plain copies of what moves, and one of what stays: the bound of a way through a buffer."""
    for row in measured(records):
        if row["method"] == kinds.COPY:
            moving = min(1.0, row["bytes_moved"] / row["bytes"])
            yield {**row, "method": "two plain copies", "median": row["median"] * (1 + moving)}


def summary(records: Sequence[Record]) -> str:
    """Return for each strategy with default options, and for two copies, how many times as fast as others they are."""
    bound = list(two_copies(records))
    rows = [*measured(records), *bound]
    labels = dict.fromkeys(row["method"] for row in rows if row["kind"] == "strategy" and not row["options"])
    labels |= dict.fromkeys(row["method"] for row in bound)
    cells = [("method", "compared with", "cases", "geometric mean", "worst", "worst case")]
    for label in labels:
        for name, others in REFERENCES.items():
            found = speedups(rows, label, others)
            if found:
                (worst, nodes), least = min(found.items(), key=lambda item: item[1])
                where = worst if nodes == 1 else f"{worst}, {nodes} nodes"
                mean = geometric_mean(found.values())
                cells.append((label, name, str(len(found)), f"{mean:.2f}", f"{least:.2f}", where))
    return "\n".join(["\nTimes as fast as others", *table(cells, left=2)])
