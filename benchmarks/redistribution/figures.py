"""Figures of results: time over the size of a series of cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dace_redist.report.canvas import new_figure
from dace_redist.report.units import format_bytes
from redistribution import methods as kinds

#: Colour of each method; variants of a strategy share it.
_COLOURS = {
    kinds.STOCK: "#444444",
    kinds.COPY: "#bbbbbb",
    kinds.ALLTOALLW: "#1f77b4",
    kinds.PENCIL: "#1f77b4",
    kinds.SCALAPACK: "#2ca02c",
    "Auto": "#d62728",
}
_NAMES = {kinds.STOCK: "DaCe", kinds.ALLTOALLW: "MPI_Alltoallw"}
_NAMES |= {"Auto": "dace-redist", "Auto, shared-target": "dace-redist, node-shared target"}
#: Line style and marker of each kind of memory.
_STYLES = {"ordinary": ("-", "o"), "shared-target": ("--", "s")}


def draw_series(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Draw time over the bytes of a series, one line per method, its 95 % interval as a band."""
    from matplotlib.ticker import LogFormatter, NullLocator

    figure = new_figure(7.5, 4.6, layout="constrained")
    panel = figure.subplots()
    for label in dict.fromkeys(row["method"] for row in rows):
        own = sorted((row for row in rows if row["method"] == label), key=lambda row: float(row["x"]))
        x, colour = [row["x"] for row in own], _COLOURS[own[0]["strategy"] or label]
        line, marker = _STYLES[own[0]["variant"]]
        median, low, high = ([row[name] * 1e3 for row in own] for name in ("median", "low", "high"))
        panel.plot(
            x, median, line, label=_NAMES.get(label, label), color=colour, marker=marker, markersize=3.5, linewidth=1.3
        )
        panel.fill_between(x, low, high, alpha=0.12, linewidth=0, color=colour)
    values = sorted({float(row["x"]) for row in rows})
    panel.set_xscale("log")
    panel.xaxis.set_minor_locator(NullLocator())
    panel.tick_params(axis="x", labelsize=8, rotation=45)
    panel.set_xticks(values, [format_bytes(value) for value in values])
    panel.set_xlabel(rows[0]["x_name"].replace("bytes of", "size of"))
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(LogFormatter())  # 40, not 4 x 10^1
    panel.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
    panel.set_ylabel("median time, ms")
    panel.grid(True, alpha=0.3)
    panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    where = rows[0]["environment"]
    machine = f"{where['cores']} cores, {where['processor']}, {where['mpi']}"
    figure.suptitle(f"{rows[0]['ranks']} ranks on {machine}; bands: 95 % interval of the median", fontsize=7)
    return figure
