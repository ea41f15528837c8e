"""Arrays in files, whatever the format. Start reading at: StoredArray."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.mpi.collective import failure_kind

#: Modules of the formats, by the ending of a file's name.
FORMATS = {".npy": "npy", ".h5": "hdf5", ".hdf5": "hdf5", ".hdf": "hdf5", ".zarr": "zarr", "": "folder"}

#: Minimum bytes of a contiguous run that is read or written by a system call of its own.
MIN_CALL_BYTES = _core.min_run_bytes

Slices = tuple[slice, ...]


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
    :param close: Closes the file; after writing, the data is on the disk. Further calls do nothing.
    """

    layout: Layout
    transfer: Callable[[Slices, npt.NDArray[Any]], None]
    close: Callable[[], None] = lambda: None


@dataclasses.dataclass(frozen=True)
class NewFile:
    """
    File, or folder of a Zarr array, that replaces another when ranks have written its array.

    :param path: Temporary file, beside the one that it replaces.
    :param final: File that it replaces.
    :param name: Name of the array in the file.
    :param offset: Position of the first element, in bytes, if elements follow one another in the order of storage.
    :param one_writer: True if only one rank can write.
    """

    path: str
    final: str
    name: str | None
    layout: Layout
    offset: int = 0
    one_writer: bool = False

    def replace(self) -> None:
        """Put the complete file in the place of the old one."""
        final = os.path.realpath(self.final)
        if os.path.isdir(final):  # cannot be replaced in one step
            os.rename(final, f"{self.path}.old")
            try:
                os.rename(self.path, final)
            except OSError:
                os.rename(f"{self.path}.old", final)
                raise
            remove(f"{self.path}.old")
        else:
            with contextlib.suppress(OSError):
                shutil.copymode(final, self.path)
            os.replace(self.path, final)


def format_of(path: str) -> Any:
    """Return the module of a file's format; errors as of :func:`dace_redist.load`."""
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        endings = ", ".join(filter(None, FORMATS))
        raise ValueError(f"the name of a file must end in one of {endings}, that of a folder in none, got {path!r}")
    try:
        return importlib.import_module(f"dace_redist.io.{FORMATS[ending]}")
    except ModuleNotFoundError as error:
        raise RuntimeError(f'{ending} files need {error.name}: pip install "dace-redist[files]"') from error


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


@contextlib.contextmanager
def temporary(path: str) -> Iterator[str]:
    """Give the name of a new hidden file beside another; it is removed if the block fails."""
    folder, name = os.path.split(path)
    made = os.path.join(folder, f".{name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield made
    except BaseException:
        discard(made)
        raise


def remove(path: str) -> None:
    """Remove a file or folder, if it exists."""
    with contextlib.suppress(OSError):
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def discard(path: str) -> None:
    """Remove what a failure left; zarr's threads may make it again for a while after one of them has failed."""
    gone = 0
    for _ in range(200):
        remove(path)
        gone = 0 if os.path.lexists(path) else gone + 1
        if gone == 6:
            return
        time.sleep(0.05)


def create_each(names: Iterable[str | None], create: Callable[[str | None], NewFile]) -> list[NewFile]:
    """Make a file of its own for each array; none is left if one of them fails."""
    made: list[NewFile] = []
    try:
        for name in names:
            made.append(create(name))
    except BaseException:
        for new in made:
            discard(new.path)
        raise
    return made


def replace_each(made: Iterable[NewFile]) -> None:
    """Put complete files in the place of the old ones."""
    for new in made:
        new.replace()


def min_run_of(file: io.IOBase) -> int:
    """Return :attr:`Layout.min_run` of an open file: parallel file systems have large blocks."""
    return max(MIN_CALL_BYTES, os.fstat(file.fileno()).st_blksize)


def run_axis(shape: tuple[int, ...], box: Slices) -> int:
    """Return the axis from which on the elements of a box are contiguous in a C-order array."""
    return next((i for i in reversed(range(len(shape))) if box[i].stop - box[i].start < shape[i]), 0)


def transfer_box(
    file: io.FileIO, layout: Layout, box: Slices, array: npt.NDArray[Any], offset: int, reading: bool
) -> None:
    """
    Read or write a box of an array in an open file whose elements follow one another.

    :param array: C-order array of the box.
    :param offset: Position of the first element of the file's array, in bytes.
    """
    _core.transfer_box(file.fileno(), reading, layout.shape, [part.start for part in box], np.asarray(array), offset)


def raw_file(new: NewFile) -> StoredArray:
    """Return a file to be written whose elements follow one another."""
    file = open(new.path, "r+b", buffering=0)

    def write(box: Slices, array: npt.NDArray[Any]) -> None:
        transfer_box(file, new.layout, box, array, new.offset, reading=False)

    def close() -> None:
        if not file.closed:
            with file:
                os.fsync(file.fileno())

    return StoredArray(new.layout, write, close)
