"""
Figures of results: bars with intervals, time over size, ratio to stock, share of the bound. Start reading at: draw_all.

Every figure is written as PNG and SVG. A figure shows results on one number of nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dace_redist.report.canvas import new_figure
from redistribution import methods as kinds
from redistribution.tables import bound_of, measured

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
}
_OTHERS = "#7f7f7f"
_LINES = {"ordinary": "-", "shared-target": "--", "shared-source": ":", "shared-both": "-."}
_MARKERS = {"ordinary": "o", "shared-target": "s", "shared-source": "^", "shared-both": "v"}
_HATCHES = {"ordinary": "", "shared-target": "////", "shared-source": "....", "shared-both": "xxxx"}

_PANELS_IN_FIGURE = 9
_BARS_INCHES = 0.19  # height of a bar with its gap


def draw_all(records: Sequence[Record], folder: Path) -> list[Path]:
    """
    Draw all figures of some results.

    :param records: Lines of ``benchmarks/bench.py``.
    :param folder: Where to write; made if it is missing.
    :return: The files.
    :raises ValueError: If nothing was measured.
    """
    rows = measured(records)
    if not rows:
        raise ValueError("there is nothing to draw: no method was measured in these results")
    folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    for nodes in sorted({row["environment"]["nodes"] for row in rows}):
        own = [row for row in rows if row["environment"]["nodes"] == nodes]
        for name, figure in _figures(own).items():
            figures[name if nodes == 1 else f"{name}-{nodes}-nodes"] = figure
    files = []
    for name, figure in figures.items():
        files += _write(figure, folder / name)
    return files


def _write(figure: Any, path: Path) -> list[Path]:
    from matplotlib import rc_context

    files = []
    with rc_context({"svg.hashsalt": "dace-redist", "svg.fonttype": "none"}):
        for ending, metadata in ((".png", None), (".svg", {"Date": None})):
            files.append(path.with_name(path.name + ending))
            figure.savefig(files[-1], dpi=130, metadata=metadata, bbox_inches="tight")
    return files


def _figures(rows: Sequence[Record]) -> dict[str, Any]:
    """Return the figures of results on one number of nodes, by name."""
    figures: dict[str, Any] = {}
    for group in dict.fromkeys(row["group"] for row in rows):
        own = [row for row in rows if row["group"] == group]
        cases = list(dict.fromkeys(row["case"] for row in own))
        for number, start in enumerate(range(0, len(cases), _PANELS_IN_FIGURE), start=1):
            part = cases[start : start + _PANELS_IN_FIGURE]
            name = f"times-{group}" if len(cases) <= _PANELS_IN_FIGURE else f"times-{group}-{number}"
            figures[name] = _bars([row for row in own if row["case"] in part])
        if any("ratio_to_stock" in row for row in own):
            figures[f"stock-{group}"] = _ratios(own, _stock_ratio, "times as fast as stock DaCe", kinds.STOCK)
        if any(bound_of(row) is not None for row in own):
            label = "share of the wire bound" if "share_of_wire" in own[0] else "share of a plain copy of as many bytes"
            figures[f"bound-{group}"] = _ratios(own, bound_of, label, kinds.COPY)
    for series in dict.fromkeys(row["series"] for row in rows if row["series"]):
        own = [row for row in rows if row["series"] == series]
        if len({row["x"] for row in own}) > 1:
            figures[f"series-{series}"] = _lines(own)
    return figures


def _stock_ratio(row: Record) -> float | None:
    ratio = row.get("ratio_to_stock")
    return None if ratio is None else float(ratio)


def _new(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    """A figure that belongs to no window, and its axes in an array of two dimensions."""
    figure = new_figure(width, height, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _marker(row: Record) -> str:
    return "D" if row["method"] == kinds.PENCIL else _MARKERS[row["variant"]]


def _look(row: Record) -> dict[str, Any]:
    """Colour of a method."""
    return {"color": _COLOURS.get(row["strategy"] or row["method"], _COLOURS.get(row["method"], _OTHERS))}


def _bars(rows: Sequence[Record]) -> Any:
    """A panel per case: the median of every method, with its interval."""
    cases = {row["case"]: [r for r in rows if r["case"] == row["case"]] for row in rows}
    columns = min(3, len(cases))
    lines = math.ceil(len(cases) / columns)
    tallest = max(map(len, cases.values()))
    figure, axes = _new(5.0 * columns, (_BARS_INCHES * tallest + 0.9) * lines, lines, columns)
    for panel, own in zip(axes.flat, cases.values(), strict=False):
        _bar_panel(panel, sorted(own, key=lambda row: float(row["median"]), reverse=True))
    for panel in axes.flat[len(cases) :]:
        panel.set_visible(False)
    _title(figure, rows, "whiskers: 95 % interval of the median")
    return figure


def _bar_panel(axes: Any, rows: Sequence[Record]) -> None:
    factor, unit = _unit(max(row["median"] for row in rows))
    for position, row in enumerate(rows):
        median = row["median"] * factor
        errors = [[median - row["low"] * factor], [row["high"] * factor - median]]
        hatch = _HATCHES[row["variant"]]
        axes.barh(position, median, height=0.75, hatch=hatch, edgecolor="white", linewidth=0.5, **_look(row))
        axes.errorbar(median, position, xerr=errors, color="black", capsize=2, linewidth=0.9)
    axes.set_yticks(range(len(rows)), [row["method"] for row in rows], fontsize=7)
    # An interval of a disturbed method may be far longer than all bars; it is cut off rather than they shortened.
    longest = max(row["median"] for row in rows) * factor
    axes.set_xlim(0, min(max(row["high"] for row in rows) * factor, 1.6 * longest) * 1.04)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlabel(f"median time, {unit}", fontsize=7)
    first = rows[0]
    axes.set_title(f"{first['case']}: {first['ranks']} ranks, {_size(first['bytes'])}", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _unit(seconds: float) -> tuple[float, str]:
    return next(((f, u) for f, u in ((1.0, "s"), (1e3, "ms")) if seconds * f >= 1), (1e6, "µs"))


def _size(nbytes: float) -> str:
    """Bytes in three digits, in powers of 1000."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes:.0f} B"


def _lines(rows: Sequence[Record]) -> Any:
    """Time over the size of a series, one line per method, its interval as a band."""
    from matplotlib.ticker import LogFormatter

    figure, axes = _new(7.5, 4.6)
    panel = axes[0, 0]
    for label in dict.fromkeys(row["method"] for row in rows):
        own = sorted((row for row in rows if row["method"] == label), key=lambda row: float(row["x"]))
        x, variant = [row["x"] for row in own], own[0]["variant"]
        style = {"linestyle": _LINES[variant], "marker": _marker(own[0]), "markersize": 3.5, "linewidth": 1.3}
        panel.plot(x, [row["median"] * 1e3 for row in own], label=label, **style, **_look(own[0]))
        low, high = ([row[end] * 1e3 for row in own] for end in ("low", "high"))
        panel.fill_between(x, low, high, alpha=0.12, linewidth=0, **_look(own[0]))
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(LogFormatter())  # 40, not 4 x 10^1
    panel.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
    _scale_x(panel, rows)
    panel.set_ylabel("median time, ms")
    panel.grid(True, which="major", alpha=0.3)
    panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    _title(figure, rows, "bands: 95 % interval of the median")
    return figure


def _scale_x(axes: Any, rows: Sequence[Record]) -> None:
    """Sizes on a logarithmic axis with a tick for each, small numbers on an ordinary one."""
    from matplotlib.ticker import NullLocator

    values = sorted({float(row["x"]) for row in rows})
    name = rows[0]["x_name"]
    of_bytes = "bytes" in name
    if of_bytes:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(values, [_size(v) if of_bytes else f"{v:g}" for v in values])
    if of_bytes:
        axes.tick_params(axis="x", labelsize=8, rotation=45)
    axes.set_xlabel(name.replace("bytes of", "size of"))


def _ratios(rows: Sequence[Record], value: Callable[[Record], float | None], label: str, reference: str) -> Any:
    """A row per case, a point per method, on a logarithmic axis with a line at 1."""
    shown = [row for row in rows if value(row) is not None and row["method"] != reference]
    cases = list(dict.fromkeys(row["case"] for row in shown))
    figure, axes = _new(8.5, 1.6 + 0.26 * max(len(cases), 8))
    panel = axes[0, 0]
    for method in dict.fromkeys(map(_short, shown)):
        own = [row for row in shown if _short(row) == method]
        style = {"marker": _marker(own[0]), "linestyle": "", "markersize": 5, "alpha": 0.85}
        panel.plot(
            [value(r) for r in own], [cases.index(r["case"]) for r in own], label=method, **style, **_look(own[0])
        )
    panel.axvline(1, color="black", linewidth=0.8)
    panel.set_xscale("log")
    _plain_ticks(panel, [value(row) or 1.0 for row in shown])
    panel.set_yticks(range(len(cases)), cases, fontsize=7)
    panel.set_ylim(len(cases) - 0.5, -0.5)
    panel.grid(True, axis="both", alpha=0.25)
    panel.set_xlabel(f"{label} (higher is better)")
    panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    _title(figure, rows, "ratios of medians")
    return figure


def _short(row: Record) -> str:
    """Its method, of which the options do not matter where many cases are shown."""
    return f"{row['strategy']}, with options" if row["options"] else str(row["method"])


def _plain_ticks(axes: Any, values: Sequence[float]) -> None:
    """Ticks at 1, 2 and 5 times powers of ten that the values reach."""
    from matplotlib.ticker import NullLocator

    low, high = min([*values, 0.8]) * 0.9, max([*values, 1.2]) * 1.1
    steps = (1, 2, 5) if high / low < 1e3 else (1,)
    ticks = [step * 10.0**e for e in range(-4, 5) for step in steps if low <= step * 10.0**e <= high]
    axes.set_xlim(low, high)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])


def _title(figure: Any, rows: Sequence[Record], what: str) -> None:
    """Set the title: contents, and machine of the measurements."""
    where = rows[0]["environment"]
    nodes = f"{where['nodes']} nodes" if where["nodes"] > 1 else "one node"
    commit = f", commit {where['commit']}" if where["commit"] else ""
    figure.suptitle(
        f"{rows[0]['group']}: {nodes}, {where['cores']} cores, {where['mpi']}, {where['processor']}{commit}; {what}",
        fontsize=7,
    )
