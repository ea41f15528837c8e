"""Memory of the GPU that is current in this process."""

from __future__ import annotations

import ctypes
import os

from dace_redist.native.interface import check, library
from dace_redist.native.library import ensure_library
from dace_redist.native.toolchain import CUDA, HOST_DEVICE

#: Environment variable: ``cuda``, or ``host`` for main memory that stands in for a GPU; see ``device/host_device.hpp``.
DEVICE_VARIABLE = "DACE_REDIST_DEVICE"


def ensure_device_library() -> None:
    """
    Builds the library for GPUs unless it is there, or that of main memory in their place. Not collective.

    :raises BuildError: If it cannot be built; says what is missing.
    """
    library()
    if host_device_is_chosen():
        ensure_library(HOST_DEVICE)
    elif os.environ.get(DEVICE_VARIABLE, "cuda") in ("", "cuda"):
        ensure_library(CUDA)


def host_device_is_chosen() -> bool:
    """Whether main memory stands in for a GPU."""
    return os.environ.get(DEVICE_VARIABLE, "").split(",")[0] == "host"


def allocate(nbytes: int) -> int:
    """
    Address of new memory on the GPU.

    :raises RedistributionError: If there is no GPU, or too little memory; says what is needed and what there is.
    """
    ensure_device_library()
    memory = ctypes.c_void_p()
    check(library().dr_python_device_allocate(ctypes.c_int64(nbytes), ctypes.byref(memory)))
    return memory.value or 0


def free(address: int) -> None:
    """Gives memory of :func:`allocate` back."""
    library().dr_python_device_free(ctypes.c_void_p(address))


def copy(target: int, source: int, nbytes: int) -> None:
    """
    Copies bytes between main memory and the GPU, after all that was enqueued there, and waits for it.

    :param target: Address of the first byte written.
    :param source: Address of the first byte read.
    :raises RedistributionError: If that fails.
    """
    check(library().dr_python_device_copy(ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_int64(nbytes)))
