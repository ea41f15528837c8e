"""New arrays: in node-shared memory, in GPU memory, and of any library."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.integers import AnyInt, AnyInts, checked_nbytes, integers
from dace_redist.native import device as device_memory
from dace_redist.redistribution.arrays import array_view
from dace_redist.transform import element_type


def shared_empty(shape: AnyInt | AnyInts, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """
    Return a new C-order array in node-shared memory. Not collective.

    As the source or target of a redistribution it is moved with one copy; short runs from such a source to an ordinary
    target take two. Node-aware strategies detect such arrays; ranks may mix them with ordinary ones. The memory is
    released with the array. From 2 MiB it lies in huge pages, if available, and is committed at allocation, not at the
    first write. A forked process shares the array with its parent. DaCe treats the array as a view: to pass it to a
    compiled program, set DaCe's option ``compiler.allow_view_arguments``.

    :param shape: Shape of this rank's local array.
    :param dtype: Type of the elements.
    :return: The array, not initialised. If node-shared memory is exhausted, an ordinary array, which moves more
        slowly.
    :raises ValueError: If an extent is negative.
    :raises TypeError: If the shape does not consist of integers, or the type has no fixed size, as ``object``.
    :warns RuntimeWarning: If node-shared memory is exhausted. Reports the bytes requested and available.
    """
    element = element_type(dtype)
    extents = integers("shape", [shape] if isinstance(shape, int | np.integer) else shape)
    if any(extent < 0 for extent in extents):
        raise ValueError(f"shared_empty: extents must be 0 or more, got {extents}")
    try:
        return _shared(extents, element)
    except ValueError as error:
        warnings.warn(f"shared_empty: {error}; using ordinary memory", RuntimeWarning, stacklevel=2)
        return np.empty(extents, element)


@overload
def node_shared_memory() -> contextlib.AbstractContextManager[None]: ...
@overload
def node_shared_memory(on: bool) -> None: ...
def node_shared_memory(on: bool | None = None) -> contextlib.AbstractContextManager[None] | None:
    """
    Let NumPy allocate in node-shared memory, as :func:`shared_empty` does.

    This applies to all new arrays of 64 KiB or more in the current context; another thread or ``contextvars`` context
    has its own setting. Such arrays keep their memory for their lifetime. A forked process shares them with its parent,
    instead of having copies. If node-shared memory is exhausted, arrays lie in ordinary memory.

    :param on: True to switch it on, False to switch it off. Default: return a context manager.
    :return: Without ``on`` a context manager, which restores the previous setting.
    """
    if on is not None and not isinstance(on, bool):
        raise TypeError(f"node_shared_memory: on must be True or False, got {on!r}")
    if on is None:
        return _node_shared_memory()
    _core.set_allocator(_core.node_shared_allocator if on else None)
    return None


@contextlib.contextmanager
def _node_shared_memory() -> Iterator[None]:
    before = _core.set_allocator(_core.node_shared_allocator)
    try:
        yield
    finally:
        _core.set_allocator(before)


def _free_in(process: int, address: int) -> None:
    """Free GPU memory, except in a forked child: the GPU context belongs to its parent."""
    if os.getpid() == process:
        device_memory.free(address)


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
        self._address = device_memory.allocate(self.nbytes)
        weakref.finalize(self, _free_in, os.getpid(), self._address)

    @classmethod
    def from_numpy(cls, array: npt.NDArray[Any]) -> DeviceArray:
        """Copy an array to the GPU."""
        made = cls(array.shape, array.dtype)
        contiguous = np.ascontiguousarray(array)
        device_memory.copy(made._address, contiguous.ctypes.data, made.nbytes)
        return made

    def to_numpy(self) -> npt.NDArray[Any]:
        """Copy the array to main memory, after all work enqueued on the GPU."""
        made = np.empty(self.shape, self.dtype)
        device_memory.copy(made.ctypes.data, self._address, self.nbytes)
        return made

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data, typestr = (self._address, False), self.dtype.str
        return {"shape": self.shape, "typestr": typestr, "data": data, "strides": None, "version": 3, "stream": None}

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype})"


def new_array(
    sample: Any, shape: tuple[int, ...], dtype: np.dtype[Any], device: str, shared: bool = False, zeros: bool = False
) -> Any:
    """
    Return a new array on a device: of the library of ``sample`` if that is PyTorch or CuPy and lies there, else a
    :class:`DeviceArray`, or an array of NumPy.

    :param shared: True for node-shared memory, if the array is of NumPy and large enough, and that is not exhausted.
    :param zeros: True for an array of zeros; else its elements are undefined.
    """
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    name = "zeros" if zeros else "empty"
    if torch is not None and isinstance(sample, torch.Tensor) and array_view("array", sample).device == device:
        return getattr(torch, name)(shape, dtype=getattr(torch, dtype.name), device=sample.device)
    if cupy is not None and isinstance(sample, cupy.ndarray) and device == "gpu":
        return getattr(cupy, name)(shape, dtype)
    if device == "gpu":
        return DeviceArray.from_numpy(np.zeros(shape, dtype)) if zeros else DeviceArray(shape, dtype)
    if shared and math.prod(shape) * dtype.itemsize >= _core.min_shared_bytes:
        with contextlib.suppress(ValueError):
            made = _shared(shape, dtype)
            if zeros:
                made[...] = np.zeros((), dtype)  # also of bytes and texts
            return made
    return getattr(np, name)(shape, dtype)


def _shared(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    nbytes = checked_nbytes("array", shape, dtype.itemsize)
    array: npt.NDArray[Any] = np.ndarray(shape, dtype, _core.shared_bytes(nbytes))
    return array
