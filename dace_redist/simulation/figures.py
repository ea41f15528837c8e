"""Draws predictions: strategies against each other, the steps of a program, and its scaling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dace_redist.report.canvas import new_figure
from dace_redist.simulation.exchange import LinkUse
from dace_redist.tuning.rank_costs import Terms

if TYPE_CHECKING:
    from dace_redist.simulation.program import SimulatedProgram
    from dace_redist.simulation.redistribution import SimulatedRedistribution
    from dace_redist.simulation.scaling import Scaling

#: Colours of the kinds of steps, and of the terms of the cost model.
KIND_COLOURS = {"contract": "#4c72b0", "reduce": "#dd8452", "redistribute": "#c44e52"}
_TERM_COLOURS = {"latency": "#8c8c8c", "transfer": "#c44e52", "pack": "#4c72b0", "unpack": "#64b5cd", "wait": "#dddddd"}
_LINK_COLOUR = "#55a868"


def draw_strategies(simulated: SimulatedRedistribution) -> Any:
    """Draw the time of each strategy by the terms of the cost model, and of the busiest link of each kind."""
    figure = new_figure(10, 0.4 * len(simulated.estimates) + 1.8, layout="constrained")
    figure.suptitle(f"{simulated.job.ranks:,} ranks on {simulated.job.nodes:,} nodes; {simulated.job.machine}")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    rows = {str(one): one.terms.by_name for one in simulated.estimates}
    _stacked(left, rows, Terms().by_name, _TERM_COLOURS)
    left.set_title("strategies")
    _links(right, simulated.exchange.links)
    return figure


def draw_steps(simulated: SimulatedProgram) -> Any:
    """Draw the time of each step of a program, and of the busiest link of each kind in any step."""
    steps = simulated.steps
    figure = new_figure(10, 0.3 * len(steps) + 1.8, layout="constrained")
    figure.suptitle(f"{simulated.job.ranks:,} ranks on {simulated.job.nodes:,} nodes; {simulated.job.machine}")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    names = [f"{number + 1}  {step.name}" for number, step in enumerate(steps)]
    rows = {name: {step.kind: step.repeats * step.seconds} for name, step in zip(names, steps, strict=True)}
    _stacked(left, rows, KIND_COLOURS, KIND_COLOURS)
    left.set_title("steps")
    _links(right, [link for step in steps if step.exchange is not None for link in step.exchange.links])
    return figure


def draw_scaling(scaling: Scaling) -> Any:
    """Draw the time by kind of step, the efficiency, and the time of the busiest link, over the ranks."""
    runs, ranks = scaling.programs, [one.job.ranks for one in scaling.programs]
    figure = new_figure(10, 3.6, layout="constrained")
    figure.suptitle(f"{'weak' if scaling.weak else 'strong'} scaling; {runs[0].job.machine}")
    times, shares, links = figure.subplots(1, 3)
    bottom = [0.0] * len(runs)
    for kind, colour in KIND_COLOURS.items():
        heights = [one.by_kind[kind] for one in runs]
        times.bar(range(len(runs)), heights, bottom=bottom, color=colour, label=kind, width=0.7)
        bottom = [a + b for a, b in zip(bottom, heights, strict=True)]
    times.set_ylabel("seconds")
    figure.legend(loc="outside lower left", ncols=3)
    shares.plot([100 * share for share in scaling.efficiencies], "o-", color=KIND_COLOURS["contract"])
    shares.set_ylabel("efficiency, %")
    shares.set_ylim(0, 105)
    links.bar(range(len(runs)), [1e3 * one.busiest_link.seconds for one in runs], color=_LINK_COLOUR, width=0.7)
    links.set_ylabel("busiest link, ms in one step")
    for axes in (times, shares, links):
        axes.set_xticks(range(len(runs)), [f"{count:,}" for count in ranks])
        axes.set_xlabel("ranks")
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    return figure


def _stacked(
    axes: Any, rows: Mapping[str, Mapping[str, float]], parts: Iterable[str], colours: Mapping[str, str]
) -> None:
    """Horizontal bars, the first on top, of the parts that a row has, in milliseconds."""
    left = dict.fromkeys(rows, 0.0)
    for part in parts:
        widths = [1e3 * row.get(part, 0.0) for row in rows.values()]
        axes.barh(list(rows), widths, left=list(left.values()), color=colours[part], label=part)
        left = {name: done + width for (name, done), width in zip(left.items(), widths, strict=True)}
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds")
    axes.figure.legend(loc="outside lower left", ncols=5, fontsize=8)
    axes.set_xlim(0, 1.02 * max(left.values(), default=1.0) or 1.0)


def _links(axes: Any, links: Sequence[LinkUse]) -> None:
    """The busiest link of each kind, all of which are named after their kind and a number."""
    busiest: dict[str, LinkUse] = {}
    for link in links:
        kind = link.name.rpartition(" ")[0]
        if kind not in busiest or link.seconds > busiest[kind].seconds:
            busiest[kind] = link
    axes.barh(list(busiest), [1e3 * link.seconds for link in busiest.values()], color=_LINK_COLOUR)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds")
    axes.set_title("busiest link of each kind" if busiest else "nothing goes between nodes")
