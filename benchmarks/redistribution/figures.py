"""Figures of results: time over the size of a series of cases."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dace_redist.report.canvas import new_figure, require_matplotlib, save
from dace_redist.report.units import format_bytes
from redistribution import methods as kinds
from redistribution.tables import measured

Record = Mapping[str, Any]

#: A colour for each method, the same in every figure; variants of a strategy share it.
_COLOURS = {
    kinds.STOCK: "#444444",
    kinds.COPY: "#bbbbbb",
    kinds.ALLTOALLW: "#8c6d31",
    kinds.PENCIL: "#8c6d31",
    kinds.SCALAPACK: "#c7a76c",
    "Auto": "#d62728",
    "Datatype": "#1f77b4",
    "Pack": "#2ca02c",
    "Threaded": "#98df8a",
    "Pipelined": "#17becf",
    "RMA": "#9467bd",
    "Shared": "#ff7f0e",
    "Hierarchical": "#e377c2",
    "Aggregated": "#bcbd22",
    "NCCL": "#76b900",
}
#: Line style and marker of each kind of memory.
_STYLES = {
    "ordinary": ("-", "o"),
    "shared-target": ("--", "s"),
    "shared-source": (":", "^"),
    "shared-both": ("-.", "v"),
    "mapped": ("--", "P"),
    "gpu": ("-", "D"),
}


def draw_all(records: Sequence[Record], folder: Path) -> list[Path]:
    """
    Draw ``NAME.png`` and ``NAME.svg`` for each series of cases, and each number of nodes; return the files.

    :param records: Lines of ``benchmarks/bench.py``.
    :param folder: Folder for the figures; made if it is missing.
    :raises ValueError: If no series was measured.
    """
    require_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    series: dict[str, list[Record]] = {}
    for row in measured(records):
        nodes = row["environment"]["nodes"]
        series.setdefault(row["series"] + ("" if nodes == 1 else f"-{nodes}-nodes"), []).append(row)
    files = []
    for name, rows in series.items():
        if rows[0]["series"] and len({row["x"] for row in rows}) > 1:
            for path in (folder / f"{name}.png", folder / f"{name}.svg"):
                save(functools.partial(draw_series, rows), path)
                files.append(path)
    if not files:
        raise ValueError("there is nothing to draw: no series of cases was measured in these results")
    return files


def _look(row: Record) -> dict[str, Any]:
    line, marker = _STYLES[row["variant"]]
    colour = _COLOURS.get(row["strategy"] or row["method"], "#7f7f7f")
    return {"color": colour, "linestyle": line, "marker": marker, "markersize": 3.5, "linewidth": 1.3}


def draw_series(rows: Sequence[Record]) -> Any:
    """Draw time over the size of a series, one line per method, its 95 % interval as a band."""
    from matplotlib.ticker import LogFormatter, NullLocator

    figure = new_figure(7.5, 4.6, layout="constrained")
    panel = figure.subplots()
    for label in dict.fromkeys(row["method"] for row in rows):
        own = sorted((row for row in rows if row["method"] == label), key=lambda row: float(row["x"]))
        x, look = [row["x"] for row in own], _look(own[0])
        panel.plot(x, [row["median"] * 1e3 for row in own], label=label, **look)
        low, high = ([row[end] * 1e3 for row in own] for end in ("low", "high"))
        panel.fill_between(x, low, high, alpha=0.12, linewidth=0, color=look["color"])
    values, name = sorted({float(row["x"]) for row in rows}), rows[0]["x_name"]
    if "bytes" in name:
        panel.set_xscale("log")
        panel.xaxis.set_minor_locator(NullLocator())
        panel.tick_params(axis="x", labelsize=8, rotation=45)
    panel.set_xticks(values, [format_bytes(v) if "bytes" in name else f"{v:g}" for v in values])
    panel.set_xlabel(name.replace("bytes of", "size of"))
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(LogFormatter())  # 40, not 4 x 10^1
    panel.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
    panel.set_ylabel("median time, ms")
    panel.grid(True, alpha=0.3)
    panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    where = rows[0]["environment"]
    nodes = f"{where['nodes']} nodes, " if where["nodes"] > 1 else ""
    machine = f"{nodes}{where['cores']} cores, {where['processor']}, {where['mpi']}, commit {where['commit']}"
    figure.suptitle(f"{rows[0]['ranks']} ranks, {machine}; bands: 95 % interval of the median", fontsize=7)
    return figure
