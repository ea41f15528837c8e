"""Draws a schedule: owners before and after, and the volume from rank to rank. Start: plot_schedule."""

from __future__ import annotations

import dataclasses
import operator
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dace_redist.distribution import AnyDistribution, TiledDistribution
from dace_redist.report.canvas import new_figure, new_frame, save
from dace_redist.report.units import BYTE_UNITS, byte_unit, count, format_bytes

if TYPE_CHECKING:
    from dace_redist.joint_schedule import JointSchedule
    from dace_redist.schedule import Schedule

_MAX_CUTS = 400  # per dimension: more could not be told apart, so owners are sampled at this many indices
_MAX_BINS = 256  # cells per side of the volume matrix: of more ranks, neighbours share one
_FONT_SIZES = (9.0, 7.5, 6.0, 5.0)  # of the numbers in cells, in points: the largest that fits


def plot_schedule(schedule: Schedule | JointSchedule, path: str | Path) -> None:
    """
    Draw the tensor cut by owner before and after, and the bytes from each rank to each rank.

    Of several tensors these are owners of the first, and bytes of all. Parameters and errors as of :func:`save`.
    """
    save(lambda: draw(schedule), path)


def draw(drawn: Schedule | JointSchedule) -> Any:
    """Return the ``matplotlib.figure.Figure`` of :func:`plot_schedule`."""
    schedule: Schedule = drawn.tensors[0] if hasattr(drawn, "tensors") else drawn
    figure = new_figure(13, 4.9, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)
    grid = figure.add_gridspec(1, 3, width_ratios=(1, 1, 1.2))
    panels = [figure.add_subplot(grid[0]), figure.add_subplot(grid[1])]
    matrix = figure.add_subplot(grid[2])
    figure.suptitle(_title(drawn, schedule), fontsize=11)
    shown = shown_dimensions(schedule)
    sides = (schedule.source, schedule.target)
    maps = [owner_map(side, axes) for side, axes in zip(sides, shown, strict=True)]
    colours = _colours(drawn.ranks)
    meshes = [_draw_owners(axes, owners, colours) for axes, owners in zip(panels, maps, strict=True)]
    _name_panels(panels, schedule, shown)
    _outline_region(panels, schedule, shown)
    number_matrix = _draw_matrix(matrix, drawn)
    figure.draw_without_rendering()  # fixes sizes, which say whether numbers fit
    fits = [_number_owners(axes, owners) for axes, owners in zip(panels, maps, strict=True)]
    if not all(fits):
        bar = figure.colorbar(meshes[0], ax=panels, orientation="horizontal", fraction=0.05, aspect=50, label="rank")
        bar.ax.xaxis.get_major_locator().set_params(integer=True)
    number_matrix()
    return figure


def _title(drawn: Schedule | JointSchedule, first: Schedule) -> str:
    moved, total = drawn.bytes_moved(), drawn.bytes_total()
    computed = "" if first.operation is None else f" ({first.operation})"
    others = f" and {len(drawn.tensors) - 1} more" if hasattr(drawn, "tensors") else ""
    return (
        f"{first.dtype}[{', '.join(map(str, first.shape))}]{computed}{others}: {format_bytes(moved)} of "
        f"{format_bytes(total)} ({100 * moved / max(total, 1):.1f} %) moves, "
        f"{count(drawn.ranks, 'rank')}"
    )


@dataclasses.dataclass(frozen=True)
class OwnerMap:
    """Owners on a slice: rows and columns lie between ``edges``, in global indices."""

    row_edges: npt.NDArray[np.int64]
    column_edges: npt.NDArray[np.int64]
    owners: npt.NDArray[np.int64]


def cuts(distribution: AnyDistribution, axis: int) -> npt.NDArray[np.int64]:
    """Return the first indices of blocks along one dimension; of very many, evenly spread indices."""
    if distribution.core.block_count(axis) <= _MAX_CUTS:
        return np.array(distribution.core.block_begins(axis), np.int64)
    extent = distribution.shape[axis]
    return np.unique(np.linspace(0, extent, min(extent, _MAX_CUTS), endpoint=False).astype(np.int64))


def shown_dimensions(schedule: Schedule) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """
    Return the (at most two) dimensions in which the distributions differ most: fewest cuts in common, then most cuts.

    :return: Dimensions of the source, and those of the target in the order of its axes.
    """
    target_axes = schedule.index_map.target_axes

    def difference(axis: int) -> tuple[int, int, int]:
        before = set(cuts(schedule.source, axis).tolist())
        after = set(cuts(schedule.target, target_axes[axis]).tolist())
        return len(before ^ after), len(before | after), -axis

    shown = tuple(sorted(sorted(range(len(schedule.shape)), key=difference)[-2:]))
    return shown, tuple(sorted(target_axes[axis] for axis in shown))


def owner_map(distribution: AnyDistribution, shown: tuple[int, ...]) -> OwnerMap:
    """
    Return the owners on the slice through index 0 of all other dimensions; no cell if the tensor has no elements.

    :param shown: Rows and columns, or only columns; neither of a tensor of 0 dimensions, which is drawn as one cell.
    """
    if 0 in distribution.shape:
        return OwnerMap(np.zeros(1, np.int64), np.zeros(1, np.int64), np.empty((0, 0), np.int64))
    if not shown:
        return OwnerMap(np.arange(2), np.arange(2), np.array([[distribution.owner(())]]))
    columns = cuts(distribution, shown[-1])
    rows = cuts(distribution, shown[0]) if len(shown) == 2 else np.zeros(1, np.int64)
    owners, index = np.empty((len(rows), len(columns)), np.int64), [0] * len(distribution.shape)
    for i, row in enumerate(rows.tolist()):
        for j, column in enumerate(columns.tolist()):
            index[shown[0]], index[shown[-1]] = row, column
            owners[i, j] = distribution.owner(index)
    end_of_rows = distribution.shape[shown[0]] if len(shown) == 2 else 1
    return OwnerMap(np.append(rows, end_of_rows), np.append(columns, distribution.shape[shown[-1]]), owners)


def _name_panels(panels: list[Any], schedule: Schedule, shown: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    sides = (("Owner before", schedule.source), ("Owner after", schedule.target))
    for panel, (title, side), dimensions in zip(panels, sides, shown, strict=True):
        indices = [":" if axis in dimensions else "0" for axis in range(len(side.shape))]
        cut = f", slice [{', '.join(indices)}]" if len(indices) > 2 else ""
        replicas = side.core.replicas
        kind = "partial results" if schedule.reduces and side is schedule.source else "replicas"
        first = f"\n(first of {replicas} {kind})" if replicas > 1 else ""
        panel.set_title(f"{title}{cut}\n{_short(side)}{first}", fontsize=9)
        panel.set_xlabel(_axis_name(schedule, side, dimensions[-1]) if dimensions else "the only element")
        if not dimensions:
            panel.set_xticks([])
        if len(dimensions) == 2:
            panel.set_ylabel(_axis_name(schedule, side, dimensions[0]))
        else:
            panel.set_yticks([])


def _axis_name(schedule: Schedule, side: AnyDistribution, axis: int) -> str:
    permuted = side is schedule.target and schedule.index_map.axes is not None
    return f"index in dimension {axis}" + (f" (source's {schedule.index_map.source_axes[axis]})" if permuted else "")


def _outline_region(panels: list[Any], schedule: Schedule, shown: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Draw a frame around what moves, if that is not the whole tensor."""
    region, source_axes = schedule.index_map.region, schedule.index_map.source_axes
    if region is None or not shown[0] or 0 in (*schedule.source.shape, *schedule.target.shape, *region.shape):
        return
    target_shape = [region.shape[axis] for axis in source_axes]
    boxes = ((region.source_offset, region.shape), (region.target_offset, target_shape))
    for panel, (offset, shape), axes in zip(panels, boxes, shown, strict=True):
        top, height = (offset[axes[0]], shape[axes[0]]) if len(axes) == 2 else (0, 1)
        corner = (offset[axes[-1]], top)
        panel.add_patch(new_frame(corner, shape[axes[-1]], height))


def _short(distribution: AnyDistribution) -> str:
    """A distribution as it fits above a panel."""
    tiled = isinstance(distribution, TiledDistribution)
    name, sizes = ("tiles of", distribution.tile) if tiled else ("grid", distribution.grid)  # type: ignore[union-attr]
    line = f"{name} {' x '.join(map(str, sizes)) or '()'}"
    return line if len(line) <= 48 else line[:45] + "..."


def _colours(ranks: int) -> dict[str, Any]:
    """A colour per rank, for ``pcolormesh``."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, Normalize

    base = colormaps["turbo"](np.linspace(0.04, 0.96, min(ranks, 1024)))
    base[:, :3] = 0.35 + 0.65 * base[:, :3]  # lighter: black numbers stay legible
    return {"cmap": ListedColormap(base), "norm": Normalize(-0.5, ranks - 0.5)}


def _draw_owners(axes: Any, owners: OwnerMap, colours: dict[str, Any]) -> Any:
    """Draw the cells of one panel, first row at the top."""
    if not owners.owners.size:
        axes.text(0.5, 0.5, "no elements", ha="center", va="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return None
    cells = max(owners.owners.shape)
    width = 0.6 if cells <= 24 else 0.25
    lines = {"edgecolors": "white", "linewidth": width} if cells <= 80 else {"rasterized": True}
    mesh = axes.pcolormesh(owners.column_edges, owners.row_edges, owners.owners, **colours, **lines)
    axes.invert_yaxis()
    axes.locator_params(integer=True)
    return mesh


def _number_owners(axes: Any, owners: OwnerMap) -> bool:
    """Label cells with ranks where they fit. Returns True if 90 % of the area is labelled."""
    if not owners.owners.size:
        return True
    box, letters = axes.get_window_extent(), len(str(owners.owners.max()))
    widths = np.diff(owners.column_edges) / owners.column_edges[-1] * box.width
    heights = np.diff(owners.row_edges) / owners.row_edges[-1] * box.height
    size = _font_size(float(np.median(widths)), float(np.median(heights)), letters, axes.figure.dpi)
    if size is None:
        return False
    width, height = _label_pixels(size, letters, axes.figure.dpi)
    fits = np.outer(heights >= height, widths >= width)
    columns = (owners.column_edges[:-1] + owners.column_edges[1:]) / 2
    rows = (owners.row_edges[:-1] + owners.row_edges[1:]) / 2
    for i, j in np.argwhere(fits):
        axes.text(columns[j], rows[i], str(owners.owners[i, j]), ha="center", va="center", size=size)
    return bool(np.outer(heights, widths)[fits].sum() >= 0.9 * box.width * box.height)


def _label_pixels(size: float, letters: int, dpi: float) -> tuple[float, float]:
    """Width and height of the smallest cell for a number of so many letters, of a size in points."""
    pixels = size * dpi / 72
    return 0.68 / 0.88 * pixels * letters, pixels / 0.9


def _font_size(width: float, height: float, letters: int, dpi: float) -> float | None:
    """The largest size in points at which a number fits a cell of so many pixels."""
    cells = ((size, _label_pixels(size, letters, dpi)) for size in _FONT_SIZES)
    return next((size for size, (w, h) in cells if w <= width and h <= height), None)


def binned_volumes(schedule: Schedule | JointSchedule, bins: int) -> npt.NDArray[np.float64]:
    """Return the bytes from rank to rank, neighbouring ranks added up to at most ``bins`` rows and columns."""
    each = -(-schedule.ranks // bins)
    size = -(-schedule.ranks // each)
    volumes = np.zeros((size, size))
    for rank in range(schedule.ranks):
        targets, nbytes = schedule.sent_to(rank)
        np.add.at(volumes[rank // each], targets // each, nbytes)
    return volumes


def _draw_matrix(axes: Any, schedule: Schedule | JointSchedule) -> Callable[[], None]:
    """Draw the matrix. Returns a callback that adds the labels after layout."""
    volumes = binned_volumes(schedule, _MAX_BINS)
    unit = byte_unit(volumes.max())
    axes.set_facecolor("0.94")
    edge = schedule.ranks - 0.5
    image = axes.imshow(
        np.ma.masked_equal(volumes / BYTE_UNITS[unit], 0),
        cmap="viridis_r",
        vmin=0,
        vmax=volumes.max() / BYTE_UNITS[unit] or 1.0,  # where nothing is moved or kept, any scale will do
        extent=(-0.5, edge, edge, -0.5),
        interpolation="nearest",
    )
    each = -(-schedule.ranks // len(volumes))
    together = f", {each} ranks a cell" if each > 1 else ""
    axes.set_title(f"Volume{together}\n(grey: nothing; diagonal: stays on its rank)", fontsize=9)
    axes.set_xlabel("to rank")
    axes.set_ylabel("from rank")
    axes.locator_params(integer=True)
    for axis in (axes.xaxis, axes.yaxis):
        if schedule.ranks <= 16:
            axis.set_ticks(range(schedule.ranks))
        if schedule.ranks <= 80:
            axis.set_ticks(np.arange(0.5, schedule.ranks - 1), minor=True)
    axes.grid(which="minor", color="white", linewidth=0.6 if schedule.ranks <= 24 else 0.25)
    axes.tick_params(which="minor", length=0)
    axes.figure.colorbar(image, ax=axes, label=f"volume in {'bytes' if unit == 'B' else unit}", shrink=0.85)
    return lambda: _number_matrix(axes, image, unit)


def _three_digits(value: float) -> str:
    if value < 0.01:
        return "<0.01"
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def usual_number(numbers: Collection[str]) -> str | None:
    """Return the number of at least half of the cells; None if there is none."""
    number, count = max(Counter(numbers).items(), key=operator.itemgetter(1), default=("", 0))
    return number if count and 2 * count >= len(numbers) else None


def _number_matrix(axes: Any, image: Any, unit: str) -> None:
    """Label cells with volumes if all fit; the volume of most cells is in the title instead."""
    values = image.get_array()
    box = axes.get_window_extent()
    numbers = {(i, j): _three_digits(value) for (i, j), value in np.ndenumerate(values.filled(0)) if value}
    usual = usual_number(numbers.values())
    others = {cell: number for cell, number in numbers.items() if number != usual}
    longest = max((len(number) for number in others.values()), default=1)
    size = _font_size(box.width / len(values), box.height / len(values), longest, axes.figure.dpi)
    if others and (len(values) > 32 or size is None):
        return
    if usual is not None:
        where = "where there is no number" if others else "each"
        axes.set_title(axes.get_title().replace("\n", f": {usual} {unit} {where}\n"), fontsize=9)
    for (i, j), number in others.items():
        colour = "black" if image.norm(values[i, j]) < 0.5 else "white"  # viridis_r is dark at its end
        axes.text(j, i, number, ha="center", va="center", size=size, color=colour)
