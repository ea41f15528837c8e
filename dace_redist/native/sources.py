"""Where the C++ sources of the package are."""

from __future__ import annotations

from pathlib import Path

#: Directory of the runtime's sources and headers.
SOURCE_DIRECTORY = Path(__file__).parents[1] / "runtime" / "src"
