"""Draws a schedule: owners in source and target, and the volume from rank to rank. Start: draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist.distribution import AnyDistribution, BoxDistribution, TiledDistribution
from dace_redist.report.canvas import new_figure, rank_colours
from dace_redist.report.text import describe_boxes
from dace_redist.report.units import BYTE_UNITS, byte_unit, count, format_bytes, share
from dace_redist.traffic import Traffic

Array = npt.NDArray[np.int64]

_MAX_CUTS = 400  # per dimension: more could not be told apart, so owners are sampled at this many indices
_MAX_BINS = 256  # cells per side of the volume matrix: of more ranks, neighbours share one
_MAX_NUMBERED = 12  # cells per side that are numbered
_NUMBER = {"ha": "center", "va": "center", "size": 8}


def draw(drawn: Traffic) -> Any:
    """Return the ``matplotlib.figure.Figure``: owners of the first tensor, and bytes of all."""
    schedule = drawn.tensors[0]
    figure = new_figure(8.4, 9.2, layout="constrained")  # 9 points can be read where a page shows this in 700 pixels
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1.5))
    panels, matrix = above.subplots(1, 2), below.subplots()
    figure.suptitle(_title(drawn, schedule), fontsize=11)
    shown = shown_dimensions(schedule)
    sides = (schedule.source, schedule.target)
    maps = [owner_map(side, axes) for side, axes in zip(sides, shown, strict=True)]
    colours = {"cmap": rank_colours(drawn.ranks), "vmin": -0.5, "vmax": drawn.ranks - 0.5}
    meshes = [_draw_owners(axes, *found, colours) for axes, found in zip(panels, maps, strict=True)]
    _name_panels(panels, schedule, shown, [np.unique(owners[owners >= 0]).size for *_, owners in maps])
    _outline_region(panels, schedule, shown)
    _draw_matrix(matrix, drawn)
    if any(max(owners.shape) > _MAX_NUMBERED for *_, owners in maps):
        bar = above.colorbar(meshes[0], ax=panels, orientation="horizontal", fraction=0.05, aspect=50, label="rank")
        bar.ax.xaxis.get_major_locator().set_params(integer=True)
    return figure


def _title(drawn: Traffic, first: Traffic) -> str:
    moved, total = drawn.bytes_moved(), drawn.bytes_total()
    computed = "" if first.transform.is_copy else f" ({first.transform.operation_text})"
    others = f" and {len(drawn.others)} more" if drawn.others else ""
    tensor = f"{first.dtype}[{', '.join(map(str, first.shape))}]{computed}{others}"
    moves = f"{format_bytes(moved)} of {format_bytes(total)} ({share(moved, total)}) moves"
    return f"{tensor}: {moves}, {count(drawn.ranks, 'rank')}"


def cuts(distribution: AnyDistribution, axis: int) -> Array:
    """Return the first indices of blocks along one dimension; of very many, evenly spread indices."""
    extent = distribution.shape[axis]
    if isinstance(distribution, BoxDistribution):
        ends = distribution.boxes[..., axis].cumsum(axis=1)  # first indices and ends
        found = np.union1d(ends, 0)
        if len(found) <= _MAX_CUTS:
            return found[found < extent]
    elif distribution.core.block_count(axis) <= _MAX_CUTS:
        return np.array(distribution.core.block_begins(axis), np.int64)
    return np.unique(np.linspace(0, extent, min(extent, _MAX_CUTS), endpoint=False).astype(np.int64))


def shown_dimensions(schedule: Traffic) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """
    Return the (at most two) dimensions in which the distributions differ most: fewest cuts in common, then most cuts.

    :return: Dimensions of the source, and those of the target in the order of its axes.
    """
    target_axes = schedule.transform.target_axes

    def difference(axis: int) -> tuple[int, int, int]:
        before = set(cuts(schedule.source, axis).tolist())
        after = set(cuts(schedule.target, target_axes[axis]).tolist())
        return len(before ^ after), len(before | after), -axis

    shown = tuple(sorted(sorted(range(len(schedule.shape)), key=difference)[-2:]))
    return shown, tuple(sorted(target_axes[axis] for axis in shown))


def owner_map(distribution: AnyDistribution, shown: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """
    Return the owners on the slice through index 0 of all other dimensions; no cell if the tensor has no elements.

    :param shown: Rows and columns, or only columns; neither of a tensor of 0 dimensions, which is drawn as one cell.
    :return: Edges of the rows and of the columns, in global indices, and the owners between them.
    """
    if 0 in distribution.shape:
        return np.zeros(1, np.int64), np.zeros(1, np.int64), np.empty((0, 0), np.int64)
    if not shown:
        return np.arange(2), np.arange(2), np.array([[distribution.core.owner([])]])
    columns = cuts(distribution, shown[-1])
    rows = cuts(distribution, shown[0]) if len(shown) == 2 else np.zeros(1, np.int64)
    owners, index = np.empty((len(rows), len(columns)), np.int64), [0] * len(distribution.shape)
    for i, row in enumerate(rows.tolist()):
        for j, column in enumerate(columns.tolist()):
            index[shown[0]], index[shown[-1]] = row, column
            owners[i, j] = distribution.core.owner(index)  # -1 if no box holds it
    end_of_rows = distribution.shape[shown[0]] if len(shown) == 2 else 1
    return np.append(rows, end_of_rows), np.append(columns, distribution.shape[shown[-1]]), owners


def _name_panels(
    panels: list[Any], schedule: Traffic, shown: tuple[tuple[int, ...], tuple[int, ...]], owners: list[int]
) -> None:
    sides = (("Owner in the source", schedule.source), ("Owner in the target", schedule.target))
    for panel, (title, side), dimensions, there in zip(panels, sides, shown, owners, strict=True):
        indices = [":" if axis in dimensions else "0" for axis in range(len(side.shape))]
        cut = f", slice [{', '.join(indices)}]" if len(indices) > 2 else ""
        replicas = side.core.replicas
        kind = "partial results" if schedule.reduces and side is schedule.source else "replicas"
        note = f"\n(first of {replicas} {kind})" if replicas > 1 else ""
        if cut and not note and there < schedule.ranks:
            note = f"\n({there} of {count(schedule.ranks, 'rank')} in this slice)"
        panel.set_title(f"{title}{cut}\n{_short(side)}{note}", fontsize=9)
        panel.set_xlabel(_axis_name(schedule, side, dimensions[-1]) if dimensions else "the only element")
        if not dimensions:
            panel.set_xticks([])
        if len(dimensions) == 2:
            panel.set_ylabel(_axis_name(schedule, side, dimensions[0]))
        else:
            panel.set_yticks([])


def _axis_name(schedule: Traffic, side: AnyDistribution, axis: int) -> str:
    permuted = side is schedule.target and schedule.transform.axes is not None and schedule.transform.reshape is None
    return f"index in dimension {axis}" + (f" (source's {schedule.transform.source_axes[axis]})" if permuted else "")


def _outline_region(panels: list[Any], schedule: Traffic, shown: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Draw a frame around what moves, if that is not the whole tensor."""
    from matplotlib.patches import Rectangle

    region, source_axes = schedule.transform.region, schedule.transform.source_axes
    if region is None or not shown[0] or 0 in (*schedule.source.shape, *schedule.target.shape, *region.shape):
        return
    target_shape = [region.shape[axis] for axis in source_axes]
    boxes = ((region.source_offset, region.shape), (region.target_offset, target_shape))
    for panel, (offset, shape), axes in zip(panels, boxes, shown, strict=True):
        top, height = (offset[axes[0]], shape[axes[0]]) if len(axes) == 2 else (0, 1)
        corner = (offset[axes[-1]], top)
        look: dict[str, Any] = {"fill": False, "edgecolor": "black", "linewidth": 2.2, "clip_on": False}
        panel.add_patch(Rectangle(corner, shape[axes[-1]], height, **look))


def _short(distribution: AnyDistribution) -> str:
    """A distribution as it fits above a panel."""
    if isinstance(distribution, BoxDistribution):
        return describe_boxes(distribution)
    tiled = isinstance(distribution, TiledDistribution)
    name, sizes = ("tiles of", distribution.tile) if tiled else ("grid", distribution.grid)  # type: ignore[union-attr]
    line = f"{name} {' x '.join(map(str, sizes)) or '()'}"
    return line if len(line) <= 48 else line[:45] + "..."


def _draw_owners(axes: Any, row_edges: Array, column_edges: Array, owners: Array, colours: dict[str, Any]) -> Any:
    """Draw the cells of one panel, first row at the top, with the numbers of their ranks if there are few."""
    if not owners.size:
        axes.text(0.5, 0.5, "no elements", ha="center", va="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return None
    cells = max(owners.shape)
    width = 0.6 if cells <= 24 else 0.25
    lines = {"edgecolors": "white", "linewidth": width} if cells <= 80 else {"rasterized": True}
    mesh = axes.pcolormesh(column_edges, row_edges, np.ma.masked_less(owners, 0), **colours, **lines)
    axes.invert_yaxis()
    axes.locator_params(integer=True)
    if cells <= _MAX_NUMBERED:
        columns, rows = ((edges[:-1] + edges[1:]) / 2 for edges in (column_edges, row_edges))
        for (i, j), owner in np.ndenumerate(owners):
            axes.text(columns[j], rows[i], str(owner) if owner >= 0 else "", **_NUMBER)
    return mesh


def binned_volumes(schedule: Traffic, bins: int) -> npt.NDArray[np.float64]:
    """Return the bytes from rank to rank, neighbouring ranks added up to at most ``bins`` rows and columns."""
    each = -(-schedule.ranks // bins)
    size = -(-schedule.ranks // each)
    volumes = np.zeros((size, size))
    for rank in range(schedule.ranks):
        targets, nbytes = schedule.sent_to(rank)
        np.add.at(volumes[rank // each], targets // each, nbytes)
    return volumes


def _draw_matrix(axes: Any, schedule: Traffic) -> None:
    """Draw the volumes, with their numbers if there are few."""
    volumes = binned_volumes(schedule, _MAX_BINS)
    unit, edge = byte_unit(volumes.max()), schedule.ranks - 0.5
    volumes /= BYTE_UNITS[unit]
    drawing: dict[str, Any] = {"extent": (-0.5, edge, edge, -0.5), "interpolation": "nearest", "vmin": 0}
    drawing["vmax"] = 1.6 * volumes.max() or 1.0  # black numbers stay legible; if nothing moves, any scale will do
    image = axes.imshow(np.ma.masked_equal(volumes, 0), cmap="Blues", **drawing)
    each = -(-schedule.ranks // len(volumes))
    if each == 1:
        axes.imshow(
            np.ma.masked_equal(np.diag(volumes.diagonal()), 0), cmap="Greys", **drawing | {"vmax": 2 * drawing["vmax"]}
        )
    together = f", {each} ranks a cell\n(blank: nothing)" if each > 1 else "\n(blank: nothing; grey: stays on its rank)"
    axes.set_title(f"Volume{together}", fontsize=9)
    axes.set(xlabel="to rank", ylabel="from rank", facecolor="0.97")
    axes.locator_params(integer=True)
    for axis in (axes.xaxis, axes.yaxis):
        if schedule.ranks <= 16:
            axis.set_ticks(range(schedule.ranks))
        if schedule.ranks <= 80:
            axis.set_ticks(np.arange(0.5, schedule.ranks - 1), minor=True)
    axes.grid(which="minor", color="white", linewidth=0.6 if schedule.ranks <= 24 else 0.25)
    axes.tick_params(which="minor", length=0)
    look = {"location": "bottom", "fraction": 0.05, "aspect": 50, "shrink": 0.55}
    axes.figure.colorbar(image, ax=axes, label=f"volume in {'bytes' if unit == 'B' else unit}", **look)
    if len(volumes) <= _MAX_NUMBERED:
        for (i, j), value in np.ndenumerate(volumes):
            if value:
                axes.text(j, i, f"{value:.3g}" if value < 999.5 else f"{value:.0f}", **_NUMBER)
