"""Arrays in GPU memory, and new arrays of any library."""

from __future__ import annotations

import math
import os
import sys
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist.native import device
from dace_redist.redistribution.arrays import array_view
from dace_redist.redistribution.shared_memory import empty_result


def _free_in(process: int, address: int) -> None:
    """Free GPU memory, except in a forked child: the GPU context belongs to its parent."""
    if os.getpid() == process:
        device.free(address)


class DeviceArray:
    """
    Array in the memory of the current GPU, in C order.

    It is the result of a redistribution on the GPU whose source is neither of CuPy nor of PyTorch. Other libraries
    access it by ``__cuda_array_interface__`` without a copy.

    :param shape: Shape, or the length of a vector.
    :param dtype: Type of the elements.
    :raises RedistributionError: If there is no GPU, or too little memory on it.
    :raises BuildError: If the library for GPUs cannot be built.
    """

    def __init__(self, shape: int | Sequence[int], dtype: npt.DTypeLike = np.float64) -> None:
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = np.dtype(dtype)
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize
        self._address = device.allocate(self.nbytes)
        weakref.finalize(self, _free_in, os.getpid(), self._address)

    @classmethod
    def from_numpy(cls, array: npt.NDArray[Any]) -> DeviceArray:
        """Copy an array to the GPU."""
        made = cls(array.shape, array.dtype)
        contiguous = np.ascontiguousarray(array)
        device.copy(made._address, contiguous.ctypes.data, made.nbytes)
        return made

    def to_numpy(self) -> npt.NDArray[Any]:
        """Copy the array to main memory, after all work enqueued on the GPU."""
        made = np.empty(self.shape, self.dtype)
        device.copy(made.ctypes.data, self._address, self.nbytes)
        return made

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data, typestr = (self._address, False), self.dtype.str
        return {"shape": self.shape, "typestr": typestr, "data": data, "strides": None, "version": 3, "stream": None}

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype})"


def new_array(sample: Any, shape: tuple[int, ...], dtype: np.dtype[Any], device: str, shared: bool = False) -> Any:
    """
    Return a new array on a device: of the library of ``sample`` if that is PyTorch or CuPy and lies there, else a
    :class:`DeviceArray`, or an array of NumPy.

    :param shared: True for node-shared memory, see :func:`empty_result`.
    """
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(sample, torch.Tensor) and array_view("array", sample).device == device:
        return torch.empty(shape, dtype=getattr(torch, dtype.name), device=sample.device)
    if cupy is not None and isinstance(sample, cupy.ndarray) and device == "gpu":
        return cupy.empty(shape, dtype)
    return DeviceArray(shape, dtype) if device == "gpu" else empty_result(shape, dtype, shared)
