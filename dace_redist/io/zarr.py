"""Arrays of Zarr stores in folders, by zarr 3."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy.typing as npt
import zarr

from dace_redist import _core
from dace_redist.io.stored import Layout, NewArray, Slices, StoredArray, name_parts
from dace_redist.transform import element_type

#: Files that describe an array.
_METADATA = {"zarr.json", ".zarray", ".zattrs"}

#: Files of Zarr, and names that it keeps for later.
RESERVED = r"zarr\.json|\.z(array|attrs|group|metadata)|__.*"


def open_array(path: str, name: str | None) -> StoredArray:
    """Return an array of a store; without a name that at its root."""
    folder = _folder(path, name)
    if not os.path.isdir(path):
        raise FileNotFoundError(f"path must be the folder of a Zarr store, but there is no folder {path!r}")
    if not isinstance(_opened(folder), zarr.Array):
        found = ", ".join(map(str, names(path))) or "none"
        raise ValueError(f"name must be one of the arrays of {path!r}: {found}; got {name!r}")
    array = zarr.open_array(folder, mode="r")

    def read(box: Slices, out: npt.NDArray[Any]) -> None:
        out[...] = array[box]

    return StoredArray(_layout(array), read)


def names(path: str) -> list[str | None]:
    """Return the names of all arrays."""
    return [*_names(path, ())]


def _names(folder: str, parts: tuple[str, ...]) -> Iterator[str | None]:
    try:
        node = _opened(folder)
    except (ValueError, TypeError, KeyError):  # such as an unknown codec, which must not hide other arrays
        if not parts:
            raise
        return
    if isinstance(node, zarr.Array):
        yield "/".join(parts) or None
    for below in sorted(os.listdir(folder)) if isinstance(node, zarr.Group) else ():
        yield from _names(os.path.join(folder, below), (*parts, below))


def create(
    path: str, layouts: Mapping[str | None, Layout], storage: Mapping[str, Any], files: contextlib.ExitStack
) -> list[NewArray]:
    """Make an array in a store for each name, whose elements are to be written."""
    return [_create(path, name, layout, storage, files) for name, layout in layouts.items()]


def _create(
    path: str, name: str | None, layout: Layout, storage: Mapping[str, Any], files: contextlib.ExitStack
) -> NewArray:
    """
    Make a store with an array whose elements are to be written.

    It has the format of the groups above it, and of an old array the attributes and, unless shape, element type or
    ``storage`` say otherwise, all else.
    """
    folder, groups = _folder(path, name), _groups(path, name)
    old = _opened(folder)
    if os.path.exists(folder) and not isinstance(old, zarr.Array):
        raise ValueError(f"{folder!r} exists and is not a Zarr array: choose another name, or remove it")
    above = [node for node in map(_opened, reversed(groups)) if node is not None]
    if any(isinstance(node, zarr.Array) for node in above):
        raise ValueError(f"name must be a path through groups of {path!r}, not below an array; got {name!r}")
    versions = [node.metadata.zarr_format for node in (*above, old) if node is not None] or [None]
    how = {"zarr_format": versions[0], **storage}
    if above and how["zarr_format"] != versions[0]:
        raise ValueError(f"zarr_format must be {versions[0]}, that of the store, got {how['zarr_format']}")
    store, real = os.path.realpath(path), os.path.realpath(folder)
    is_within = os.path.commonpath([store, real]) == store  # else a link leads out, maybe to another file system
    new = _core.NewFile(os.fsencode(folder), True, os.fsencode(store if is_within else real))
    files.callback(_discard, new)
    made = os.fsdecode(new.path)
    kept = old is not None and not storage and old.metadata.zarr_format == how["zarr_format"]
    if kept and (old.shape, old.dtype) == (layout.shape, layout.dtype):
        for file in _METADATA & {*os.listdir(folder)}:
            shutil.copy(os.path.join(folder, file), made)
    else:
        if old is not None:
            how.setdefault("attributes", old.attrs.asdict())
            names = getattr(old.metadata, "dimension_names", None)  # not of Zarr 2
            if how["zarr_format"] == 3 and names and len(names) == len(layout.shape):
                how.setdefault("dimension_names", names)
        zarr.create_array(made, shape=layout.shape, dtype=layout.dtype, **how)
    array = zarr.open_array(made, mode="r")
    commit = functools.partial(_commit, new, groups, array.metadata.zarr_format)
    return NewArray(made, name, dataclasses.replace(_layout(array), dtype=layout.dtype), commit=commit)


def _commit(new: _core.NewFile, groups: list[str], version: int) -> None:
    """Put a complete array in its place, in groups that are made where they are missing."""
    for group in groups:
        if _opened(group) is None:
            zarr.open_group(group, mode="a", zarr_format=version)
    new.replace()
    with warnings.catch_warnings():  # of consolidated metadata, which another program made
        warnings.simplefilter("ignore")
        for group in reversed(groups):
            if _opened(group).metadata.consolidated_metadata is not None:
                zarr.consolidate_metadata(group)


def _discard(new: _core.NewFile) -> None:
    """Remove what a failure left; zarr's threads may make it again for a while after one of them has failed."""
    gone = 0 if new.discard() else 6  # nothing after a success
    while gone < 6:
        time.sleep(0.05)
        gone = 0 if new.discard() else gone + 1


def open_new(new: NewArray) -> StoredArray:
    """Return a store that :func:`create` made, to be written."""
    array = zarr.open_array(new.path, mode="r+")

    def write(box: Slices, part: npt.NDArray[Any]) -> None:
        array[box] = part

    return StoredArray(new.layout, write)


def _groups(path: str, name: str | None) -> list[str]:
    """Return the folders of the groups that an array is in, the outermost first."""
    parts = name_parts(name)
    return [os.path.join(path, *parts[:count]) for count in range(len(parts))]


def _layout(array: Any) -> Layout:
    chunks = tuple(max(1, extent) for extent in array.shards or array.chunks)  # of an axis of extent 0 it may be 0
    return Layout(array.shape, element_type(array.dtype).newbyteorder("="), chunks)


def _folder(path: str, name: str | None) -> str:
    return os.path.join(path, *name_parts(name))


def _opened(folder: str) -> Any:
    """Return the array or group of a folder; None if it is neither."""
    try:
        return zarr.open(folder, mode="r")
    except FileNotFoundError:
        return None
