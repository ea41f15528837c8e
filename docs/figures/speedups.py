"""
Draws speedups.png from the first table of docs/performance.md. Run: python docs/figures/speedups.py

A row of that table is ``| baseline | cases | mean (worst) | mean (worst) |``: speed-ups with NumPy arrays, and with a
target in node-shared memory. Rows of few cases are pale; gloo, far slower than all others, is left to the table.
"""

import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
ROW = re.compile(r"^\| (?P<name>[^|]+?) \| (?P<cases>\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)
FEW = 2
GREY, ORANGE, BLUE = "#767676", "#d9822b", "#2b6fb3"


def speedups(cell: str) -> tuple[float, float]:
    """Mean and worst case of a cell such as ``2.21 (0.98)``; a single figure is both."""
    figures = [float(text) for text in re.findall(r"\d+\.?\d*", cell)]
    return figures[0], figures[-1]


def main() -> None:
    """Draw the chart."""
    text = (HERE.parent / "performance.md").read_text()
    table = text[: text.index("\n\n", text.index("| compared with"))]
    found = [row for row in ROW.finditer(table) if "gloo" not in row["name"]]
    names = [f"{row['name'].replace('`', '')} ({row['cases']})" for row in found]
    figure, axes = plt.subplots(figsize=(8, 0.52 * len(found) + 0.9), layout="constrained")
    for position, row in enumerate(reversed(found)):
        for shift, colour, cell in ((0.19, BLUE, row[4]), (-0.19, ORANGE, row[3])):
            mean, worst = speedups(cell)
            alpha = 0.45 if int(row["cases"]) <= FEW else 1
            axes.barh(position + shift, mean - 1, 0.34, left=1, color=colour, alpha=alpha)
            if worst < mean:
                ends = [position + shift - 0.17, position + shift + 0.17]
                axes.plot([worst] * 2, ends, color="white" if worst > 1 else colour, lw=2)
            axes.text(mean * 1.03, position + shift, f"{mean:.2f}", va="center", color=GREY)
    axes.axvline(1, color=GREY, lw=1)
    axes.set_xscale("log")
    axes.set_xlim(0.85, 13)
    ticks = (1, 2, 4, 8)
    axes.set_xticks(ticks, [f"{tick}x" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(found)), names[::-1])
    axes.set_xlabel("speed-up, geometric mean of (n) cases; line: worst case", color=GREY)
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in (BLUE, ORANGE)]
    axes.legend(handles, ["node-shared target", "NumPy arrays"], loc="upper right", frameon=False, labelcolor=GREY)
    axes.tick_params(colors=GREY)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    figure.savefig(HERE / "speedups.png", dpi=120, transparent=True)


if __name__ == "__main__":
    main()
