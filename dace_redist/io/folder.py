"""Folders of ``.npy`` files, one for each array."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dace_redist.io import npy
from dace_redist.io.stored import Layout, NewFile, StoredArray, create_each

open_new, commit = npy.open_new, npy.commit


def names(path: str) -> list[str | None]:
    """Return the names of all arrays."""
    if not os.path.isdir(path):
        raise FileNotFoundError(f"path must be a folder of .npy files, but there is no folder {path!r}")
    return [*sorted(file.relative_to(path).with_suffix("").as_posix() for file in Path(path).rglob("[!.]*.npy"))]


def open_array(path: str, name: str | None) -> StoredArray:
    """Return the array of a file in the folder."""
    file = _file(path, name)
    if not os.path.isfile(file):
        raise ValueError(
            f"name must be one of the arrays of {path!r}: {', '.join(map(str, names(path)))}; got {name!r}"
        )
    return npy.open_array(file, None)


def create(path: str, layouts: Mapping[str | None, Layout], storage: Mapping[str, Any]) -> list[NewFile]:
    """Make files with arrays whose elements are to be written, in folders that are made where they are missing."""

    def create_one(name: str | None) -> NewFile:
        file = _file(path, name)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        return npy.create(file, {None: layouts[name]}, storage)[0]

    return create_each(layouts, create_one)


def _file(path: str, name: str | None) -> str:
    parts = [] if name is None else name.strip("/").split("/")
    if not parts or any(part.startswith(".") or not part for part in parts):
        raise ValueError(f"name must be that of an array in the folder {path!r}, such as 'group/x', got {name!r}")
    return os.path.join(path, *parts) + ".npy"
