"""Files of NumPy, ``.npy``."""

from __future__ import annotations

import ast
import contextlib
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.io.stored import (
    MIN_CALL_BYTES,
    Layout,
    NewArray,
    Slices,
    StoredArray,
    min_run_of,
    new_file,
    raw_file,
    run_axis,
    transfer_box,
)

RESERVED, open_new = "", raw_file


def open_array(path: str, name: str | None) -> StoredArray:
    """Return the array of a file."""
    _check_no_name(name)
    try:
        kind, backwards, shape, offset = _core.read_npy_header(os.fsencode(path))
        dtype = np.lib.format.descr_to_dtype(ast.literal_eval(kind))
        if dtype.hasobject:
            raise ValueError("objects of Python have no fixed size")
        # also checks the length of the file
        mapped = np.memmap(path, dtype, "r", offset, tuple(shape), "F" if backwards else "C")
    except (ValueError, TypeError, SyntaxError) as error:
        raise ValueError(f"must be a complete .npy file with elements of fixed size: {error}") from error
    backwards = not mapped.flags.c_contiguous
    mapped = mapped.T if backwards else mapped
    file = open(path, "rb", buffering=0)
    layout = Layout(mapped.shape, dtype.newbyteorder("="), (1,) * mapped.ndim, backwards, min_run_of(file))

    def read(box: Slices, out: npt.NDArray[Any]) -> None:
        run = out.itemsize * math.prod(out.shape[run_axis(layout.shape, box) :])
        steps = any(part.step not in (1, None) for part in box)
        if steps or not mapped.dtype.isnative or run < min(MIN_CALL_BYTES, out.nbytes):
            out[...] = mapped[box]
        else:  # not through the mapping, where a failure of the disk ends the process
            transfer_box(file, layout, box, out, offset, reading=True)

    return StoredArray(layout, read, file.close)


def names(path: str) -> list[str | None]:  # noqa: ARG001
    """Return the only name of the array of a file, which is none."""
    return [None]


def create(
    path: str, layouts: Mapping[str | None, Layout], storage: Mapping[str, Any], files: contextlib.ExitStack
) -> list[NewArray]:
    """Make a file with an array whose elements are to be written."""
    _check_no_name(", ".join(map(str, layouts)) if len(layouts) > 1 else next(iter(layouts)))
    return [new_array(path, layout, storage, files) for layout in layouts.values()]


def new_array(path: str, layout: Layout, storage: Mapping[str, Any], files: contextlib.ExitStack) -> NewArray:
    """Make a file of an array whose elements are to be written."""
    if set(storage) - {"fortran_order"}:
        raise TypeError(f"a .npy file takes fortran_order and no other arguments, got {', '.join(storage)}")
    shape, backwards = layout.shape, bool(storage.get("fortran_order", False)) and len(layout.shape) > 1
    file, nbytes = new_file(files, path), math.prod(shape) * layout.dtype.itemsize
    kind = repr(np.lib.format.dtype_to_descr(layout.dtype))
    offset = _core.write_npy_header(file.path, kind, backwards, shape, nbytes)
    with open(file.path, "rb") as made:
        stored = Layout(shape[::-1] if backwards else shape, layout.dtype, layout.unit, backwards, min_run_of(made))
    return NewArray(os.fsdecode(file.path), None, stored, offset, commit=file.replace)


def _check_no_name(name: str | None) -> None:
    if name is not None:
        raise ValueError(
            f"a .npy file holds one array, which has no name, got name={name!r}: name a folder for several"
        )
