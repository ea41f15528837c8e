"""Folders of ``.npy`` files, one for each array."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dace_redist.io import npy
from dace_redist.io.stored import Layout, NewArray, StoredArray, name_parts

#: Hidden files and folders, some of which :func:`save` writes.
RESERVED, open_new = r"\..*", npy.open_new


def names(path: str) -> list[str | None]:
    """Return the names of all arrays."""
    if not os.path.isdir(path):
        raise FileNotFoundError(f"path must be a folder of .npy files, but there is no folder {path!r}")
    files = (file.relative_to(path) for file in Path(path).rglob("*.npy") if file.is_file())
    return [*sorted(file.as_posix()[:-4] for file in files if not any(part[0] == "." for part in file.parts))]


def open_array(path: str, name: str | None) -> StoredArray:
    """Return the array of a file in the folder."""
    file = _file(path, name)
    if not os.path.isfile(file):
        raise ValueError(
            f"name must be one of the arrays of {path!r}: {', '.join(map(str, names(path)))}; got {name!r}"
        )
    return npy.open_array(file, None)


def create(
    path: str, layouts: Mapping[str | None, Layout], storage: Mapping[str, Any], files: contextlib.ExitStack
) -> list[NewArray]:
    """Make files with arrays whose elements are to be written, in folders that are made where they are missing."""
    paths = {_file(path, name): layout for name, layout in layouts.items()}
    for file in paths:
        os.makedirs(os.path.dirname(file), exist_ok=True)
    return [npy.new_array(file, layout, storage, files) for file, layout in paths.items()]


def _file(path: str, name: str | None) -> str:
    if name is None:
        raise ValueError(f"name must be that of an array in the folder {path!r}, such as 'group/x', got None")
    return os.path.join(path, *name_parts(name)) + ".npy"
