"""Draws layouts.png: six distributions of a 12 x 12 matrix over four ranks. Run: python docs/figures/layouts.py"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import PolyCollection

from dace_redist import Distribution, TiledDistribution
from dace_redist.report.canvas import rank_colours

SHAPE = (12, 12)
GREY = "#767676"
COLOURS = rank_colours(4)
LAYOUTS = {
    "Distribution.split(shape, 0, 4)\nrows": Distribution.split(SHAPE, 0, 4),
    "Distribution(shape, (2, 2))\nblocks": Distribution(SHAPE, (2, 2)),
    "Distribution.block_cyclic(shape,\n(2, 2), 2)\nblock-cyclic": Distribution.block_cyclic(SHAPE, (2, 2), 2),
    "Distribution(shape, (2, 2),\ndims=(0, None))\nrows, replicated": Distribution(SHAPE, (2, 2), dims=(0, None)),
    "Distribution(shape, (1, 4),\nranks=(2, 0, 3, 1))\ncolumns, other order": Distribution(
        SHAPE, (1, 4), ranks=(2, 0, 3, 1)
    ),
    "TiledDistribution(shape, (3, 4),\nowner)\ntiles": TiledDistribution(
        SHAPE, (3, 4), np.array([[0, 1, 1], [2, 0, 3], [3, 3, 2], [1, 2, 0]])
    ),
}


def owners(distribution: Distribution | TiledDistribution, replica: int) -> np.ndarray:
    """Owner of each element; of two replicas the first or the second."""
    first = np.array([[distribution.owner((i, j)) for j in range(SHAPE[1])] for i in range(SHAPE[0])])
    return first + replica


def draw_owners(axes: plt.Axes, image: np.ndarray) -> None:
    """Draw the elements of a matrix in the colours of their owners."""
    axes.imshow(image, cmap=COLOURS, vmin=0, vmax=3)
    axes.set_xticks(np.arange(-0.5, image.shape[1]), [])
    axes.set_yticks(np.arange(-0.5, image.shape[0]), [])
    axes.grid(color="white", lw=0.6)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def name_ranks(figure: plt.Figure, loc: str) -> None:
    """Add a legend of the owners."""
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS(rank)) for rank in range(4)]
    labels = [f"rank {rank}" for rank in range(4)]
    figure.legend(handles, labels, loc=loc, ncols=4, frameon=False, labelcolor=GREY)


def main() -> None:
    """Draw the picture."""
    figure, grid = plt.subplots(2, 3, figsize=(10, 7), layout="constrained")
    for axes, (title, distribution) in zip(grid.flat, LAYOUTS.items(), strict=True):
        draw_owners(axes, owners(distribution, 0))
        if "replicated" in title:  # a triangle of each element for the second rank that holds it
            corners = np.array([(0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)])
            halves = [corners + (j, i) for i, j in np.ndindex(SHAPE)]
            axes.add_collection(PolyCollection(halves, facecolors=COLOURS(owners(distribution, 1).ravel())))
        *code, name = title.split("\n")
        axes.set_title(name, color=GREY, fontsize=12)
        axes.set_xlabel("\n".join(code), color=GREY, family="monospace", fontsize=9.5)
    name_ranks(figure, "outside lower center")
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110, transparent=True)


if __name__ == "__main__":
    main()
