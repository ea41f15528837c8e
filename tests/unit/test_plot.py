"""The pictures: that they are made, and that what they show is what the distributions say."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from matplotlib.colors import to_hex

from dace_redist.distribution import BoxDistribution, Distribution, TiledDistribution
from dace_redist.report import figure as plot
from dace_redist.report.canvas import RANK_COLOURS, rank_colours
from dace_redist.schedule import schedule

D = Distribution
SEED = (48, 24, 24, 72, 288)
TILES = TiledDistribution((40, 60), (7, 11), np.arange(36).reshape(6, 6) * 5 % 7)
BOXES = BoxDistribution((40, 60), [((0, 0), (25, 60)), ((20, 0), (20, 30)), ((25, 30), (15, 30))], [3, 1, 0])
CASES = {
    "seed": (D(SEED, (2, 1, 1, 3, 2)), D(SEED, (1, 1, 1, 1, 12))),
    "cyclic": (D((16, 16), (2, 2), block=(2, 2)), D((16, 16), (1, 4), block=(2, 2))),
    "tiles": (TILES, D((40, 60), (3, 2), block="balanced")),
    "64 ranks": (D((256, 256), (8, 8)), D((256, 256), (1, 64))),
    "1d": (D((1000,), (7,), block=(3,)), D((1000,), (12,))),
    "one rank": (D((5,), (1,)), D((5,), (1,))),
    "replicas": (D((8, 8, 8), (2, 3), dims=(0, None, None)), D((8, 8, 8), (1, 2, 3))),
    "boxes": (BOXES, D((40, 60), (3, 2))),
    "to boxes": (D((40, 60), (3, 2)), BoxDistribution((40, 60), [((5, 0), (10, 60)), ((30, 20), (10, 10))], [0, 2])),
    "no elements": (D((4, 0), (2, 2)), TiledDistribution((4, 0), (2, 2), np.empty((2, 0)))),
}


@cache
def drawn(name: str):
    return plot.draw(schedule(*CASES[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_numbers_stay_inside_the_axes_and_labels_apart(name):
    figure = drawn(name)
    figure.draw_without_rendering()
    before, after, volumes = figure.axes[:3]
    for axes in (before, after, volumes):
        frame = axes.get_window_extent().padded(1)
        assert axes.get_title()
        assert axes.get_xlabel()
        boxes = [text.get_window_extent() for text in axes.texts]
        assert all(frame.contains(*box.p0) and frame.contains(*box.p1) for box in boxes)
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    everything = [axes.get_tightbbox() for axes in figure.axes]
    assert not any(a.overlaps(b) for i, a in enumerate(everything) for b in everything[:i])
    assert figure.axes[3].get_xlabel().startswith("volume in ")


def test_ranks_have_the_same_colours_in_all_pictures():
    four = [to_hex(rank_colours(4)(rank)) for rank in range(4)]
    assert four == [*RANK_COLOURS]
    assert len({*map(rank_colours(16), range(16))}) == 16
    assert [to_hex(rank_colours(16)(rank)) for rank in range(4)] == four
    assert rank_colours(1000).N == 1000
    mesh = drawn("64 ranks").axes[0].collections[0]
    assert to_hex(mesh.cmap(mesh.norm(0))) == four[0] == to_hex(mesh.cmap(mesh.norm(3))) and mesh.norm(63) <= 1
    assert four[1] == to_hex(mesh.cmap(mesh.norm(4)))


def test_a_slice_says_how_many_ranks_it_shows():
    before, after, volumes = drawn("seed").axes[:3]
    assert before.get_title().endswith("(6 of 12 ranks in this slice)")
    assert "in this slice" not in after.get_title() + drawn("replicas").axes[0].get_title()
    moved, own = volumes.images  # what stays is grey
    assert own.cmap.name == "Greys" and own.get_array().count() == 6 < moved.get_array().count()


def test_the_two_dimensions_that_differ_most_are_shown():
    def shown(source, target, **how):
        return plot.shown_dimensions(schedule(source, target, **how))

    assert shown(*CASES["seed"]) == ((3, 4), (3, 4))
    assert shown(*CASES["1d"]) == ((0,), (0,))
    assert shown(D((8, 8, 8), (2, 2, 2)), D((8, 8, 8), (2, 2, 2), dims=(1, 0, 2))) == ((0, 1), (0, 1))
    assert shown(D((8, 8, 8), (2, 2)), D((8, 8, 8), (1, 1, 4)), axes=(1, 2, 0)) == ((0, 1), (0, 2))


@pytest.mark.parametrize("name", ["cyclic", "tiles", "64 ranks", "boxes"])
def test_owners_of_the_picture_are_those_of_the_elements(name):
    for side in CASES[name]:
        row_edges, column_edges, owners = plot.owner_map(side, (0, 1))
        for row in range(side.shape[0]):
            i = np.searchsorted(row_edges, row, side="right") - 1
            for column in range(0, side.shape[1], 3):
                j = np.searchsorted(column_edges, column, side="right") - 1
                assert owners[i, j] == side.owner((row, column))


def test_a_scalar_is_one_cell():
    rows, columns, owners = plot.owner_map(D((), (), ranks=[3]), ())
    assert (rows.tolist(), columns.tolist(), owners.tolist()) == ([0, 1], [0, 1], [[3]])


@pytest.mark.parametrize("block", [None, "balanced", 1, 7])
def test_cuts_are_where_owners_change(block):
    side = D((37, 2), (5, 2), block=(block, None))
    owners = [side.owner((i, 0)) for i in range(37)]
    changes = [0] + [i for i in range(1, 37) if owners[i] != owners[i - 1]]
    assert plot.cuts(side, 0).tolist() == changes
