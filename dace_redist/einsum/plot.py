"""
Picture of a plan: inputs above, groups with their grids in the middle, results below; in rows, if there are many.

Start reading at: plot_plan.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dace_redist.einsum.repeated_steps import folded
from dace_redist.einsum.report import format_flops, grid_text, operation_text, shape_text
from dace_redist.report.canvas import new_figure, save
from dace_redist.report.units import format_bytes

if TYPE_CHECKING:
    from dace_redist.einsum.plan import EinsumPlan, Group, Move

#: Colours of arrows: moved, fetched and reduced tensors, and tensors without traffic.
COLOURS = {"moved": "#c0392b", "fetched": "#2471a3", "reduced": "#1e8449", "stays": "0.55"}

_WIDTHS = {"moved": 1.8, "fetched": 1.8, "reduced": 1.8, "stays": 1.0}
# Lengths in inches. In a row from above: inputs, groups, results.
_TENSOR, _GROUP = (1.3, 0.62), (2.3, 1.1)
_INPUTS, _GROUPS, _RESULTS = 5.0, 2.9, 0.5
_GAP, _HEADER, _FRAME_TITLE, _ROW, _LONGEST_ROW = 0.8, 0.85, 0.45, 5.9, 20.0


def plot_plan(plan: EinsumPlan, path: str | Path) -> None:
    """Draw a plan into a file, see :meth:`EinsumPlan.plot`."""
    save(lambda: draw(plan), path)


def draw(plan: EinsumPlan) -> Any:
    """Return the ``matplotlib.figure.Figure``, which belongs to no window."""
    return _Picture(plan).figure


@dataclasses.dataclass
class _Box:
    x: float
    y: float
    width: float
    height: float

    @property
    def top(self) -> tuple[float, float]:
        return self.x, self.y + self.height / 2

    @property
    def bottom(self) -> tuple[float, float]:
        return self.x, self.y - self.height / 2


@dataclasses.dataclass
class _Column:
    """
    Column in which a group is drawn.

    :param x: Centre of the column.
    :param row: Number of the row, counted from above.
    :param inputs: Operands that no group to the left in this row reads or writes.
    :param starts_row: True for the first column of a row.
    """

    x: float
    row: int
    inputs: list[str]
    width: float
    starts_row: bool


def _columns(plan: EinsumPlan, numbers: Sequence[int]) -> dict[int, _Column]:
    """Return a column for each of these groups, arranged in rows."""
    columns: dict[int, _Column] = {}
    left, row, there = 0.0, -1, set[str]()
    for number in numbers:
        operands = list(dict.fromkeys(plan.groups[number].operands))
        inputs = [name for name in operands if name not in there]
        starts_row = row < 0 or left + _column_width(inputs) > _LONGEST_ROW
        if starts_row:
            inputs, left, row, there = operands, _GAP / 2, row + 1, set()
        width = _column_width(inputs)
        columns[number] = _Column(left + width / 2, row, inputs, width, starts_row)
        there |= {*operands, plan.groups[number].result}
        left += width
    return columns


def _column_width(inputs: Sequence[str]) -> float:
    return max(_GROUP[0], len(inputs) * (_TENSOR[0] + 0.15)) + _GAP


class _Picture:
    def __init__(self, plan: EinsumPlan) -> None:
        self.plan = plan
        parts = folded(plan)
        self.columns = _columns(plan, [number for part, _ in parts for number in part])
        rows = 1 + max(column.row for column in self.columns.values())
        width = max(7.0, _GAP / 2 + max(column.x + column.width / 2 for column in self.columns.values()))
        header = _HEADER + (_FRAME_TITLE if len(self.columns) < len(plan.groups) else 0)
        height = (rows - 1) * _ROW + _INPUTS + _TENSOR[1] / 2 + header
        self.bottoms = [(rows - 1 - row) * _ROW for row in range(rows)]
        self.figure = new_figure(width, height)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(0, height))
        self.axes.axis("off")
        self.where: dict[str, _Box] = {}  # the latest box of each tensor in this row
        for part, times in parts:
            for number in part:
                self._draw_group(number, plan.groups[number])
            if times > 1:
                self._draw_frames(part, times)
        self._draw_heading(width, height)

    def _draw_group(self, number: int, group: Group) -> None:
        column = self.columns[number]
        bottom = self.bottoms[column.row]
        box = _Box(column.x, bottom + _GROUPS, *_GROUP)
        if column.starts_row:
            self.where = {}
        for place, name in enumerate(column.inputs):
            x = box.x + (place - (len(column.inputs) - 1) / 2) * (_TENSOR[0] + 0.15)
            self.where[name] = self._tensor(name, x, bottom + _INPUTS)
        cost, repeats = self.plan.costs[number], self.plan.repeats(number)
        often = f", {repeats} times" if repeats > 1 else ""
        words = f"{operation_text(group).replace('->', ' → ')}\n{grid_text(group)}\n{format_flops(cost.flops)}{often}"
        self._draw_box(box, words, "#fdf2d0", rounded=False)
        names = list(dict.fromkeys(group.operands))
        for place, name in enumerate(names):
            self._draw_read(number, name, box, (place + 1) / (len(names) + 1) - 0.5)
        self._draw_result(number, group, box)

    def _draw_read(self, number: int, name: str, box: _Box, place: float) -> None:
        """Draw the arrow from a tensor to a group that reads it; ``place``: its end along the group, -0.5 to 0.5."""
        tensor = self.where[name]
        moves = [m for m in self.plan.moves if m.group == number == m.before_group and m.tensor == name]
        kind, words = self._read_label(number, name, moves)
        if tensor.y > box.y:
            self._arrow(tensor.bottom, (box.x + place * box.width, box.y + box.height / 2), kind, words, at=0.62)
        elif tensor.x == self._column_before(number):
            end = (box.x - box.width / 2, box.y - 0.25 * box.height)
            self._arrow((tensor.x + tensor.width / 2, tensor.y), end, kind, words, at=0.5)
        else:
            self._detour(tensor, box, kind, words)

    def _detour(self, tensor: _Box, box: _Box, kind: str, words: str) -> None:
        """Draw an arrow from a result to a later group, between the rows; each result has its own lane."""
        lane = [column.x for column in self.columns.values()].index(tensor.x)
        y = tensor.top[1] + 0.2 + 0.19 * (lane % 4)
        start, end = tensor.x + 0.35 * tensor.width, box.x - (0.42 - 0.06 * (lane % 4)) * box.width
        self.axes.plot([start, start, end], [tensor.top[1], y, y], color=COLOURS[kind], linewidth=_WIDTHS[kind])
        self._arrow((end, y), (end, box.bottom[1]), kind, "", at=0.5)
        self._label(words, kind, box.x - box.width / 2 - 0.45 * _GAP, y)

    def _column_before(self, number: int) -> float | None:
        """Return the centre of the column to the left of a group's; None for the first of a row."""
        drawn = list(self.columns)
        return self.columns[drawn[drawn.index(number) - 1]].x if not self.columns[number].starts_row else None

    def _draw_frames(self, part: Iterable[int], times: int) -> None:
        """Draw frames around the last repetition of repeated groups."""
        for row, columns in itertools.groupby((self.columns[number] for number in part), lambda column: column.row):
            there = list(columns)
            left = there[0].x - there[0].width / 2 + 0.1
            right = there[-1].x + there[-1].width / 2 - 0.1
            low, high = self.bottoms[row] + 0.06, self.bottoms[row] + _INPUTS + _TENSOR[1] / 2 + _FRAME_TITLE
            corners = [(left, low), (right, low), (right, high), (left, high), (left, low)]
            self.axes.plot(*zip(*corners, strict=True), color="0.35", linewidth=1.0, linestyle="--")
            words = f"{times} times, the last shown"
            self.axes.text(left + 0.12, high - 0.2, words, ha="left", va="center", fontsize=9)

    def _read_label(self, number: int, name: str, moves: list[Move]) -> tuple[str, str]:
        if moves:
            return "moved", format_bytes(sum(move.bytes_per_rank for move in moves))
        operand = self.plan.groups[number].operands.index(name)
        placement = self.plan.groups[number].operand_placements[operand]
        earlier = (name in (*group.operands, group.result) for group in self.plan.groups[:number])
        if not any(earlier) and placement.replicas > 1 and self.plan.costs[number].fetched:
            share = (placement.replicas - 1) / placement.replicas
            return "fetched", format_bytes(placement.block_bytes(self.plan.sizes[name], self.plan.itemsize) * share)
        return "stays", ""

    def _draw_result(self, number: int, group: Group, box: _Box) -> None:
        self.where[group.result] = tensor = self._tensor(group.result, box.x, box.y - _GROUPS + _RESULTS)
        later = [m for m in self.plan.moves if m.group == number < m.before_group]
        kind, words = "stays", ""
        if group.reduction is not None:
            kind, words = "reduced", format_bytes(self.plan.costs[number].reduced)
        if later:
            words = " + ".join(filter(None, [words, format_bytes(sum(m.bytes_per_rank for m in later))]))
            kind = "moved"
        self._arrow(box.bottom, tensor.top, kind, words, at=0.5)

    def _tensor(self, name: str, x: float, y: float) -> _Box:
        box = _Box(x, y, *_TENSOR)
        wanted = name in self.plan.outputs
        self._draw_box(box, f"{name}\n{shape_text(self.plan.sizes[name])}", "#dcebdd" if wanted else "#e8eef5", True)
        return box

    def _draw_box(self, box: _Box, words: str, colour: str, rounded: bool) -> None:
        from matplotlib.patches import FancyBboxPatch

        style = "round,pad=0,rounding_size=0.12" if rounded else "square,pad=0"
        corner = (box.x - box.width / 2, box.y - box.height / 2)
        patch = FancyBboxPatch(corner, box.width, box.height, boxstyle=style, facecolor=colour, edgecolor="0.35")
        self.axes.add_patch(patch)
        longest = max(len(line) for line in words.split("\n"))
        size = max(5.0, min(9.0, box.width * 72 / (0.62 * max(longest, 1))))
        self.axes.text(box.x, box.y, words, ha="center", va="center", fontsize=size, linespacing=1.35, zorder=4)

    def _arrow(self, start: tuple[float, float], end: tuple[float, float], kind: str, words: str, *, at: float) -> None:
        self.axes.annotate(
            "",
            xy=end,
            xytext=start,
            arrowprops={
                "arrowstyle": "-|>",
                "color": COLOURS[kind],
                "linewidth": _WIDTHS[kind],
                "shrinkA": 0,
                "shrinkB": 1,
            },
        )
        x, y = (a + at * (b - a) for a, b in zip(start, end, strict=True))
        self._label(words, kind, x, y)

    def _label(self, words: str, kind: str, x: float, y: float) -> None:
        background = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
        if words:
            self.axes.text(
                x, y, words, color=COLOURS[kind], fontsize=8, ha="center", va="center", bbox=background, zorder=3
            )

    def _draw_heading(self, width: float, height: float) -> None:
        plan = self.plan
        ranks = f"{plan.ranks:,} rank{'' if plan.ranks == 1 else 's'}"
        heading = (
            f"{ranks}: {format_bytes(plan.bytes_per_rank)} per rank, {format_flops(plan.flops)}, "
            f"memory {format_bytes(plan.memory_bytes)}"
        )
        self.axes.text(width / 2, height - 0.25, heading, ha="center", va="center", fontsize=11)
        left = width / 2 - 2.7
        for place, (kind, colour) in enumerate(COLOURS.items()):
            x = left + 1.4 * place
            self.axes.plot([x, x + 0.3], [height - 0.58] * 2, color=colour, linewidth=2)
            self.axes.text(x + 0.38, height - 0.58, kind, ha="left", va="center", fontsize=8)
