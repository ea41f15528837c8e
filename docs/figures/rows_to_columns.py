"""Draws rows-to-columns.png: who owns a 6 x 8 matrix before and after. Run: python docs/figures/rows_to_columns.py"""

from pathlib import Path

import numpy as np
from layouts import GREY, draw_owners, name_ranks, plt

from dace_redist import Distribution

SHAPE = (6, 8)


def main() -> None:
    """Draw the picture."""
    figure, sides = plt.subplots(1, 2, figsize=(8, 3), gridspec_kw={"wspace": 0.45, "bottom": 0.16, "top": 0.88})
    for axes, name, axis in zip(sides, ("rows", "columns"), (0, 1), strict=True):
        distribution = Distribution.split(SHAPE, axis, 4)
        draw_owners(axes, np.reshape([distribution.owner(index) for index in np.ndindex(SHAPE)], SHAPE))
        for number, (i, j) in enumerate(np.ndindex(SHAPE)):
            axes.text(j, i, str(number), ha="center", va="center", color="white", fontsize=11)
        axes.set_title(name, color=GREY, fontsize=12, family="monospace")
    arrow = {"arrowstyle": "-|>", "color": GREY, "lw": 2}
    figure.add_artist(plt.Annotation("", (0.56, 0.52), (0.465, 0.52), "figure fraction", arrowprops=arrow))
    figure.text(0.5125, 0.58, "redistribute", color=GREY, family="monospace", ha="center")
    name_ranks(figure, "lower center")
    figure.savefig(Path(__file__).with_name("rows-to-columns.png"), dpi=110, transparent=True)


if __name__ == "__main__":
    main()
