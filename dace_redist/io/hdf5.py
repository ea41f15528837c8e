"""Datasets of HDF5 files, by h5py, which needs no MPI."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import h5py
import numpy.typing as npt

from dace_redist.io.stored import Box, Layout, NewFile, StoredArray, raw_file, temporary
from dace_redist.transform import element_type

#: Name of a dataset that is written without one.
_DEFAULT_NAME = "data"

commit = NewFile.replace


def open_array(path: str, name: str | None) -> StoredArray:
    """Return a dataset of a file; without a name the only one."""
    file = h5py.File(path, "r")
    try:
        dataset = _found(file, path, name)
        if dataset.shape is None:
            raise ValueError(f"dataset {dataset.name!r} of {path!r} has no elements and no shape")
        dtype = element_type(dataset.dtype).newbyteorder("=")
        layout = Layout(dataset.shape, dtype, dataset.chunks or (1,) * dataset.ndim)
    except BaseException:
        file.close()
        raise
    return StoredArray(layout, lambda box, out: dataset.read_direct(out, box), file.close)


def _found(file: Any, path: str, name: str | None) -> Any:
    if name is not None and isinstance(file.get(name), h5py.Dataset):
        return file[name]
    names: list[str] = []
    file.visititems(lambda one, item: names.append(one) if isinstance(item, h5py.Dataset) else None)
    if name is None and len(names) == 1:
        return file[names[0]]
    raise ValueError(
        f"name must be one of the datasets of {path!r}: {', '.join(sorted(names)) or 'none'}; got {name!r}"
    )


def create(path: str, name: str | None, layout: Layout, storage: Mapping[str, Any]) -> NewFile:
    """Make a file with a dataset whose elements are to be written, and with all else that the old file holds."""
    name = name or _DEFAULT_NAME
    with temporary(path) as made:
        if os.path.lexists(path) and _holds_others(path, name):
            shutil.copy(path, made)
        with _changed(made) as file:
            if name in file:
                if not isinstance(file[name], h5py.Dataset):
                    raise ValueError(f"name must be that of a dataset, but {name!r} is a group of {path!r}")
                del file[name]
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            if not storage:  # all its space is there before it is written
                plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
                plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            dataset = file.create_dataset(name, layout.shape, layout.dtype, dcpl=plist, **storage)
            offset = None if dataset.chunks else dataset.id.get_offset()
            layout = Layout(layout.shape, layout.dtype, dataset.chunks or layout.unit)
    return NewFile(made, path, name, layout, offset or 0, one_writer=offset is None)


def _holds_others(path: str, name: str) -> bool:
    """Check for anything in a file besides a dataset and the groups on the way to it."""
    names, wanted = [""], name.strip("/")
    with h5py.File(path, "r") as file:
        file.visit(names.append)
        above = [one for one in names if f"{wanted}/".startswith(f"{one}/") or not one]
        return len(above) < len(names) or any(file[one or "/"].attrs for one in above if one != wanted)


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
    with _File(path, "r+" if os.path.exists(path) else "x+") as raw:
        with h5py.File(raw, "r+" if raw.seek(0, os.SEEK_END) else "w") as file:
            yield file
        if raw.failure is not None:
            raise raw.failure
        os.fsync(raw.fileno())


def open_new(new: NewFile) -> StoredArray:
    """Return a file that :func:`create` made, to be written."""
    if not new.one_writer:
        return raw_file(new)
    opened = contextlib.ExitStack()
    dataset = opened.enter_context(_changed(new.path))[new.name]

    def write(box: Box, part: npt.NDArray[Any]) -> None:
        dataset.write_direct(part, None, box)

    return StoredArray(new.layout, write, opened.close)
