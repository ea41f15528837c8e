"""Strategy "Auto" and the tuning record."""

from __future__ import annotations

import os
from pathlib import Path

from dace_redist.native.toolchain import user_directory


def record_path(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of the tuning record: as given, else ``DACE_REDIST_RECORD``, else in the user's data folder."""
    if given is not None and not isinstance(given, str | os.PathLike):
        raise TypeError(f"record must be the path of a file, got {given!r}")
    named = given or os.environ.get("DACE_REDIST_RECORD")
    return Path(named) if named else user_directory("XDG_DATA_HOME", ".local/share") / "tuning.json"
