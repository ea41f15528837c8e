"""Progress bar of measurements and files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

#: Takes the name of the measurement at work and the seconds measured so far.
Show = Callable[[str, float], None]


@contextlib.contextmanager
def progress_bar(shown: bool, label: str, limit_seconds: float) -> Iterator[Show]:
    """Show a bar on standard error that is full after so many seconds of measuring; without tqdm nothing."""
    try:
        import tqdm
    except ImportError:
        yield lambda name, seconds: None
        return
    total = float(limit_seconds)
    # Under mpiexec standard error is seldom a terminal: a bar that hides from pipes would never be seen.
    form = "{desc}: {percentage:3.0f}% |{bar:30}| {postfix}"
    bar: Any = tqdm.tqdm(total=total, desc=label, disable=not shown, mininterval=0.5, bar_format=form)

    def show(name: str, seconds: float) -> None:
        bar.set_postfix_str(name, refresh=False)
        bar.update(max(0.0, min(total, seconds) - bar.n))

    with bar:
        yield show
        show("done", total)
