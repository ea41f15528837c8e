"""Datasets of HDF5 files, by h5py, which needs no MPI."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from dace_redist.io.stored import Layout, NewArray, Slices, StoredArray, name_parts, new_file, raw_file
from dace_redist.transform import element_type

#: Name of a dataset that is written without one.
_DEFAULT_NAME = "data"
RESERVED = ""


def open_array(path: str, name: str | None) -> StoredArray:
    """Return a dataset of a file; without a name the only one."""
    file = _opened(path)
    try:
        dataset = _found(file, path, name if name is None else "/".join(name_parts(name)))
        if dataset.shape is None:
            raise TypeError(f"dataset {dataset.name!r} of {path!r} has no elements and no shape")
        dtype = element_type(dataset.dtype).newbyteorder("=")
        layout = Layout(dataset.shape, dtype, dataset.chunks or (1,) * dataset.ndim)
    except BaseException:
        file.close()
        raise
    return StoredArray(layout, lambda box, out: dataset.read_direct(out, box), file.close)


def _opened(path: str) -> Any:
    """Open a file to be read."""
    with open(path, "rb") as file:  # whose errors say more than those of HDF5
        if file.read(3) == b"CDF":
            raise ValueError("must be a file of HDF5, or netCDF-4, not netCDF-3: nccopy -k nc4 OLD NEW converts it")
    return h5py.File(path, "r")


def _found(file: Any, path: str, name: str | None) -> Any:
    if name is not None and isinstance(file.get(name), h5py.Dataset):
        return file[name]
    found = _datasets(file)
    if name is None and len(found) == 1:
        return file[found[0]]
    raise ValueError(f"name must be one of the datasets of {path!r}: {', '.join(found) or 'none'}; got {name!r}")


def _datasets(file: Any) -> list[str]:
    found: list[str] = []
    file.visititems(lambda one, item: found.append(one) if isinstance(item, h5py.Dataset) else None)
    return sorted(found)


def names(path: str) -> list[str | None]:
    """Return the names of all datasets."""
    with _opened(path) as file:
        return [*_datasets(file)]


def create(
    path: str, layouts: Mapping[str | None, Layout], storage: Mapping[str, Any], files: contextlib.ExitStack
) -> list[NewArray]:
    """
    Make a file with datasets whose elements are to be written, and with all else that the old file holds.

    An old dataset of the same shape and type stays, unless there is ``storage``; else its attributes do.
    """
    wanted, stay = {name or _DEFAULT_NAME: layout for name, layout in layouts.items()}, set()
    new = new_file(files, path)
    made = os.fsdecode(new.path)
    if os.path.exists(path):
        with _opened(path) as file:
            old = {name: _dataset(file, path, name) for name in wanted}
            stay = {name for name, layout in wanted.items() if not storage and _stays(old[name], layout)}
            if _holds_others(file, wanted) or any(_is_special(old[name]) for name in stay):
                shutil.copyfile(path, made)
            else:
                stay = set()
    with _changed(made) as file:
        datasets = [
            file[name] if name in stay else _new_dataset(file, path, name, layout, storage)
            for name, layout in wanted.items()
        ]
        arrays = [_new_array(made, *one) for one in zip(wanted, datasets, wanted.values(), strict=True)]
    return [dataclasses.replace(arrays[0], commit=new.replace), *arrays[1:]]


def _stays(old: Any, layout: Layout) -> bool:
    """Return True if a dataset of an old file can hold the new array."""
    same = old is not None and (old.shape, old.dtype) == (layout.shape, layout.dtype)
    return same and not (old.is_virtual or old.external)


def _is_special(old: Any) -> bool:
    """Return True if a dataset has properties that a new one has not."""
    fill = old.id.get_create_plist().fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED
    return bool(fill or old.chunks)


def _new_array(made: str, name: str, dataset: Any, layout: Layout) -> NewArray:
    layout = Layout(layout.shape, layout.dtype, dataset.chunks or layout.unit)
    like_numpy = dataset.id.get_type().equal(h5py.h5t.py_create(layout.dtype, logical=True))
    plain = dataset.id.get_create_plist().get_layout() == h5py.h5d.CONTIGUOUS and not dataset.external
    raw = like_numpy and plain and dataset.id.get_storage_size() > 0
    return NewArray(made, name, layout, dataset.id.get_offset() if raw else 0, one_writer=not raw)


def _dataset(file: Any, path: str, name: str) -> Any:
    """Return the dataset of a name, or None; a ValueError if there cannot be one in this file."""
    item = file
    for part in name.split("/"):
        link = item.get(part, getlink=True) if isinstance(item, h5py.Group) else h5py.ExternalLink("", "")
        if link is None:
            return None
        item = None if isinstance(link, h5py.ExternalLink) else item.get(part)
        if item is not None and item.file.filename != file.filename:  # by a soft link through an external one
            item = None
    if not isinstance(item, h5py.Dataset):
        raise ValueError(
            f"name must be that of a dataset in groups of {path!r}, but {name!r} is a group, lies below a dataset, or "
            "is on a link that leads out of the file"
        )
    return item


def _new_dataset(file: Any, path: str, name: str, layout: Layout, storage: Mapping[str, Any]) -> Any:
    """Return a new dataset, in the place of an old one with its attributes."""
    attributes = []
    if (old := file.get(name)) is not None:
        if h5py.h5o.get_info(old.id).rc > 1 or {"DIMENSION_LIST", "REFERENCE_LIST"} & {*old.attrs}:
            raise ValueError(
                f"dataset {name!r} of {path!r} has other hard links or dimension scales: save an array of its shape "
                "and element type, without further arguments, or delete it first"
            )
        for one in map(old.attrs.get_id, old.attrs):
            values, kind = None if one.shape is None else np.empty(one.shape, one.dtype), h5py.h5t.py_create(one.dtype)
            if values is not None:
                one.read(values, mtype=kind)
            attributes.append((one.name, one.get_type(), one.get_space(), values, kind))
        name = file[old.ref].name  # not that of a link
        del old, file[name]
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if not storage:  # all its space is there before it is written
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    dataset = file.create_dataset(name, layout.shape, layout.dtype, dcpl=plist, **storage)
    for key, stored, space, values, kind in attributes:
        one = h5py.h5a.create(dataset.id, key, stored, space)
        if values is not None:
            one.write(values, mtype=kind)
    return dataset


def _holds_others(file: Any, wanted: Iterable[str]) -> bool:
    """Check for anything in a file besides datasets without attributes and the groups on the way to them."""
    links, known = [""], {""}
    for name in wanted:
        parts = name.split("/")
        known |= {"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
    file.visit_links(links.append)
    above = [one for one in links if one in known]
    return len(above) < len(links) or file.userblock_size > 0 or any(file[one or "/"].attrs for one in above)


class _File(io.FileIO):
    """File that keeps its first failure to write, of which HDF5 would end the process later, and goes on."""

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all bytes, or none once a write has failed."""
        rest = memoryview(data).cast("B")
        try:
            while rest and self.failure is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.failure = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """Change the length."""
        try:
            return super().truncate(size)
        except OSError as error:
            self.failure = self.failure or error
            return size or 0


@contextlib.contextmanager
def _changed(path: str) -> Iterator[Any]:
    """Open a file to be changed; in the end it is closed, and on the disk."""
    with _File(path, "r+") as raw:
        with h5py.File(raw, "r+" if raw.seek(0, os.SEEK_END) else "w") as file:
            yield file
        if raw.failure is not None:
            raise raw.failure
        os.fsync(raw.fileno())


def open_new(new: NewArray) -> StoredArray:
    """Return a file that :func:`create` made, to be written."""
    if not new.one_writer:
        return raw_file(new)
    opened = contextlib.ExitStack()
    dataset = opened.enter_context(_changed(new.path))[new.name]

    def write(box: Slices, part: npt.NDArray[Any]) -> None:
        dataset.write_direct(part, None, box)

    return StoredArray(new.layout, write, opened.close)
