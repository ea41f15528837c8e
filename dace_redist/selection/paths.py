"""Where the files of measurements lie: the tuning record and the machine profile."""

from __future__ import annotations

import functools
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
    if named:
        return Path(named)
    return _data_directory(os.environ.get("XDG_DATA_HOME"), os.environ.get("HOME")) / name


@functools.lru_cache(maxsize=4)
def _data_directory(*_variables: str | None) -> Path:
    """The user's data folder; looking it up takes longer than a small redistribution."""
    return Path(platformdirs.user_data_dir("dace-redist"))
