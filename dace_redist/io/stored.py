"""Arrays in files, whatever the format. Start reading at: StoredArray."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.mpi.collective import failure_kind

_HDF5 = dict.fromkeys((".h5", ".hdf5", ".hdf", ".he5", ".nc", ".nc4"), "hdf5")
_SAFETENSORS = dict.fromkeys((".safetensors", ".json"), "safetensors")
#: Modules of the formats, by the ending of a file's name.
FORMATS = {".npy": "npy", **_HDF5, ".zarr": "zarr", **_SAFETENSORS, "": "npy"}

#: Minimum bytes of a contiguous run that is read or written by a system call of its own.
MIN_CALL_BYTES = _core.min_run_bytes

Slices = tuple[slice, ...]

#: Arguments by which a format stores an array, and those of several arrays by name.
Storage = Mapping[str, Any]
Storages = Mapping[str | None, Storage]


@dataclasses.dataclass(frozen=True)
class Layout:
    """
    Layout of an array in a file.

    :param shape: Extents in the order of storage, the axis of the longest stride first.
    :param dtype: Element type.
    :param unit: Extents of its chunks, which are read and written as a whole; ones if there are none.
    :param reversed: True if the order of storage is the reverse of that of the array's axes (Fortran order).
    :param min_run: Minimum bytes of the contiguous runs of a part that its rank reads or writes without an exchange.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    unit: tuple[int, ...]
    reversed: bool = False
    min_run: int = dataclasses.field(default=_core.max_run_bytes, compare=False, repr=False)

    @property
    def order(self) -> slice:
        """Index that turns a tuple with an entry per axis from the order of storage to that of the axes, or back."""
        return slice(None, None, -1 if self.reversed else 1)


@dataclasses.dataclass
class StoredArray:
    """
    Array in an open file.

    :param transfer: Reads a box, in the order of storage, into a C-order array of its shape; or writes it from one.
    :param close: Closes the file. Further calls do nothing.
    :param path: File whose data ``flush`` brings to the disk, that of all its arrays.
    """

    layout: Layout
    transfer: Callable[[Slices, npt.NDArray[Any]], None]
    close: Callable[[], None] = lambda: None
    flush: Callable[[], None] = lambda: None
    path: str = ""


@dataclasses.dataclass(frozen=True)
class NewArray:
    """
    Array to be written, in a file or folder that then replaces an old one.

    :param path: The file or folder, beside the old one.
    :param name: Name of the array in the file.
    :param offset: Position of the first element, in bytes, if elements follow one another in the order of storage.
    :param one_writer: True if only one rank can write.
    :param commit: Replaces the old file, on the rank that made the new one; None elsewhere, and if another array does.
    """

    path: str
    name: str | None
    layout: Layout
    offset: int = 0
    one_writer: bool = False
    commit: Callable[[], None] | None = None


@dataclasses.dataclass(frozen=True)
class Description:
    """
    Properties of an array in a file, besides shape and element type.

    :param format: Format, and its version: only there ``own`` has a meaning.
    :param chunks: Extents of its chunks; None if there are none.
    :param attributes: Attributes by name.
    :param groups: Attributes of the groups that it is in, the outermost first.
    :param dimension_names: Names of its axes, or None for those without one.
    :param fill_value: Value of chunks that are not there; None if undefined.
    :param missing: Value of elements without data, the attribute ``_FillValue`` of netCDF and xarray; None: none.
    :param gzip: Level of gzip, 0 for no compression; None for another compression.
    :param own: Arguments of :func:`dace_redist.save` that keep all else.
    """

    format: str
    chunks: tuple[int, ...] | None = None
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    groups: tuple[Mapping[str, Any], ...] = ()
    dimension_names: tuple[str | None, ...] | None = None
    fill_value: Any = None
    missing: Any = None
    gzip: int | None = None
    own: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def new_file(
    files: contextlib.ExitStack,
    path: str,
    *folder: Any,
    discard: Callable[[_core.NewFile], object] = _core.NewFile.discard,
) -> _core.NewFile:
    """Make an empty file, or folder, that is to replace another, until then for the duration of a context."""
    made = _core.NewFile(os.fsencode(path), *folder)
    files.callback(discard, made)
    return made


def leftovers(made: Iterable[NewArray]) -> list[str]:
    """Return paths of other new files in the place of these: killed programs left them, or others write them."""
    own, found = {os.path.abspath(new.path) for new in made}, set()
    for folder, name in map(os.path.split, own):
        begin = name.rsplit(".", 2)[0]
        beside = [one for one in os.listdir(folder) if one.startswith(begin)]
        matching = (one for one in beside if re.fullmatch(r"\.[0-9a-f]+\.tmp", one[len(begin) :]))
        found |= {os.path.join(folder, one) for one in matching}
    return sorted(found - own)


def open_same(form: Any, path: str, name: str | None, layout: Layout) -> StoredArray:
    """Open an array that another rank has found, to be read."""
    stored: StoredArray = form.open_array(path, name)
    if stored.layout != layout:
        stored.close()
        raise ValueError(f"ranks see different arrays in {path!r}: {layout} and, on another, {stored.layout}")
    return stored


class InvalidNameError(ValueError):
    """Name that no array can have."""


def name_parts(name: str | None) -> tuple[str, ...]:
    """
    Return the parts of an array's name: those of its groups, or folders, and its own; none for None.

    A slash ahead, which HDF5 and netCDF may write, has no meaning.

    :raises InvalidNameError: If a part is empty, ``.`` or ``..``, or has a null character.
    """
    parts = () if name is None else tuple(name.removeprefix("/").split("/"))
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise InvalidNameError(
            "name must have parts that are separated by single slashes, such as 'group/x', none of them '.' or '..', "
            f"without null characters, got {name!r}"
        )
    return parts


def new_names(names: Iterable[str | None], reserved: str) -> dict[str | None, str | None]:
    """
    Check names of arrays to be written; return each without a slash ahead.

    :param reserved: Regular expression of parts that a format has for itself.
    :raises ValueError: If a name is invalid or has a backslash, or two are one array, or one below the other.
    """
    found = {name: name_parts(name) for name in names}
    for name, parts in found.items():
        if any("\\" in part or re.fullmatch(reserved, part, re.DOTALL) for part in parts):
            raise ValueError(f"name must have no backslash and no part that this format has for itself, got {name!r}")
    for (above, first), (below, second) in itertools.pairwise(sorted((parts, name) for name, parts in found.items())):
        if below[: len(above)] == above:
            raise ValueError(f"names must be of different arrays, none below another, got {first!r} and {second!r}")
    return {name: "/".join(parts) or None for name, parts in found.items()}


def format_of(path: Any) -> tuple[str, Any]:
    """Return a path as text, and its format, a module or an object; errors as of :func:`dace_redist.load`."""
    try:
        path = os.fsdecode(path)
    except TypeError as error:
        raise TypeError(f"path must be the name of a file: {error}") from None
    if not path:
        raise ValueError("path must be the name of a file or folder, got ''")
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        endings = ", ".join(filter(None, FORMATS))
        raise ValueError(f"the name of a file must end in one of {endings}, that of a folder in none, got {path!r}")
    try:
        module = importlib.import_module(f"dace_redist.io.{FORMATS[ending]}")
    except ModuleNotFoundError as error:
        raise RuntimeError(f'{ending} files need {error.name}: pip install "dace-redist[files]"') from error
    return path, module.Format() if hasattr(module, "Format") else module


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Name a file in errors of the block that do not."""
    try:
        yield
    except Exception as error:
        if path in str(error):
            raise
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror, path) from error
        raise failure_kind(error)(f"{path!r}: {error}") from error


class StoredInfo(NamedTuple):
    """Shape and element type of an array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def inspect_file(path: str | bytes | os.PathLike[str]) -> dict[str | None, StoredInfo]:
    """
    Return names, shapes and element types of the arrays in a file. Not collective.

    :param path: File or folder, as for :func:`load`.
    :return: An entry for each array that :func:`load` can read, by ``name``: None in a ``.npy`` file, and for a Zarr
        array at the root.
    :raises OSError: If the file cannot be opened.
    :raises ValueError: If it is damaged, or has an unknown ending.
    :raises RuntimeError: If h5py or zarr is missing.
    """
    path, form = format_of(path)
    found = {}
    with naming(path):
        for name in form.names(path):
            with (
                contextlib.suppress(TypeError, InvalidNameError),
                contextlib.closing(form.open_array(path, name)) as stored,
            ):
                found[name] = StoredInfo(stored.layout.shape[stored.layout.order], stored.layout.dtype)
    return found


def min_run_of(file: io.IOBase) -> int:
    """Return :attr:`Layout.min_run` of an open file: parallel file systems have large blocks."""
    return max(MIN_CALL_BYTES, os.fstat(file.fileno()).st_blksize)


def run_axis(shape: tuple[int, ...], box: Slices) -> int:
    """Return the axis from which on the elements of a box are contiguous in a C-order array."""
    return next((i for i in reversed(range(len(shape))) if box[i].stop - box[i].start < shape[i]), 0)


def raw_array(
    file: io.FileIO, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, backwards: bool = False
) -> StoredArray:
    """Return the array of an open file, to be read, whose elements follow one another."""
    backwards = backwards and sum(extent > 1 for extent in shape) > 1
    shape, nbytes = shape[::-1] if backwards else shape, math.prod(shape) * dtype.itemsize
    min_run = min_run_of(file) if nbytes > min_run_of(file) else 0  # a short array has the blocks of one run
    layout = Layout(shape, dtype.newbyteorder("="), (1,) * len(shape), backwards, min_run)
    if os.fstat(file.fileno()).st_size < offset + nbytes:
        file.close()
        raise ValueError(f"the file must have the {offset + nbytes} bytes that its header says")

    def read(box: Slices, out: npt.NDArray[Any]) -> None:
        run = out.itemsize * math.prod(out.shape[run_axis(shape, box) :])
        steps = any(part.step not in (1, None) for part in box)
        if steps or not dtype.isnative or run < min(MIN_CALL_BYTES, out.nbytes):
            out[...] = np.memmap(file, dtype, "r", offset, shape)[box]
        else:  # not through a mapping, where a failure of the disk ends the process
            _core.transfer_box(file.fileno(), True, shape, [one.start for one in box], out, offset)

    return StoredArray(layout, read, file.close)


def raw_file(new: NewArray) -> StoredArray:
    """Return a file to be written whose elements follow one another."""
    file = open(new.path, "r+b", buffering=0)

    def write(box: Slices, array: npt.NDArray[Any]) -> None:
        part = np.asarray(array)
        _core.transfer_box(file.fileno(), False, new.layout.shape, [one.start for one in box], part, new.offset)

    return StoredArray(new.layout, write, file.close, lambda: os.fsync(file.fileno()), new.path)
