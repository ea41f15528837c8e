"""Checks of the arguments of a distributed program: what ranks have alike, and what is written in place."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dace_redist.redistribution.arrays import ArrayView

if TYPE_CHECKING:
    from dace_redist.transformations.distribute.runtime import DistributedProgram, DistributedTensor


def check_in_place(tensor: DistributedTensor, array: Any) -> None:
    """Raise an error unless rank 0's whole array can hold, and show, what the program writes to it."""
    plain = isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray) and array.flags.writeable
    if not plain or array.dtype.newbyteorder("=") != tensor.dtype:
        kind, dtype = type(array).__name__, getattr(array, "dtype", "numbers")
        raise ValueError(
            f"the program writes {tensor.name} in place: pass a writeable NumPy array of {tensor.dtype} on rank 0, got "
            f"{'' if plain else 'a read-only or other object, '}{kind} of {dtype}"
        )


def shared_values(program: DistributedProgram, local: Mapping[str, Any]) -> dict[str, Any]:
    """Return what all ranks have alike: scalars, and samples of the closure's arrays."""
    closure = program.recipe.closure.items()
    values = {f"the array {name.removeprefix('__g_')}": sample_of(np.asarray(whole)).hex() for name, whole in closure}
    for name, dtype in program.scalars.items():
        try:
            values[name] = np.asarray(local[name], dtype).ravel().tolist()
        except Exception:  # another error follows
            values[name] = local.get(name)
    return values


def sample_of(array: npt.NDArray[Any]) -> bytes:
    """Return a checksum of some elements, the same for equal arrays on all ranks."""
    step = max(1, array.size // 32) | 1  # odd, not to keep to one column
    return hashlib.blake2b(array.flat[::step].tobytes(), digest_size=8).digest()


def check_apart(arrays: Mapping[str, ArrayView], written: Collection[str]) -> None:
    """Raise an error if an array that is written in place shares memory with another one."""
    for name in written:
        for other, array in arrays.items():
            if other != name and arrays[name].device == array.device and arrays[name].overlaps(array):
                raise ValueError(f"run: {name} is written in place, but shares memory with {other}; pass a copy")
