"""Draws predictions: times as bars of their parts, the busiest links, and the scaling of a program."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dace_redist.report.canvas import new_figure
from dace_redist.report.units import format_bytes, format_seconds

#: Colours of the kinds of steps, and of the terms of the cost model.
KIND_COLOURS = {"contract": "#4c72b0", "reduce": "#dd8452", "redistribute": "#c44e52"}
_TERM_COLOURS = {"latency": "#8c8c8c", "transfer": "#c44e52", "pack": "#4c72b0", "unpack": "#64b5cd", "wait": "#dddddd"}
_LINK_COLOUR = "#55a868"


@dataclasses.dataclass(frozen=True)
class LinkUse:
    """The slowest link of all, or of a kind, in an exchange; without a name if nothing goes between nodes."""

    name: str = ""
    nbytes: float = 0.0
    seconds: float = 0.0

    def __str__(self) -> str:
        if not self.name:
            return "none: nothing goes between nodes"
        return f"{self.name} carries most: {format_bytes(self.nbytes)} in {format_seconds(self.seconds)}"


def busiest(links: Iterable[LinkUse]) -> LinkUse:
    """Return the slowest link; one without a name if there is none."""
    return max(links, key=lambda link: link.seconds, default=LinkUse())


def draw_bars(what: str, title: str, rows: Mapping[str, Mapping[str, float]], links: Iterable[LinkUse]) -> Any:
    """
    Draw a horizontal bar for each row, the first on top, and the time of the busiest link of each kind.

    :param rows: Seconds of the parts of each row: kinds of steps, or terms of the cost model.
    """
    figure = new_figure(10, 0.35 * len(rows) + 1.8, layout="constrained")
    figure.suptitle(title)
    bars, of_links = figure.subplots(1, 2, width_ratios=(3, 2))
    ends = dict.fromkeys(rows, 0.0)
    for part, colour in (KIND_COLOURS | _TERM_COLOURS).items():
        widths = {name: 1e3 * row[part] for name, row in rows.items() if part in row}
        if widths:
            bars.barh(list(widths), widths.values(), left=[ends[name] for name in widths], color=colour, label=part)
            ends |= {name: ends[name] + width for name, width in widths.items()}
    bars.set_xlim(0, 1.02 * max(ends.values(), default=1.0) or 1.0)
    bars.set_title(what)
    figure.legend(loc="outside lower left", ncols=5, fontsize=8)
    slowest: dict[str, LinkUse] = {}
    for link in links:  # all are named after their kind and a number
        kind = link.name.rpartition(" ")[0]
        slowest[kind] = max(slowest.get(kind, link), link, key=lambda one: one.seconds)
    of_links.barh(list(slowest), [1e3 * link.seconds for link in slowest.values()], color=_LINK_COLOUR)
    of_links.set_title("busiest link of each kind" if slowest else "nothing goes between nodes")
    for axes in (bars, of_links):
        axes.invert_yaxis()
        axes.set_xlabel("milliseconds")
    return figure


def draw_scaling(
    title: str, rows: Mapping[str, Mapping[str, float]], shares: Sequence[float], links: Sequence[LinkUse]
) -> Any:
    """
    Draw the time by kind of step, the efficiency, and the time of the busiest link, by numbers of ranks.

    :param rows: Seconds of the kinds of steps on each number of ranks.
    :param shares: Efficiency on each, 1 at best.
    :param links: Busiest link on each.
    """
    figure = new_figure(10, 3.6, layout="constrained")
    figure.suptitle(title)
    panels = times, efficiency, of_links = figure.subplots(1, 3)
    bottom = [0.0] * len(rows)
    for kind, colour in KIND_COLOURS.items():
        heights = [row[kind] for row in rows.values()]
        times.bar(range(len(rows)), heights, bottom=bottom, color=colour, label=kind, width=0.7)
        bottom = [a + b for a, b in zip(bottom, heights, strict=True)]
    times.set_ylabel("seconds")
    figure.legend(loc="outside lower left", ncols=3)
    efficiency.plot([100 * share for share in shares], "o-", color=KIND_COLOURS["contract"])
    efficiency.set_ylabel("efficiency, %")
    efficiency.set_ylim(0, 105)
    of_links.bar(range(len(rows)), [1e3 * link.seconds for link in links], color=_LINK_COLOUR, width=0.7)
    of_links.set_ylabel("busiest link, ms in one step")
    for axes in panels:
        axes.set_xticks(range(len(rows)), list(rows))
        axes.set_xlabel("ranks")
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    return figure
