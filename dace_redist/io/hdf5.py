"""Datasets of HDF5 files, by h5py, which needs no MPI."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

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
    raw_file,
)
from dace_redist.transform import element_type

#: Name of a dataset that is written without one.
_DEFAULT_NAME = "data"
RESERVED = ""

#: Attributes by which HDF5 and netCDF describe dimensions; they are of one file.
_OF_DIMENSIONS = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"}
#: Arguments of a dataset besides those of ``create_dataset``, and those with which its elements follow one another.
_NOT_OF_H5PY = {"attributes", "dimension_names", "groups"}
_OF_CONTIGUOUS = {*_NOT_OF_H5PY, "fillvalue"}


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


def describe(path: str, name: str | None) -> Description:
    """Return the properties of a dataset, see :class:`Description`."""
    with _opened(path) as file:
        dataset = _found(file, path, name if name is None else "/".join(name_parts(name)))
        plist, own = dataset.id.get_create_plist(), dict[str, Any]()
        for code, _, values, _ in map(plist.get_filter, range(plist.get_nfilters())):
            if code >= h5py.h5z.FILTER_RESERVED:  # of a plugin, or LZF
                own |= {"compression": code, "compression_opts": values if code != h5py.h5z.FILTER_LZF else None}
        if dataset.compression in ("gzip", "szip"):
            own |= {"compression": dataset.compression, "compression_opts": dataset.compression_opts}
        own |= {key: getattr(dataset, key) for key in ("shuffle", "fletcher32", "scaleoffset") if getattr(dataset, key)}
        if dataset.chunks and dataset.maxshape != dataset.shape:
            own["maxshape"] = dataset.maxshape
        level = own["compression_opts"] if dataset.compression == "gzip" else None if "compression" in own else 0
        parents = dataset.name.split("/")[1:-1]
        groups = (file["/".join(parents[:count]) or "/"] for count in range(len(parents) + 1))
        attributes, is_filled = _attributes(dataset), plist.fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED
        return Description(
            "hdf5",
            dataset.chunks,
            attributes,
            tuple(map(_attributes, groups)),
            _dimension_names(dataset),
            dataset.fillvalue if is_filled else None,
            np.ravel(attributes.pop("_FillValue"))[0] if "_FillValue" in attributes else None,
            level,
            own,
        )


def _attributes(item: Any) -> dict[str, Any]:
    """Return attributes, but for those of one file: of dimensions, of netCDF-4, and references."""
    names = (name for name in item.attrs if name not in _OF_DIMENSIONS and not name.startswith(("_Netcdf4", "_nc3_")))
    found = {name: item.attrs[name] for name in names}
    return {name: one for name, one in found.items() if not isinstance(one, h5py.Reference | h5py.RegionReference)}


def _dimension_names(dataset: Any) -> tuple[str | None, ...] | None:
    """Return the names of the scales of a dataset, or its labels; None if it has neither."""
    if dataset.is_scale and dataset.ndim == 1:
        return (dataset.name.rpartition("/")[2],)
    scales = ([scale.name.rpartition("/")[2] for scale in one.values()] for one in dataset.dims)
    names = tuple((found or [one.label or None])[0] for found, one in zip(scales, dataset.dims, strict=True))
    return names if any(names) else None


def storage_of(found: Description, path: str, name: str | None, layout: Layout, asked: Storage) -> Storage:
    """Return arguments of :func:`create` that keep properties of an array, besides those that are asked for."""
    how: dict[str, Any] = {"attributes": {key: _stored_value(one) for key, one in found.attributes.items()}}
    how |= {"dimension_names": found.dimension_names, "fillvalue": found.fill_value}
    how["groups"] = [{key: _stored_value(one) for key, one in of.items()} for of in found.groups]
    if found.missing is not None:
        how["attributes"]["_FillValue"] = np.asarray(found.missing, layout.dtype)
    if found.format == "hdf5":
        how |= found.own
    elif found.gzip != 0:
        how |= {"compression": "gzip", "compression_opts": found.gzip or 1, "shuffle": True}
    how |= {"chunks": found.chunks, **asked}
    if "maxshape" not in how and how["chunks"] is not None:  # h5py has no chunks beyond the ends of an array
        how["chunks"] = tuple(map(min, how["chunks"], layout.shape))
    if not layout.shape or 0 in layout.shape:
        how = {key: one for key, one in how.items() if key in _OF_CONTIGUOUS}
    return {key: one for key, one in how.items() if one is not None}


def _stored_value(value: Any) -> Any:
    """Return an attribute as HDF5 can have it: what it has no type for as JSON."""
    if value is None:
        return h5py.Empty("f4")
    if isinstance(value, dict | list):
        try:
            mixed = isinstance(value, dict) or len({isinstance(one, str) for one in value}) > 1
            return json.dumps(value) if mixed or np.asarray(value).dtype.kind == "O" else value
        except ValueError:  # lists of different lengths
            return json.dumps(value)
    return value


def plan_array(path: str, name: str | None, layout: Layout, storage: Storage) -> NewArray:
    """Return a dataset as :func:`create` makes it, and check its name and arguments."""
    with h5py.File("plan", "w", driver="core", backing_store=False) as file:
        dataset = _new_dataset(file, path, name or _DEFAULT_NAME, layout, storage, early=False)
        unit = dataset.chunks or layout.unit
        return NewArray(path, name or _DEFAULT_NAME, dataclasses.replace(layout, unit=unit), 0, bool(dataset.chunks))


def create(
    path: str, layouts: Mapping[str | None, Layout], storage: Storages, files: contextlib.ExitStack
) -> list[NewArray]:
    """
    Make a file with datasets whose elements are to be written, and with all else that the old file holds.

    An old dataset of the same shape and type stays, unless there is ``storage``; else its attributes do.
    """
    wanted, stay = {name or _DEFAULT_NAME: layout for name, layout in layouts.items()}, set()
    how = dict(zip(wanted, (storage[name] for name in layouts), strict=True))
    new = new_file(files, path)
    made = os.fsdecode(new.path)
    if os.path.exists(path):
        with _opened(path) as file:
            old = {name: _dataset(file, path, name) for name in wanted}
            stay = {name for name, layout in wanted.items() if not how[name] and _stays(old[name], layout)}
            if _holds_others(file, how) or any(_is_special(old[name]) for name in stay):
                shutil.copyfile(path, made)
            else:
                stay = set()
    with _changed(made) as file:
        datasets = [
            file[name] if name in stay else _new_dataset(file, path, name, layout, how[name])
            for name, layout in wanted.items()
        ]
        for name, dataset in zip(wanted, datasets, strict=True):
            _name_dimensions(file, dataset, how[name].get("dimension_names") or (), wanted)
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


def _name_dimensions(file: Any, dataset: Any, names: Sequence[str | None], wanted: Iterable[str]) -> None:
    """Attach new datasets of these names to the axes of another one as scales, or else label the axes."""
    group = dataset.parent.name.strip("/")
    for axis, name in enumerate(names):
        scale = f"{group}/{name}".lstrip("/")
        if name is not None and scale in wanted and file[scale].shape == dataset.shape[axis : axis + 1]:
            file[scale].make_scale(name)
            if dataset.name != f"/{scale}":
                dataset.dims[axis].attach_scale(file[scale])
        elif name is not None:
            dataset.dims[axis].label = name


def _new_dataset(file: Any, path: str, name: str, layout: Layout, storage: Storage, early: bool = True) -> Any:
    """
    Return a new dataset, in the place of an old one with its attributes, unless it is given others.

    :param early: True if all its space shall be there before it is written.
    """
    attributes = []
    if (old := file.get(name)) is not None:
        if h5py.h5o.get_info(old.id).rc > 1 or {"DIMENSION_LIST", "REFERENCE_LIST"} & {*old.attrs}:
            raise ValueError(
                f"dataset {name!r} of {path!r} has other hard links or dimension scales: save an array of its shape "
                "and element type, without further arguments, or delete it first"
            )
        for one in map(old.attrs.get_id, old.attrs) if "attributes" not in storage else ():
            values, kind = None if one.shape is None else np.empty(one.shape, one.dtype), h5py.h5t.py_create(one.dtype)
            if values is not None:
                one.read(values, mtype=kind)
            attributes.append((one.name, one.get_type(), one.get_space(), values, kind))
        name = file[old.ref].name  # not that of a link
        del old, file[name]
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if early and not set(storage) - _OF_CONTIGUOUS:
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    how = {key: one for key, one in storage.items() if key not in _NOT_OF_H5PY}
    dataset = file.create_dataset(name, layout.shape, layout.dtype, dcpl=plist, **how)
    dataset.attrs.update(storage.get("attributes", {}))
    parents = dataset.name.split("/")[1:-1]
    for count, values in zip(range(len(parents) + 1), storage.get("groups", ()), strict=False):
        group = file["/".join(parents[:count]) or "/"]
        group.attrs.update({key: one for key, one in values.items() if key not in group.attrs})
    for key, stored, space, values, kind in attributes:
        one = h5py.h5a.create(dataset.id, key, stored, space)
        if values is not None:
            one.write(values, mtype=kind)
    return dataset


def _holds_others(file: Any, how: Mapping[str, Storage]) -> bool:
    """Check for anything in a file besides datasets, the groups on the way to them, and attributes that they bring."""
    links, known = [""], dict[str, set[str] | None]({"": set()})
    for name, storage in how.items():
        parts, groups = name.split("/"), storage.get("groups", ())
        for count in range(len(parts)):
            values = groups[count] if count < len(groups) else ()
            known["/".join(parts[:count])] = {*values}
        known[name] = None if "attributes" in storage else set()
    file.visit_links(links.append)
    above = [one for one in links if one in known]
    more = ((of, {*file[one or "/"].attrs}) for one in above if (of := known[one]) is not None)
    return len(above) < len(links) or file.userblock_size > 0 or any(found - of for of, found in more)


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
        _core.reserve(raw.fileno(), 0, os.fstat(raw.fileno()).st_size)
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
