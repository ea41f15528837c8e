"""Where the tuning record lies. Apart from the record, whose format takes a while to load."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def record_path(given: str | os.PathLike[str] | None = None) -> Path:
    """
    Where the record lies: as given, else ``DACE_REDIST_RECORD``, else in the user's data folder.

    :param given: Path of the file, or None.
    :raises TypeError: If ``given`` is no path.
    """
    if given is not None and not isinstance(given, str | os.PathLike):
        raise TypeError(f"record must be the path of a file, got {given!r}")
    named = given or os.environ.get("DACE_REDIST_RECORD")
    return Path(named) if named else Path(platformdirs.user_data_dir("dace-redist")) / "tuning.json"
