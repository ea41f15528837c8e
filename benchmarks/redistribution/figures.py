"""Figures of results, each as PNG and SVG: time over the size of a series, and cases relative to a reference."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dace_redist.report.canvas import new_figure, require_matplotlib, save
from redistribution import methods as kinds
from redistribution.tables import REFERENCES, measured, speedups

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
    "gpu": ("-", "D"),
}


def draw_all(records: Sequence[Record], folder: Path) -> list[Path]:
    """
    Draw ``series-NAME`` for each series and ``ratios-GROUP`` for each group of cases; return the files.

    :param records: Lines of ``benchmarks/bench.py``.
    :param folder: Folder for the figures; made if it is missing.
    :raises ValueError: If nothing was measured.
    """
    rows = measured(records)
    if not rows:
        raise ValueError("there is nothing to draw: no method was measured in these results")
    require_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for nodes in sorted({row["environment"]["nodes"] for row in rows}):
        own, ending = [r for r in rows if r["environment"]["nodes"] == nodes], "" if nodes == 1 else f"-{nodes}-nodes"
        figures = {f"series-{name}": _lines([r for r in own if r["series"] == name]) for name in _series(own)}
        for group in dict.fromkeys(row["group"] for row in own):
            figures[f"ratios-{group}"] = _ratios([row for row in own if row["group"] == group])
        for name, figure in figures.items():
            files += [folder / f"{name}{ending}.{kind}" for kind in ("png", "svg")] if figure else []
            for path in files[-2:] if figure else []:
                save(functools.partial(lambda drawn: drawn, figure), path)
    return files


def _series(rows: Sequence[Record]) -> list[str]:
    names = dict.fromkeys(row["series"] for row in rows if row["series"])
    return [name for name in names if len({row["x"] for row in rows if row["series"] == name}) > 1]


def _look(row: Record) -> dict[str, Any]:
    line, marker = _STYLES[row["variant"]]
    colour = _COLOURS.get(row["strategy"] or row["method"], "#7f7f7f")
    return {"color": colour, "linestyle": line, "marker": marker, "markersize": 3.5, "linewidth": 1.3}


def _size(nbytes: float) -> str:
    """Return bytes in a binary unit without digits behind the point."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes:.0f} B"


def _lines(rows: Sequence[Record]) -> Any:
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
    panel.set_xticks(values, [_size(v) if "bytes" in name else f"{v:g}" for v in values])
    panel.set_xlabel(name.replace("bytes of", "size of"))
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(LogFormatter())  # 40, not 4 x 10^1
    panel.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
    panel.set_ylabel("median time, ms")
    _finish(figure, panel, rows)
    return figure


def _ratios(rows: Sequence[Record]) -> Any:
    """Draw how many times as fast as Alltoallw or mpi4py-fft the methods of each case are; None without results."""
    from matplotlib.ticker import NullLocator

    others = REFERENCES["Alltoallw or mpi4py-fft"]
    labels = [r for r in dict.fromkeys(row["method"] for row in rows) if r not in others]
    found = {label: {case: ratio for (case, _), ratio in speedups(rows, label, others).items()} for label in labels}
    cases = [case for case in dict.fromkeys(row["case"] for row in rows) if any(case in one for one in found.values())]
    if not cases:
        return None
    figure = new_figure(8.5, 1.6 + 0.26 * max(len(cases), 8), layout="constrained")
    panel = figure.subplots()
    for label, ratios in found.items():
        look = _look(next(row for row in rows if row["method"] == label)) | {"linestyle": "", "markersize": 5}
        panel.plot(list(ratios.values()), [cases.index(case) for case in ratios], label=label, alpha=0.85, **look)
    panel.axvline(1, color="black", linewidth=0.8)
    panel.set_xscale("log")
    low, high = panel.get_xlim()
    ticks = [step * 10.0**power for power in range(-4, 5) for step in (1, 2, 5)]
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xticks(*zip(*[(tick, f"{tick:g}") for tick in ticks if low <= tick <= high], strict=True))
    panel.set_yticks(range(len(cases)), cases, fontsize=7)
    panel.set_ylim(len(cases) - 0.5, -0.5)
    panel.set_xlabel("times as fast as MPI_Alltoallw or mpi4py-fft (higher is better)")
    _finish(figure, panel, rows)
    return figure


def _finish(figure: Any, panel: Any, rows: Sequence[Record]) -> None:
    """Add grid, legend, and a title with the machine of the measurements."""
    panel.grid(True, alpha=0.3)
    panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    where = rows[0]["environment"]
    nodes = f"{where['nodes']} nodes, " if where["nodes"] > 1 else ""
    machine = f"{nodes}{where['cores']} cores, {where['processor']}, {where['mpi']}, commit {where['commit']}"
    figure.suptitle(f"{rows[0]['group']}: {rows[0]['ranks']} ranks, {machine}", fontsize=7)
