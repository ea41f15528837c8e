"""Name and memory of the GPU that is current in this process."""

from __future__ import annotations

import ctypes
import os
import re

from dace_redist.errors import RedistributionError
from dace_redist.native.cmake_build import ensure_library
from dace_redist.native.interface import check, library
from dace_redist.native.toolchain import CUDA, library_path

#: Name of a GPU with its number in this process, in which ranks differ.
_NUMBERED = re.compile(r"GPU \d+ \((?P<model>.*)\)")

#: Environment variable: ``cuda``, or the path of a library for another device, as ``device/device.hpp`` has it.
DEVICE_VARIABLE = "DACE_REDIST_DEVICE"

#: Environment variable: folder of the library for GPUs, for a library that came with the package without them.
FOLDER_VARIABLE = "DACE_REDIST_DEVICE_FOLDER"


def ensure_device_library() -> None:
    """
    Build the library for GPUs unless it is there, or another device is chosen. Not collective.

    :raises BuildError: If it cannot be built; says what is missing.
    """
    library()
    if _is_cuda():
        path = ensure_library(CUDA)
        if path.parent != library_path().parent:  # which came with the package
            os.environ[FOLDER_VARIABLE] = str(path.parent)


def _is_cuda() -> bool:
    return os.environ.get(DEVICE_VARIABLE, "cuda") in ("", "cuda")


def device_name() -> str:
    """
    Return the model of the GPU, such as ``NVIDIA H200``, or of another device. Builds nothing if there is no GPU.

    :raises RedistributionError: If there is no GPU.
    :raises BuildError: If the library for GPUs cannot be built; says what is missing.
    """
    if _is_cuda() and not _driver_finds_gpu():
        raise RedistributionError(
            "no GPU can be used here: the CUDA driver is missing, or finds none; arrays on GPUs need one on each rank"
        )
    ensure_device_library()
    name = ctypes.create_string_buffer(256)
    check(library().dr_python_device_name(name, ctypes.c_int64(len(name))))
    said = name.value.decode(errors="replace")
    numbered = _NUMBERED.fullmatch(said)
    return numbered["model"] if numbered else said


def _driver_finds_gpu() -> bool:
    """Check for a CUDA driver with a GPU that this process may use."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def synchronize() -> None:
    """Wait for the default stream; raises RedistributionError if something on it failed."""
    check(library().dr_python_device_synchronize())


def allocate(nbytes: int) -> int:
    """
    Return the address of new memory on the GPU.

    :raises RedistributionError: If there is no GPU, or too little memory; says what is needed and what there is.
    """
    ensure_device_library()
    memory = ctypes.c_void_p()
    check(library().dr_python_device_allocate(ctypes.c_int64(nbytes), ctypes.byref(memory)))
    return memory.value or 0


def free(address: int) -> None:
    """Free memory of :func:`allocate`."""
    library().dr_python_device_free(ctypes.c_void_p(address))


def copy(target: int, source: int, nbytes: int) -> None:
    """
    Copy bytes between addresses in main memory and on the GPU, after all that was enqueued there, and wait.

    :raises RedistributionError: If that fails.
    """
    check(library().dr_python_device_copy(ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_int64(nbytes)))
