"""Files of NumPy, ``.npy``."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist.io.stored import (
    Layout,
    NewFile,
    Slices,
    StoredArray,
    raw_file,
    replace_each,
    run_axis,
    temporary,
    transfer_box,
)

#: Minimum bytes of a contiguous run that is read by a system call of its own.
_MIN_CALL_BYTES = 16 << 10

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
    layout = Layout(mapped.shape, mapped.dtype.newbyteorder("="), (1,) * mapped.ndim, backwards)
    file = open(path, "rb", buffering=0)

    def read(box: Slices, out: npt.NDArray[Any]) -> None:
        run = out.itemsize * math.prod(out.shape[run_axis(layout.shape, box) :])
        steps = any(part.step not in (1, None) for part in box)
        if steps or not mapped.dtype.isnative or run < min(_MIN_CALL_BYTES, out.nbytes):
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
    stored = Layout(shape[::-1] if backwards else shape, layout.dtype, layout.unit, backwards)
    return [NewFile(made, path, None, stored, offset)]


def _check_no_name(name: str | None) -> None:
    if name is not None:
        raise ValueError(
            f"a .npy file holds one array, which has no name, got name={name!r}: name a folder for several"
        )
