"""Where the files of measurements lie: the tuning record and the machine profile."""

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
    return _user_file("tuning.json", "DACE_REDIST_RECORD", given, "record")


def profile_path(given: str | os.PathLike[str] | None = None) -> Path:
    """
    Where the machine profile lies: as given, else ``DACE_REDIST_MACHINE``, else in the user's data folder.

    :param given: Path of the file, or None.
    :raises TypeError: If ``given`` is no path.
    """
    return _user_file("machine.json", "DACE_REDIST_MACHINE", given, "machine")


def _user_file(name: str, variable: str, given: str | os.PathLike[str] | None, what: str) -> Path:
    if given is not None and not isinstance(given, str | os.PathLike):
        raise TypeError(f"{what} must be the path of a file, got {given!r}")
    named = given or os.environ.get(variable)
    return Path(named) if named else Path(platformdirs.user_data_dir("dace-redist")) / name
