"""Progress of measurements and files."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

#: Takes the name of what is at work, and the amount done so far, in the unit of the limit.
Show = Callable[[str, float], None]

_SECONDS_BETWEEN_LINES = 10


@contextlib.contextmanager
def progress_bar(shown: bool, label: str, limit: float) -> Iterator[Show]:
    """
    Show on standard error how much of ``limit`` is done: a bar on a terminal, if there is tqdm.

    In a file or pipe, as under most mpiexecs, it is a line every 10 seconds.
    """
    if not shown:
        yield lambda name, done: None
        return
    if not sys.stderr.isatty():
        yield _lines(label, limit)
        return
    try:
        import tqdm
    except ImportError:
        yield lambda name, done: None
        return
    bar: Any = tqdm.tqdm(total=limit, desc=label, mininterval=0.5, bar_format="{desc} {percentage:3.0f}% |{bar:30}|")

    def show(name: str, done: float) -> None:
        bar.set_description_str(f"{label}: {name}", refresh=False)
        bar.update(max(0.0, min(limit, done) - bar.n))

    with bar:
        yield show
        show("done", limit)


def _lines(label: str, limit: float) -> Show:
    last = time.monotonic()

    def show(name: str, done: float) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(f"{label}: {name}, {100 * min(1, done / limit):.0f} %", file=sys.stderr, flush=True)

    return show
