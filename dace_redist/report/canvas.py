"""Figures of matplotlib, which is optional: new ones that belong to no window, and their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dace_redist.errors import naming_file

#: Endings of the files that can be written.
FORMATS = (".png", ".svg", ".pdf")
#: Colours of ranks 0 to 3 in all pictures; see :func:`rank_colours`.
RANK_COLOURS = ("#4c78a8", "#f2a154", "#6aa86a", "#b279a2")
_MAX_COLOURS = 16  # more could not be told apart: neighbouring ranks share one


def require_matplotlib() -> None:
    """
    Check that pictures can be drawn.

    :raises ImportError: If matplotlib is not installed; says how to install it.
    """
    try:
        import matplotlib  # noqa: F401 (other modules import what they need of it)
    except ImportError as error:
        raise ImportError('plot: pictures need matplotlib: pip install "dace-redist[plot]"') from error


def new_figure(width: float, height: float, **options: Any) -> Any:
    """Return a ``matplotlib.figure.Figure`` of a size in inches; ``ImportError`` if matplotlib is not installed."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(width, height), **options)
    FigureCanvasAgg(figure)
    return figure


def rank_colours(ranks: int) -> Any:
    """Return a ``ListedColormap`` of colours by rank: the four in turn, each time lighter."""
    from matplotlib.colors import ListedColormap, to_rgb

    each, count = -(-ranks // _MAX_COLOURS), len(RANK_COLOURS)
    shades = [(to_rgb(RANK_COLOURS[rank // each % count]), 0.22 * (rank // each // count)) for rank in range(ranks)]
    return ListedColormap([[part + white * (1 - part) for part in colour] for colour, white in shades])


def save(draw_figure: Callable[[], Any], path: str | Path) -> None:
    """
    Write a figure to a file; equal figures give equal files.

    :param draw_figure: Draws the figure, once the path is known to be good.
    :param path: File to write; its ending says the format: .png, .svg or .pdf.
    :raises ValueError: If the format is unknown.
    :raises FileNotFoundError: If the folder does not exist.
    :raises OSError: If the file cannot be written.
    :raises ImportError: If matplotlib is not installed.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"plot: {str(path)!r} needs one of the endings {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"plot: the folder {str(path.parent)!r} for {path.name!r} does not exist")
    require_matplotlib()
    from matplotlib import rc_context

    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
    with rc_context({"svg.hashsalt": "dace-redist", "font.size": 9}):
        figure = draw_figure()
        with naming_file("picture", path, "name another file"):
            figure.savefig(path, dpi=150, metadata=undated)
