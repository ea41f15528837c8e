"""Progress of the benchmark on standard error."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from redistribution.catalogue import Case


class Progress:
    """Progress on standard error: on a terminal one line that changes, else a line per case."""

    def __init__(self, speaks: bool, count: int, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._speaks, self._count, self._number = speaks, count, 0
        self._changes = speaks and self._stream.isatty()
        self._head, self._last = "", 0.0

    def begin(self, case: Case) -> None:
        """Begin the next case."""
        self._number += 1
        self._head = f"{case.name} ({self._number} of {self._count}, {case.ranks} ranks)"
        if not self._changes:
            self.say(self._head)

    def doing(self, what: str) -> None:
        """Show the current step; the rate of updates is limited."""
        if self._changes and time.monotonic() - self._last > 0.1:
            self._last = time.monotonic()
            self._write(f"\r\033[K{self._head}: {what}"[:200])

    def say(self, line: str) -> None:
        """Print a permanent line."""
        self._write(("\r\033[K" if self._changes else "") + f"{line}\n")

    def end(self) -> None:
        """Erase the changing line."""
        if self._changes:
            self._write("\r\033[K")

    def _write(self, text: str) -> None:
        if self._speaks:
            self._stream.write(text)
            self._stream.flush()
