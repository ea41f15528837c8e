"""Files of NumPy, ``.npy``."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist.io.stored import (
    MIN_CALL_BYTES,
    Layout,
    NewFile,
    Slices,
    StoredArray,
    min_run_of,
    raw_file,
    replace_each,
    run_axis,
    temporary,
    transfer_box,
)

open_new, commit = raw_file, replace_each


def open_array(path: str, name: str | None) -> StoredArray:
    """Return the array of a file."""
    _check_no_name(name)
    try:
        mapped = np.lib.format.open_memmap(path, mode="r")  # also checks the length of the file
    except ValueError as error:
        raise ValueError(f"must be a complete .npy file with elements of fixed size: {error}") from error
    backwards = not mapped.flags.c_contiguous
    offset, mapped = mapped.offset, mapped.T if backwards else mapped
    file = open(path, "rb", buffering=0)
    unit, dtype = (1,) * mapped.ndim, mapped.dtype.newbyteorder("=")
    layout = Layout(mapped.shape, dtype, unit, backwards, min_run_of(file))

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


def create(path: str, layouts: Mapping[str | None, Layout], storage: Mapping[str, Any]) -> list[NewFile]:
    """Make a file with an array whose elements are to be written."""
    ((name, layout),) = layouts.items() if len(layouts) == 1 else [(", ".join(map(str, layouts)), None)]
    _check_no_name(name)
    assert layout is not None
    if set(storage) - {"fortran_order"}:
        raise TypeError(f"a .npy file takes fortran_order and no other arguments, got {', '.join(storage)}")
    if os.path.isdir(path):
        raise ValueError(f"path must be a file, but {path!r} is a folder")
    shape, backwards = layout.shape, bool(storage.get("fortran_order", False)) and len(layout.shape) > 1
    header = {"shape": shape, "fortran_order": backwards, "descr": np.lib.format.dtype_to_descr(layout.dtype)}
    with temporary(path) as made, open(made, "xb") as file:
        np.lib.format.write_array_header_2_0(file, header)
        offset = file.tell()
        file.truncate(offset + math.prod(shape) * layout.dtype.itemsize)
        stored = dataclasses.replace(
            layout, shape=shape[::-1] if backwards else shape, reversed=backwards, min_run=min_run_of(file)
        )
    return [NewFile(made, path, None, stored, offset)]


def _check_no_name(name: str | None) -> None:
    if name is not None:
        raise ValueError(
            f"a .npy file holds one array, which has no name, got name={name!r}: name a folder for several"
        )
