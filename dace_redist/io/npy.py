"""Files of NumPy, ``.npy``, and folders of them, with one for each array."""

from __future__ import annotations

import ast
import contextlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dace_redist import _core
from dace_redist.io.stored import (
    Description,
    Layout,
    NewArray,
    Storage,
    Storages,
    StoredArray,
    name_parts,
    new_file,
    raw_array,
    raw_file,
)

#: Hidden files and folders, some of which :func:`save` writes.
RESERVED, open_new = r"\..*", raw_file


def open_array(path: str, name: str | None) -> StoredArray:
    """Return the array of a file."""
    file_path = _file(path, name)
    if name is not None and not os.path.isfile(file_path):
        raise ValueError(
            f"name must be one of the arrays of {path!r}: {', '.join(map(str, names(path)))}; got {name!r}"
        )
    try:
        kind, backwards, shape, offset = _core.read_npy_header(os.fsencode(file_path))
        dtype = np.lib.format.descr_to_dtype(ast.literal_eval(kind))
        if dtype.hasobject:
            raise TypeError("objects of Python have no fixed size")
        file = open(file_path, "rb", buffering=0)
        return raw_array(file, dtype, tuple(shape), offset, backwards)
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"must be a complete .npy file with elements of fixed size: {error}") from error


def names(path: str) -> list[str | None]:
    """Return the names of all arrays of a folder; None for that of a file."""
    if _is_file(path):
        return [None]
    if not os.path.isdir(path):
        raise FileNotFoundError(f"path must be a folder of .npy files, but there is no folder {path!r}")
    files = (file.relative_to(path) for file in Path(path).rglob("*.npy") if file.is_file())
    return [*sorted(file.as_posix()[:-4] for file in files if not any(part[0] == "." for part in file.parts))]


def create(
    path: str, layouts: Mapping[str | None, Layout], storage: Storages, files: contextlib.ExitStack
) -> list[NewArray]:
    """Make files with arrays whose elements are to be written, in folders that are made where they are missing."""
    planned = {_file(path, name): plan_array(path, name, layout, storage[name]) for name, layout in layouts.items()}
    if not _is_file(path):
        for file in planned:
            os.makedirs(os.path.dirname(file), exist_ok=True)
    return [_create(file, new.layout, files) for file, new in planned.items()]


def plan_array(path: str, name: str | None, layout: Layout, storage: Mapping[str, Any]) -> NewArray:
    """Return an array as :func:`create` makes it, and check its name and arguments."""
    if set(storage) - {"fortran_order"}:
        raise TypeError(f"a .npy file takes fortran_order and no other arguments, got {', '.join(storage)}")
    backwards = bool(storage.get("fortran_order", False)) and len(layout.shape) > 1
    shape = layout.shape[::-1] if backwards else layout.shape
    return NewArray(_file(path, name), None, Layout(shape, layout.dtype, layout.unit, backwards))


def _create(path: str, layout: Layout, files: contextlib.ExitStack) -> NewArray:
    file, nbytes = new_file(files, path), math.prod(layout.shape) * layout.dtype.itemsize
    kind = repr(np.lib.format.dtype_to_descr(layout.dtype))
    offset = _core.write_npy_header(file.path, kind, layout.reversed, layout.shape[layout.order], nbytes)
    return NewArray(os.fsdecode(file.path), None, layout, offset, commit=file.replace)


def describe(path: str, name: str | None) -> Description:
    """Return the properties of an array, see :class:`Description`."""
    with contextlib.closing(open_array(path, name)) as stored:
        return Description("npy", gzip=0, own={"fortran_order": True} if stored.layout.reversed else {})


def storage_of(found: Description, path: str, name: str | None, layout: Layout, asked: Storage) -> Storage:
    """Return arguments of :func:`create` that keep properties of an array, besides those that are asked for."""
    return {**(found.own if found.format == "npy" else {}), **asked}


def _is_file(path: str) -> bool:
    return Path(path).suffix.lower() == ".npy"


def _file(path: str, name: str | None) -> str:
    if _is_file(path) and name is not None:
        raise ValueError(
            f"a .npy file holds one array, which has no name, got name={name!r}: name a folder for several"
        )
    if not _is_file(path) and name is None:
        raise ValueError(f"name must be that of an array in the folder {path!r}, such as 'group/x', got None")
    return path if name is None else os.path.join(path, *name_parts(name)) + ".npy"
