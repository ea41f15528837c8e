"""Arrays of Zarr stores in folders, by zarr 3."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import zarr

from dace_redist.io.stored import Box, Layout, NewFile, StoredArray, temporary
from dace_redist.transform import element_type


def open_array(path: str, name: str | None) -> StoredArray:
    """Return an array of a store; without a name that at its root."""
    folder = _folder(path, name)
    if not os.path.isdir(path):
        raise FileNotFoundError(f"path must be the folder of a Zarr store, but there is no folder {path!r}")
    if not isinstance(_opened(folder), zarr.Array):
        root = _opened(path)
        members = root.members(None) if isinstance(root, zarr.Group) else []
        names = ", ".join(sorted(key for key, item in members if isinstance(item, zarr.Array))) or "none"
        raise ValueError(f"name must be one of the arrays of {path!r}: {names}; got {name!r}")
    array = zarr.open_array(folder, mode="r")

    def read(box: Box, out: npt.NDArray[Any]) -> None:
        out[...] = array[box]

    return StoredArray(_layout(array), read)


def create(path: str, name: str | None, layout: Layout, storage: Mapping[str, Any]) -> NewFile:
    """Make a store with an array whose elements are to be written."""
    folder = above = _folder(path, name)
    if os.path.lexists(folder) and not isinstance(_opened(folder), zarr.Array):
        raise ValueError(f"{folder!r} exists and is not a Zarr array: choose another name, or remove it")
    while above != path:
        above = os.path.dirname(above)
        if isinstance(_opened(above), zarr.Array):
            raise ValueError(f"name must be a path through groups, but {above!r} is an array; got {name!r}")
    with temporary(path) as made:
        array = zarr.create_array(made, shape=layout.shape, dtype=layout.dtype, **storage)
    return NewFile(made, folder, name, _layout(array))


def open_new(new: NewFile) -> StoredArray:
    """Return a store that :func:`create` made, to be written."""
    array = zarr.open_array(new.path, mode="r+")

    def write(box: Box, part: npt.NDArray[Any]) -> None:
        array[box] = part

    return StoredArray(new.layout, write)


def commit(new: NewFile) -> None:
    """Put a complete array in its place, in groups that are made where they are missing."""
    if new.name is not None:
        parts = new.name.strip("/").split("/")
        store = os.path.join(new.final, *[".."] * len(parts))
        version = zarr.open_array(new.path, mode="r").metadata.zarr_format
        group = zarr.open_group(os.path.normpath(store), mode="a", zarr_format=version)
        if parts[:-1]:
            group.require_group("/".join(parts[:-1]))
    new.replace()


def _layout(array: Any) -> Layout:
    chunks = tuple(max(1, extent) for extent in array.shards or array.chunks)  # of an axis of extent 0 it may be 0
    return Layout(array.shape, element_type(array.dtype).newbyteorder("="), chunks)


def _folder(path: str, name: str | None) -> str:
    parts = [] if name is None else name.strip("/").split("/")
    if {"", ".", ".."} & set(parts):
        raise ValueError(f"name must be the path of an array in the store, such as 'group/x', got {name!r}")
    return os.path.join(path, *parts)


def _opened(folder: str) -> Any:
    """Return the array or group of a folder; None if it is neither."""
    try:
        return zarr.open(folder, mode="r")
    except FileNotFoundError:
        return None
