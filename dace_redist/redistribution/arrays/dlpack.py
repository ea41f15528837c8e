"""Tensors that other libraries export by DLPack."""

from __future__ import annotations

import ctypes
from typing import Any


class Tensor(ctypes.Structure):
    """``DLTensor`` of DLPack, the first member of ``DLManagedTensor``. Source: dlpack.h, version 0.8."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


#: Devices of an array by their numbers.
DEVICES = {1: "cpu", 2: "gpu", 3: "cpu", 13: "gpu"}  # main memory, CUDA, pinned host, managed
#: Letters of NumPy for the kinds of elements.
KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_READ_ONLY = 1  # a bit of the flags


class _VersionedTensor(ctypes.Structure):
    """``DLManagedTensorVersioned`` of DLPack. Source: dlpack.h, version 1.0."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


def exported(array: Any) -> tuple[Any, Tensor, bool]:
    """Return capsule, tensor, and True if it is writeable: before DLPack 1.0, which has no such flag, but for JAX."""
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    try:
        capsule = array.__dlpack__(max_version=(1, 0))
    except TypeError:  # a library before DLPack 1.0
        capsule = array.__dlpack__()
    writeable = type(array).__module__.partition(".")[0] != "jaxlib"  # whose arrays are immutable
    if '"dltensor_versioned"' not in repr(capsule):
        return capsule, Tensor.from_address(get_pointer(capsule, b"dltensor")), writeable
    versioned = _VersionedTensor.from_address(get_pointer(capsule, b"dltensor_versioned"))
    return capsule, versioned.tensor, writeable and not versioned.flags & _READ_ONLY
