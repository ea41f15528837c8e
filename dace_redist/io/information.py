"""Function :func:`inspect_file`."""

from __future__ import annotations

import contextlib
import os
from typing import Any, NamedTuple

import numpy as np

from dace_redist.io.stored import format_of, naming, path_of


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
    path, found = path_of(path), {}
    with naming(path):
        form = format_of(path)
        for name in form.names(path):
            with contextlib.suppress(TypeError), contextlib.closing(form.open_array(path, name)) as stored:
                found[name] = StoredInfo(stored.layout.shape[stored.layout.order], stored.layout.dtype)
    return found
