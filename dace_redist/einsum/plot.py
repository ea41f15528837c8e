"""
Picture of a plan: inputs above, groups with their grids in the middle, results below; in rows, if there are many.

Start reading at: draw.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from dace_redist.einsum.program import Group, PlannedProgram
from dace_redist.einsum.report import format_flops, grid_text, operation_text, shape_text
from dace_redist.report.canvas import new_figure
from dace_redist.report.units import count, format_bytes

#: Colours of arrows: moved, fetched and reduced tensors, and tensors without traffic.
COLOURS = {"moved": "#c0392b", "fetched": "#2471a3", "reduced": "#1e8449", "stays": "0.55"}
#: Minimum number of groups that folding a repeated sequence must leave out.
MIN_LEFT_OUT = 3

# Lengths in inches: widths and heights of boxes, space between inputs; in a row, from its bottom, centres of boxes.
_TENSOR, _GROUP, _SPACE = (1.4, 0.62), (1.8, 0.72), 0.12
_INPUTS, _GROUPS, _RESULTS = 2.9, 1.68, 0.4
_GAP, _HEADER, _FRAME_TITLE, _ROW = 0.5, 0.85, 0.32, 3.6
_LONGEST_ROW = 9.7  # text of 10 points can be read where a page shows this in 700 pixels
_FONT, _LINE = 10.0, 16  # points, and characters that fit the box of a tensor


def draw(plan: PlannedProgram) -> Any:
    """Return the ``matplotlib.figure.Figure``, which belongs to no window."""
    return _Picture(plan).figure


def folded(plan: PlannedProgram) -> list[tuple[range, int]]:
    """
    Return the groups in order, with consecutive repetitions of a sequence folded into one.

    Groups are equal if their computation, shapes, grids and traffic are equal, whatever the names of their tensors.

    :return: Numbers of groups, and the number of repetitions; of a repeated sequence the last occurrence.
    """
    steps, found, first = [_key(plan, number) for number in range(len(plan.groups))], [], 0
    while first < len(steps):
        length, times = _longest(steps, first)
        first += length * times
        found.append((range(first - length, first), times))
    return found


def _longest(steps: Sequence[Hashable], first: int) -> tuple[int, int]:
    """Return length and count of the repetition from a step on that leaves out most; (1, 1) without one."""
    best = (1, 1)
    for length in range(1, (len(steps) - first) // 2 + 1):
        times = 1
        while steps[first : first + length] == steps[first + times * length : first + (times + 1) * length]:
            times += 1
        if length * (times - 1) >= max(MIN_LEFT_OUT, best[0] * (best[1] - 1) + 1):
            best = (length, times)
    return best


def _key(plan: PlannedProgram, number: int) -> Hashable:
    group, cost = plan.groups[number], plan.costs[number]
    moved = tuple(move.bytes_per_rank for move in plan.moves if move.group == number)
    computed = (group.einsum, group.sizes, group.elementwise, group.solves, group.grid, group.replicas, group.reduction)
    return (*computed, moved, cost.fetched, plan.repeats(number), group.result in plan.outputs)


class _Column(NamedTuple):
    """Column of a group: its centre, its row counted from above, and operands that nothing to the left has."""

    x: float
    row: int
    inputs: list[str]
    width: float
    starts_row: bool


def _columns(plan: PlannedProgram, numbers: Iterable[int]) -> dict[int, _Column]:
    """Place the groups; a row also ends where a group reads the result of another one than that to its left."""
    columns: dict[int, _Column] = {}
    right, row, there, results = 0.0, -1, set[str](), list[str]()
    for number in numbers:
        operands = list(dict.fromkeys(plan.groups[number].operands))
        inputs = [name for name in operands if name not in there]
        is_full = right + _width(inputs) > _LONGEST_ROW
        starts_row = row < 0 or is_full or not {*operands}.isdisjoint({*results[:-1]} - {*results[-1:]})
        if starts_row:
            inputs, right, row, there, results = operands, _GAP / 2, row + 1, set(), []
        right += _width(inputs)
        columns[number] = _Column(right - _width(inputs) / 2, row, inputs, _width(inputs), starts_row)
        there |= {*operands, plan.groups[number].result}
        results.append(plan.groups[number].result)
    return columns


def _width(inputs: Sequence[str]) -> float:
    return max(_GROUP[0], len(inputs) * (_TENSOR[0] + _SPACE)) + _GAP


def _wrapped(words: str) -> str:
    """Return a name or a shape on two lines if it is long; of a very long name the start and the end."""
    if len(words) <= (_LINE + 4 if " " in words else _LINE):  # digits and spaces are narrower
        return words
    if len(words) > 2 * _LINE and " " not in words:
        return f"{words[: _LINE - 1]}…\n…{words[1 - _LINE :]}"
    cuts = [place + 1 for place, character in enumerate(words) if character in "_ "] or [len(words)]
    cut = min(cuts, key=lambda place: abs(2 * place - len(words)))
    return f"{words[:cut]}\n{words[cut:]}".strip()


class _Picture:
    def __init__(self, plan: PlannedProgram) -> None:
        self.plan, parts = plan, folded(plan)
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
        # Centre of the latest box of each tensor in this row, and in the row above.
        self.where, self.above = dict[str, tuple[float, float]](), dict[str, tuple[float, float]]()
        for part, times in parts:
            for number in part:
                self._draw_group(number, plan.groups[number])
            if times > 1:
                self._draw_frames(part, times)
        self._draw_heading(width, height)

    def _draw_group(self, number: int, group: Group) -> None:
        column, bottom = self.columns[number], self.bottoms[self.columns[number].row]
        if column.starts_row:
            self.where, self.above = {}, self.where
        for place, name in enumerate(column.inputs):
            x = column.x + (place - (len(column.inputs) - 1) / 2) * (_TENSOR[0] + _SPACE)
            self._tensor(name, x, bottom + _INPUTS)
            self._join(name)
        repeats = self.plan.repeats(number)
        often = f", {repeats} times" if repeats > 1 else ""
        words = f"{operation_text(group).replace('->', ' → ')}\n{grid_text(group)}\n{format_flops(group.flops)}{often}"
        self._box(column.x, bottom + _GROUPS, _GROUP, words, "#fdf2d0")
        names = list(dict.fromkeys(group.operands))
        for place, name in enumerate(names):
            self._draw_read(number, name, column.x + ((place + 1) / (len(names) + 1) - 0.5) * _GROUP[0])
        self._draw_result(number, group, column.x, bottom)

    def _join(self, name: str) -> None:
        """Draw a line to a tensor from the result in the row above, if it is one."""
        (x, y), (start, high) = self.where[name], self.above.get(name, self.where[name])
        if 0 < high - y < _GROUPS:
            ends = [high - _TENSOR[1] / 2, y + _TENSOR[1] / 2]
            self.axes.plot([start, x], ends, color=COLOURS["stays"], linewidth=1.0, linestyle=":", zorder=0)

    def _draw_read(self, number: int, name: str, end: float) -> None:
        """Draw the arrow from a tensor to a group that reads it; an input's ends at ``end`` of the group's top."""
        (x, y), column = self.where[name], self.columns[number]
        left, middle = column.x - _GROUP[0] / 2, self.bottoms[column.row] + _GROUPS
        kind, words = self._read_label(number, name)
        if y > middle:
            self._arrow([(x, y - _TENSOR[1] / 2), (end, middle + _GROUP[1] / 2)], kind, words, at=0.62)
        else:  # the result of the group to the left
            self._arrow([(x + _TENSOR[0] / 2, y), (left, middle - 0.25 * _GROUP[1])], kind, words, at=0.5)

    def _read_label(self, number: int, name: str) -> tuple[str, str]:
        plan, group = self.plan, self.plan.groups[number]
        moves = [m for m in plan.moves if m.before_group <= number == m.group and m.tensor == name]
        if moved := sum(move.bytes_per_rank for move in moves):
            return "moved", format_bytes(moved)
        placement = group.operand_placements[group.operands.index(name)]
        earlier = (name in (*other.operands, other.result) for other in plan.groups[:number])
        if not any(earlier) and placement.replicas > 1 and plan.costs[number].fetched:
            share = (placement.replicas - 1) / placement.replicas
            return "fetched", format_bytes(placement.block_bytes(plan.sizes[name], plan.itemsize) * share)
        return "stays", ""

    def _draw_result(self, number: int, group: Group, x: float, bottom: float) -> None:
        self._tensor(group.result, x, bottom + _RESULTS)
        later = [m.bytes_per_rank for m in self.plan.moves if m.group == number < m.before_group]
        traffic = [self.plan.costs[number].reduced] if group.reduction is not None else []
        kind = "moved" if later else "reduced" if traffic else "stays"
        words = " + ".join(map(format_bytes, [*traffic, *([sum(later)] if later else [])]))
        ends = [(x, bottom + _GROUPS - _GROUP[1] / 2), (x, bottom + _RESULTS + _TENSOR[1] / 2)]
        self._arrow(ends, kind, words, at=0.5)

    def _draw_frames(self, part: Iterable[int], times: int) -> None:
        """Draw frames around the last repetition of repeated groups, one in each row."""
        for row, columns in itertools.groupby((self.columns[number] for number in part), lambda column: column.row):
            there = list(columns)
            left, right = there[0].x - there[0].width / 2 + 0.1, there[-1].x + there[-1].width / 2 - 0.1
            low, high = self.bottoms[row] + 0.06, self.bottoms[row] + _INPUTS + _TENSOR[1] / 2 + _FRAME_TITLE
            corners = [(left, low), (right, low), (right, high), (left, high), (left, low)]
            self.axes.plot(*zip(*corners, strict=True), color="0.35", linewidth=1.0, linestyle="--")
            words = f"{times} times, the last shown"
            self.axes.text(left + 0.12, high - 0.16, words, ha="left", va="center", fontsize=_FONT)

    def _tensor(self, name: str, x: float, y: float) -> None:
        self.where[name] = x, y
        colour = "#dcebdd" if name in self.plan.outputs else "#e8eef5"
        self._box(x, y, _TENSOR, f"{_wrapped(name)}\n{_wrapped(shape_text(self.plan.sizes[name]))}", colour)

    def _box(self, x: float, y: float, size: tuple[float, float], words: str, colour: str) -> None:
        from matplotlib.patches import Rectangle

        corner = (x - size[0] / 2, y - size[1] / 2)
        self.axes.add_patch(Rectangle(corner, *size, facecolor=colour, edgecolor="0.35"))
        lines = words.split("\n")
        longest = max(1, *map(len, lines))
        font = max(5.0, min(_FONT, size[0] * 72 / (0.6 * longest), size[1] * 72 / (1.4 * len(lines))))
        self.axes.text(x, y, words, ha="center", va="center", fontsize=font, linespacing=1.2, zorder=4)

    def _arrow(self, points: Sequence[tuple[float, float]], kind: str, words: str, *, at: float = 0.5) -> None:
        """Draw a line with an arrow at its end, and a label at a part of the last piece."""
        colour, width = COLOURS[kind], 1.0 if kind == "stays" else 1.8
        self.axes.plot(*zip(*points[:-1], strict=True), color=colour, linewidth=width)
        style = {"arrowstyle": "-|>", "color": colour, "linewidth": width, "shrinkA": 0, "shrinkB": 1}
        self.axes.annotate("", xy=points[-1], xytext=points[-2], arrowprops=style)
        self._label(words, kind, *(a + at * (b - a) for a, b in zip(*points[-2:], strict=True)))

    def _label(self, words: str, kind: str, x: float, y: float) -> None:
        background = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
        look = {"color": COLOURS[kind], "fontsize": 9, "ha": "center", "va": "center", "zorder": 3}
        if words:
            self.axes.text(x, y, words, bbox=background, **look)

    def _draw_heading(self, width: float, height: float) -> None:
        plan = self.plan
        heading = (
            f"{count(plan.ranks, 'rank')}: {format_bytes(plan.bytes_per_rank)} per rank, {format_flops(plan.flops)}, "
            f"memory {format_bytes(plan.memory_bytes)}"
        )
        self.axes.text(width / 2, height - 0.25, heading, ha="center", va="center", fontsize=12)
        for place, (kind, colour) in enumerate(COLOURS.items()):
            x = width / 2 - 2.7 + 1.4 * place
            self.axes.plot([x, x + 0.3], [height - 0.58] * 2, color=colour, linewidth=2)
            self.axes.text(x + 0.38, height - 0.58, kind, ha="left", va="center", fontsize=_FONT)
