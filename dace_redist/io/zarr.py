"""Arrays of Zarr stores in folders, by zarr 3."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import gc
import os
import shutil
import struct
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from dace_redist import _core
from dace_redist.io.stored import (
    Description,
    Layout,
    NewArray,
    Slices,
    Storage,
    Storages,
    StoredArray,
    name_parts,
    new_file,
)
from dace_redist.transform import element_type

#: Files that describe an array.
_METADATA = {"zarr.json", ".zarray", ".zattrs"}

#: Minimum bytes read or written after which memory is freed.
_MIN_FREED_BYTES = 256 << 10

#: Attribute in which xarray has the names of dimensions of an array of Zarr 2.
_DIMENSIONS = "_ARRAY_DIMENSIONS"

#: Files of Zarr, and names that it keeps for later.
RESERVED = r"zarr\.json|\.z(array|attrs|group|metadata)|__.*"


def open_array(path: str, name: str | None) -> StoredArray:
    """Return an array of a store; without a name that at its root."""
    folder = _folder(path, name)
    _check_folder(path)
    if not isinstance(_opened(folder), zarr.Array):
        found = ", ".join(map(str, names(path))) or "none"
        raise ValueError(f"name must be one of the arrays of {path!r}: {found}; got {name!r}")
    array = zarr.open_array(folder, mode="r")

    def read(box: Slices, out: npt.NDArray[Any]) -> None:
        out[...] = array[box]
        _free_chunks(out.nbytes)

    return StoredArray(_layout(array), read)


def names(path: str) -> list[str | None]:
    """Return the names of all arrays."""
    _check_folder(path)
    return [*_names(path, ())]


def _check_folder(path: str) -> None:
    if not os.path.isdir(path):
        raise FileNotFoundError(f"path must be the folder of a Zarr store, but there is no folder {path!r}")


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


def describe(path: str, name: str | None) -> Description:
    """Return the properties of an array, see :class:`Description`."""
    array = zarr.open_array(_folder(path, name), mode="r")
    version, attributes, fill = array.metadata.zarr_format, array.attrs.asdict(), array.metadata.fill_value
    own: dict[str, Any] = {"zarr_format": version, "compressors": array.compressors or None, "filters": array.filters}
    if version == 3:
        own |= {"serializer": array.serializer, "chunk_key_encoding": array.metadata.chunk_key_encoding}
        own["shards"], names = array.shards, array.metadata.dimension_names
        missing = attributes.pop("_FillValue", None)
        if isinstance(missing, str) and array.dtype.kind == "f":
            (missing,) = struct.unpack("<d", base64.b64decode(missing))
        fill = fill if fill else None  # Zarr 3 has no undefined value, but zeros
    else:  # where xarray has the names in an attribute, and a value of elements without data as that of chunks
        own |= {
            "order": array.order,
            "chunk_key_encoding": {"name": "v2", "separator": array.metadata.dimension_separator},
        }
        names = attributes.pop(_DIMENSIONS, None)
        missing = None if names is None else fill
    levels = [_gzip_level(one) for one in array.compressors] or [0]
    groups = [node.attrs.asdict() if node is not None else {} for node in map(_opened, _groups(path, name))]
    named = None if names is None else tuple(names)
    return Description(f"zarr{version}", array.chunks, attributes, tuple(groups), named, fill, missing, levels[0], own)


def _gzip_level(codec: Any) -> int | None:
    """Return the level of a codec of Zarr 2 or 3 that is gzip; None for another one."""
    facts = codec.to_dict() if hasattr(codec, "to_dict") else codec.get_config()
    level = facts.get("configuration", facts).get("level")
    return level if "gzip" in (facts.get("name"), facts.get("id")) else None


def storage_of(found: Description, path: str, name: str | None, layout: Layout, asked: Storage) -> Storage:
    """Return arguments of :func:`create` that keep properties of an array, besides those that are asked for."""
    kept = {"zarr_format": found.own["zarr_format"]} if found.format.startswith("zarr") else {}
    version = {"zarr_format": 3, **kept, **asked, **_version(path, name)}["zarr_format"]
    how: dict[str, Any] = {"attributes": {key: _json_value(one) for key, one in found.attributes.items()}}
    how |= {"chunks": found.chunks, "fill_value": found.fill_value, "zarr_format": version}
    how["groups"] = [{key: _json_value(one) for key, one in of.items()} for of in found.groups]
    if version == 3:
        how["dimension_names"] = found.dimension_names
        if found.missing is not None:
            packed = struct.pack("<d", found.missing) if layout.dtype.kind == "f" else None
            how["attributes"]["_FillValue"] = (
                base64.b64encode(packed).decode() if packed else _json_value(found.missing)
            )
    else:
        how["fill_value"] = found.fill_value if found.missing is None else found.missing
        if found.dimension_names is not None:
            how["attributes"][_DIMENSIONS] = list(found.dimension_names)
    how = {key: one for key, one in how.items() if one is not None or (key == "fill_value" and version == 2)}
    if found.format == f"zarr{version}":
        how |= {key: one for key, one in found.own.items() if key != "shards" or ("chunks" not in asked and one)}
    elif found.gzip and version == 3:
        how["compressors"] = {"name": "gzip", "configuration": {"level": found.gzip}}
    elif found.gzip:
        how["compressors"] = {"id": "gzip", "level": found.gzip}
    return {**how, **asked}


def _json_value(value: Any) -> Any:
    """Return an attribute as JSON can have it."""
    if isinstance(value, np.ndarray | np.generic):
        return _json_value(value.tolist())
    if isinstance(value, list | tuple):
        return [_json_value(one) for one in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str | int | float | bool | dict) else None


def plan_array(path: str, name: str | None, layout: Layout, storage: Storage) -> NewArray:
    """Return an array as :func:`create` makes it, and check its name and arguments."""
    how = {key: one for key, one in storage.items() if key != "groups"}
    array = zarr.create_array({}, shape=layout.shape, dtype=layout.dtype, **how)
    return NewArray(_folder(path, name), None, dataclasses.replace(_layout(array), dtype=layout.dtype))


def create(
    path: str, layouts: Mapping[str | None, Layout], storage: Storages, files: contextlib.ExitStack
) -> list[NewArray]:
    """Make an array in a store for each name, whose elements are to be written."""
    return [_create(path, name, layout, storage[name], files) for name, layout in layouts.items()]


def _version(path: str, name: str | None) -> dict[str, int]:
    """Return the format of the groups that an array is in, if there are any, as an argument."""
    found = [node.metadata.zarr_format for node in map(_opened, reversed(_groups(path, name))) if node is not None]
    return {"zarr_format": found[0]} if found else {}


def _create(path: str, name: str | None, layout: Layout, storage: Storage, files: contextlib.ExitStack) -> NewArray:
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
    attributes = [*how.pop("groups", ()), *[{}] * len(groups)]
    if above and how["zarr_format"] != versions[0]:
        raise ValueError(f"zarr_format must be {versions[0]}, that of the store, got {how['zarr_format']}")
    store, real = os.path.realpath(path), os.path.realpath(folder)
    is_within = os.path.commonpath([store, real]) == store  # else a link leads out, maybe to another file system
    new = new_file(files, folder, True, os.fsencode(store if is_within else real), discard=_discard)
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
    commit = functools.partial(_commit, new, groups, attributes, array.metadata.zarr_format)
    return NewArray(made, name, dataclasses.replace(_layout(array), dtype=layout.dtype), commit=commit)


def _commit(new: _core.NewFile, groups: list[str], attributes: Sequence[dict[str, Any]], version: int) -> None:
    """Put a complete array in its place, in groups that are made where they are missing, with attributes."""
    for group, values in zip(groups, attributes, strict=False):
        opened = zarr.open_group(group, mode="a", zarr_format=version)
        missing = {key: one for key, one in values.items() if key not in opened.attrs}
        opened.attrs.update(missing) if missing else None
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
        _free_chunks(part.nbytes)

    return StoredArray(new.layout, write)


def _free_chunks(nbytes: int) -> None:
    """Free chunks that zarr leaves in cycles of references, if they may be large."""
    if nbytes > _MIN_FREED_BYTES:
        gc.collect(1)


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
