"""Views of arrays of any library. Start reading at: array_view."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import hashlib
import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dace_redist.redistribution.arrays import dlpack
from dace_redist.redistribution.arrays.locks import is_locked

#: Devices of an array, in the order of ``dr_memory``.
DEVICES = ("cpu", "gpu")
#: Their names in messages.
PLACES = {"cpu": "in main memory", "gpu": "on the GPU"}
#: Limit of NumPy's search for common elements, some milliseconds.
_MAX_OVERLAP_WORK = 10_000


@dataclasses.dataclass(frozen=True)
class ArrayView:
    """
    Address and layout of an array.

    :param address: Address of the first element; 0 for an empty array.
    :param strides: Strides in bytes.
    :param stream: Stream that orders accesses, a ``cudaStream_t`` as a number; None if the array does not name one.
    :param owner: The array, which must live as long as the view.
    """

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]
    writeable: bool
    device: str
    stream: int | None
    owner: Any

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def is_plain(self) -> bool:
        """True if all strides are non-negative multiples of the element size."""
        return self.size == 0 or all(
            extent == 1 or (stride >= 0 and stride % max(self.dtype.itemsize, 1) == 0)
            for extent, stride in zip(self.shape, self.strides, strict=True)
        )

    @property
    def in_c_order(self) -> bool:
        """True for a contiguous array in C order."""
        expected = c_strides(self.shape, self.dtype.itemsize)
        pairs = zip(self.shape, self.strides, expected, strict=True)
        return self.size == 0 or all(extent == 1 or given == wanted for extent, given, wanted in pairs)

    def as_numpy(self) -> npt.NDArray[Any]:
        """Return a NumPy view of an array in main memory."""
        if isinstance(self.owner, np.ndarray):
            return self.owner
        if self.size == 0:
            return np.empty(self.shape, self.dtype)
        first, end = self.bounds
        memory = (ctypes.c_char * (end - first)).from_address(first)
        memory._owner = self.owner  # type: ignore[attr-defined]  # lives as long as the array
        buffer = memoryview(memory).cast("B")
        array: npt.NDArray[Any] = np.ndarray(self.shape, self.dtype, buffer, self.address - first, self.strides)
        array.setflags(write=self.writeable)
        return array

    def copied(self) -> ArrayView:
        """Return the view of a new C-order copy of an array in main memory."""
        return array_view("array", self.as_numpy().copy("C"))

    @property
    def overlaps_itself(self) -> bool:
        """True if two elements share memory, as those of a broadcast array."""
        pairs = zip(self.shape, self.strides, strict=True)
        axes = sorted((abs(stride), extent) for extent, stride in pairs if extent > 1)
        end = itemsize = self.dtype.itemsize  # of the elements along the axes so far
        for stride, extent in axes if self.size else ():
            if stride < itemsize:
                return True
            if stride < end:  # elements may still lie in the gaps between others
                steps = (np.arange(extent) * stride for stride, extent in axes)
                offsets = np.sort(functools.reduce(np.add.outer, steps), axis=None)
                return bool((np.diff(offsets) < itemsize).any())
            end += (extent - 1) * stride
        return False

    def check_writeable(self, name: str) -> None:
        """Raise a ValueError if it cannot be a target."""
        if not self.writeable:
            remedy = "pass a writeable array"
            if is_locked(self.owner):
                remedy = "a started transfer uses it: call wait() of its request first, or pass another array"
            raise ValueError(f"{name} is read-only: {remedy}")
        if self.overlaps_itself:
            raise ValueError(
                f"{name} has elements that share memory, by its shape {self.shape} and strides {self.strides}, as "
                "a broadcast array has: pass a copy"
            )

    def is_same_as(self, other: ArrayView) -> bool:
        """True if both are all of the same elements in the same order."""
        return (self.address, self.shape, self.strides) == (other.address, other.shape, other.strides)

    def overlaps(self, other: ArrayView) -> bool:
        """True if two arrays share elements, or might: on a GPU, or where that takes long to find out."""
        (lo, hi), (other_lo, other_hi) = self.bounds, other.bounds
        if not (lo < other_hi and other_lo < hi) or "gpu" in (self.device, other.device):
            return lo < other_hi and other_lo < hi
        try:
            return np.shares_memory(self.as_numpy(), other.as_numpy(), _MAX_OVERLAP_WORK)  # type: ignore[arg-type]
        except np.exceptions.TooHardError:
            return True

    @functools.cached_property
    def bounds(self) -> tuple[int, int]:
        """First address of the array and the one after its last."""
        if self.size == 0:
            return 0, 0
        first, last = reach(self.shape, self.strides)
        return self.address + first, self.address + last + self.dtype.itemsize


class Views(NamedTuple):
    """Views of a rank's arrays, one of each side of a tensor; None: the rank passes no array."""

    sources: list[ArrayView | None]
    targets: list[ArrayView | None]

    @staticmethod
    def name(side: str, number: int, lists: bool) -> str:
        """Return the name of an array in error messages."""
        return f"{side}[{number}]" if lists else side

    @classmethod
    def of(cls, array: Any, out: Any, count: int, lists: bool) -> Views:
        """Return the views of the arrays of a call with so many tensors."""
        sides = []
        for side, given in (("array", array), ("out", out)):
            if lists and given is not None and not isinstance(given, list | tuple):
                raise TypeError(f"{side} must be a list of arrays, as source and target are lists, got {given!r}")
            parts = given if lists and given is not None else [given] * count
            if len(parts) != count:
                raise ValueError(f"{side} must be a list of {count} arrays, one per tensor, got {len(parts)}")
            names = [cls.name(side, number, lists) for number in range(count)]
            sides.append([None if p is None else array_view(n, p) for n, p in zip(names, parts, strict=True)])
        return cls(*sides)

    def addresses(self) -> tuple[list[int | None], list[int | None]]:
        """Return the addresses of both sides."""
        sources, targets = ([None if view is None else view.address for view in side] for side in self)
        return sources, targets

    def plain(self) -> Views:
        """Return the views with C-order copies in place of arrays with irregular strides."""
        return Views(*([view if view is None or view.is_plain else view.copied() for view in side] for side in self))


def reach(counts: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """Return the lowest and the highest offset of strided elements from the first; there are some."""
    steps = [(count - 1) * stride for count, stride in zip(counts, strides, strict=True)]
    return sum(min(0, step) for step in steps), sum(max(0, step) for step in steps)


def c_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the strides, in bytes, of an array in C order."""
    strides = [itemsize] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        strides[i] = strides[i + 1] * max(1, shape[i + 1])
    return tuple(strides)


def is_foreign(array: Any) -> bool:
    """True for an array of a library other than NumPy; False for lists and None."""
    if isinstance(array, np.ndarray | list | None):
        return False
    try:
        return hasattr(array, "__cuda_array_interface__") or hasattr(array, "__dlpack__")
    except Exception:  # the attribute raises, as for a PyTorch tensor that requires a gradient: array_view reports it
        return True


def array_view(name: str, array: Any) -> ArrayView:
    """
    Return the view of an array of NumPy, CuPy, PyTorch, or with ``__cuda_array_interface__`` or ``__dlpack__``.

    :param name: Name of the array in error messages.
    :raises TypeError: If it is not an array, or a masked one, lies neither in main memory nor on a GPU, or does not
        provide its address.
    """
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):  # numpy.ma is imported by its first use
        raise TypeError(
            f"{name} is a masked array, whose mask would be lost: pass its filled() or data, its mask in another call"
        )
    if isinstance(array, np.ndarray):
        address, writeable = array.ctypes.data, array.flags.writeable
        return ArrayView(address, array.shape, array.dtype, array.strides, writeable, "cpu", None, array)
    try:
        return _library_view(name, array)
    except TypeError:
        raise
    except Exception as error:  # of any kind: what the array's library raises is an argument's error here
        raise TypeError(
            f"{name} must say where it lies by __cuda_array_interface__ or __dlpack__, but for {type(array).__name__} "
            f"that fails with {type(error).__name__}: {error}"
        ) from error


def _library_view(name: str, array: Any) -> ArrayView:
    if (torch := sys.modules.get("torch")) is not None and isinstance(array, torch.Tensor):
        return _torch_view(name, array, torch)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _interface_view(interface, array)
    if hasattr(array, "__dlpack__"):
        return _dlpack_view(name, array)
    instead = "take its local array" if hasattr(array, "distribution") else "convert other objects by np.asarray"
    raise TypeError(
        f"{name} must be an array of NumPy, CuPy or PyTorch, or have __cuda_array_interface__ or __dlpack__, got "
        f"{type(array).__name__}; {instead}"
    )


def _interface_view(interface: dict[str, Any], array: Any) -> ArrayView:
    """Return a view from the CUDA Array Interface, version 3 (Numba's documentation)."""
    dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
    address, read_only = interface["data"]
    strides = interface.get("strides")
    strides = c_strides(shape, dtype.itemsize) if strides is None else tuple(strides)
    return ArrayView(address or 0, shape, dtype, strides, not read_only, "gpu", interface.get("stream"), array)


def _torch_view(name: str, tensor: Any, torch: Any) -> ArrayView:
    if tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(f"{name} must lie in main memory or on a CUDA device, got a tensor on {tensor.device}")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a strided tensor, got layout {tensor.layout}: call to_dense() first")
    if tensor.is_conj() or tensor.is_neg():
        raise TypeError(f"{name} is a lazy conjugate or negative: call resolve_conj() or resolve_neg() first")
    if tensor.numel() and not tensor.data_ptr():
        raise TypeError(
            f"{name} is a {type(tensor).__name__}, which wraps another tensor: pass that, as from to_local() of a "
            "DTensor, and wait() of a collective's result"
        )
    dtype = _torch_dtype(name, tensor.dtype)
    strides = tuple(stride * dtype.itemsize for stride in tensor.stride())
    on_gpu = tensor.device.type == "cuda"
    stream = torch.cuda.current_stream(tensor.device).cuda_stream if on_gpu else None
    shape = tuple(tensor.shape)
    return ArrayView(tensor.data_ptr(), shape, dtype, strides, True, "gpu" if on_gpu else "cpu", stream, tensor)


def _torch_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    word = str(dtype).removeprefix("torch.")
    try:
        return np.dtype(word)
    except TypeError:
        pass
    try:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, word))
    except (ImportError, AttributeError) as error:
        raise TypeError(f"{name} holds {dtype}, which NumPy has only with the package ml_dtypes") from error
    return found


def _dlpack_view(name: str, array: Any) -> ArrayView:
    capsule, tensor, writeable = dlpack.exported(array)
    kind, dtype = dlpack.KINDS.get(tensor.code), getattr(array, "dtype", None)
    if tensor.device_type not in dlpack.DEVICES:
        raise TypeError(f"{name} must lie in main memory or on a CUDA device, got DLPack device {tensor.device_type}")
    if kind is not None:  # else as JAX's bfloat16, whose type NumPy has from ml_dtypes
        dtype = np.dtype(bool if kind == "b" else f"{kind}{tensor.bits // 8}")
    if tensor.lanes != 1 or not isinstance(dtype, np.dtype) or 8 * dtype.itemsize != tensor.bits:
        raise TypeError(f"{name} holds elements of DLPack type {tensor.code} with {tensor.lanes} lanes: not supported")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = c_strides(shape, dtype.itemsize)
    if tensor.strides:
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
    address = (tensor.data or 0) + tensor.byte_offset
    where = dlpack.DEVICES[tensor.device_type]
    return ArrayView(address, shape, dtype, strides, writeable, where, None, (array, capsule))


def sample_of(array: npt.NDArray[Any]) -> bytes:
    """Return a checksum of some elements, the same for equal arrays on all ranks."""
    step = max(1, array.size // 32) | 1  # odd, not to keep to one column
    return hashlib.blake2b(array.flat[::step].tobytes(), digest_size=8).digest()
