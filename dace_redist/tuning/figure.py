"""Draws the cost model over size and run length: the fastest strategy of each. Start: plot_costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dace_redist.distribution import Distribution
from dace_redist.report.canvas import new_figure, save
from dace_redist.report.units import format_bytes
from dace_redist.schedule import schedule
from dace_redist.tuning.cost_model import CostModel, Estimate
from dace_redist.tuning.problem import Problem
from dace_redist.tuning.profile import MachineProfile

_SIZES = tuple(1 << power for power in range(12, 27))  # bytes that a rank moves
_RUNS = tuple(1 << power for power in range(3, 17))
_SHOWN = 4 << 20  # the size of the right panel
_ITEM = 8


def plot_costs(profile: MachineProfile, ranks: int, memory: str, path: str | Path) -> None:
    """
    Draw which strategy is the fastest by size and run length, and the times of all by run length.

    The redistribution is that of a matrix from blocks of rows to blocks of columns on one node: contiguous at the
    receiver, in runs at the sender. ``Hierarchical`` and ``Aggregated``, which are ``Shared`` there, are left out.

    :param ranks: Ranks, at least 2; a ValueError if fewer.
    :param path: File to write; errors as of :func:`dace_redist.report.canvas.save`.
    """
    if ranks < 2:
        raise ValueError("plot: one rank moves nothing; the model is drawn for two ranks or more")
    save(lambda: draw(profile, ranks, memory), path)


def estimates(profile: MachineProfile, ranks: int, memory: str, nbytes: int, run: int) -> dict[str, Estimate]:
    """Return the times of all strategies if each rank moves about ``nbytes`` in runs of ``run`` bytes."""
    shape = (max(1, nbytes // (run * ranks)) * ranks, ranks * run // _ITEM)
    moved = schedule(Distribution(shape, (ranks, 1)), Distribution(shape, (1, ranks)))
    found = CostModel(Problem(moved, memory), profile, [0] * ranks).estimates()
    return {one.strategy: one for one in found if one.strategy not in ("Hierarchical", "Aggregated")}


def draw(profile: MachineProfile, ranks: int, memory: str) -> Any:
    """Return the ``matplotlib.figure.Figure``; parameters as of :func:`plot_costs`."""
    from matplotlib import colormaps
    from matplotlib.patches import Patch

    times = [[estimates(profile, ranks, memory, nbytes, run) for nbytes in _SIZES] for run in _RUNS]
    colours = {name: colormaps["tab10"](number) for number, name in enumerate(sorted(times[0][0]))}
    figure = new_figure(11, 4.6, layout="constrained")
    where, over_runs = figure.subplots(1, 2)
    figure.suptitle(f"{profile.machine}, {profile.mpi}: {ranks} ranks of a node, rows to columns, {memory} arrays")
    fastest = [[min(cell, key=lambda name: cell[name].seconds) for cell in row] for row in times]
    edges = (np.array([*(size / 2**0.5 for size in sizes), sizes[-1] * 2**0.5]) for sizes in (_SIZES, _RUNS))
    where.pcolormesh(*edges, np.array([[colours[name] for name in row] for row in fastest]))
    where.set(xscale="log", yscale="log", xlabel="bytes that a rank moves", ylabel="run length in bytes")
    where.set_title("Predicted to be the fastest", fontsize=9)
    present = sorted({name for row in fastest for name in row})
    where.legend(handles=[Patch(color=colours[name], label=name) for name in present])
    for name, colour in colours.items():
        seconds = [1e3 * row[_SIZES.index(_SHOWN)][name].seconds for row in times]
        over_runs.plot(_RUNS, seconds, color=colour, marker=".", label=name)
    over_runs.set(xscale="log", yscale="log", xlabel="run length in bytes", ylabel="predicted time in ms")
    over_runs.set_title(f"{format_bytes(_SHOWN)} on each rank", fontsize=9)
    over_runs.legend()
    return figure
