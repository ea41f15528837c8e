"""Draws the cost model over size and run length: the fastest strategy of each. Start: plot_costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist.distribution import Distribution
from dace_redist.report.canvas import new_figure, save
from dace_redist.report.text import format_bytes
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

    :param profile: The machine.
    :param ranks: Ranks, at least 2.
    :param memory: Where the arrays lie, one of :data:`dace_redist.tuning.problem.MEMORIES`.
    :param path: File to write; its ending says the format: .png, .svg or .pdf.
    :raises ValueError: If the format is unknown, or there is only one rank.
    :raises FileNotFoundError: If the folder does not exist.
    :raises ImportError: If matplotlib is not installed.
    """
    if ranks < 2:
        raise ValueError("plot: one rank moves nothing; the model is drawn for two ranks or more")
    save(lambda: draw(profile, ranks, memory), path)


def estimates(profile: MachineProfile, ranks: int, memory: str, nbytes: int, run: int) -> dict[str, Estimate]:
    """Return the times of all strategies if each rank moves about ``nbytes`` in runs of ``run`` bytes."""
    rows = max(1, nbytes // (run * ranks)) * ranks
    shape = (rows, ranks * run // _ITEM)
    moved = schedule(Distribution(shape, (ranks, 1)), Distribution(shape, (1, ranks)))
    found = CostModel(Problem(moved, memory), profile, [0] * ranks).estimates()
    return {one.strategy: one for one in found if one.strategy not in ("Hierarchical", "Aggregated")}


def draw(profile: MachineProfile, ranks: int, memory: str) -> Any:
    """Return the ``matplotlib.figure.Figure``; parameters as of :func:`plot_costs`."""
    from matplotlib import colormaps

    table = [[estimates(profile, ranks, memory, nbytes, run) for nbytes in _SIZES] for run in _RUNS]
    names = sorted(table[0][0])
    colours = {name: colormaps["tab10"](number) for number, name in enumerate(names)}
    figure = new_figure(11, 4.6, layout="constrained")
    where, over_runs = figure.subplots(1, 2)
    figure.suptitle(f"{profile.machine}, {profile.mpi}: {ranks} ranks of a node, rows to columns, {memory} arrays")
    fastest = [[min(cell, key=lambda name: cell[name].seconds) for cell in row] for row in table]
    _draw_fastest(where, fastest, colours)
    shown = _SIZES.index(_SHOWN)
    for name in names:
        seconds = [1e3 * row[shown][name].seconds for row in table]
        over_runs.plot(_RUNS, seconds, color=colours[name], marker=".", label=name)
    over_runs.set(xscale="log", yscale="log", xlabel="run length in bytes", ylabel="predicted time in ms")
    over_runs.set_title(f"{format_bytes(_SHOWN)} on each rank", fontsize=9)
    over_runs.legend()
    return figure


def _draw_fastest(axes: Any, fastest: list[list[str]], colours: dict[str, Any]) -> None:
    """One cell for each size and run length, in the colour of its fastest strategy; edges are the crossovers."""
    from matplotlib.patches import Patch

    image: npt.NDArray[Any] = np.array([[colours[name] for name in row] for row in fastest])
    axes.pcolormesh(_edges(_SIZES), _edges(_RUNS), image)
    axes.set(xscale="log", yscale="log", xlabel="bytes that a rank moves", ylabel="run length in bytes")
    axes.set_title("Predicted to be the fastest", fontsize=9)
    present = sorted({name for row in fastest for name in row})
    axes.legend(handles=[Patch(color=colours[name], label=name) for name in present])


def _edges(centres: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Limits of cells of powers of two."""
    return np.array([*(centre / 2**0.5 for centre in centres), centres[-1] * 2**0.5])
