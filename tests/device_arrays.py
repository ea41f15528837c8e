"""Arrays of other libraries for tests, and in GPU memory: on a GPU if available, else emulated in main memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi_programs import stand_in_device

from dace_redist.errors import BuildError, RedistributionError
from dace_redist.redistribution.arrays.new import DeviceArray

#: What ``STAND_IN_DEVICE`` may say of the device that main memory stands in for, and a GPU.
KINDS = ("host", "host,pooled", "host,apart,aware", "gpu", "host,apart", "host,unnamed")
#: The last ones are combinations of what the others have.
PARAMETERS = [*KINDS[:3], *(pytest.param(kind, marks=pytest.mark.full) for kind in KINDS[4:])]
PARAMETERS.append(pytest.param("gpu", marks=pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no GPU")))


def stand_in(kind: str = "host") -> dict[str, str]:
    """Return the environment in which main memory stands in for a device, of one of :data:`KINDS`."""
    return {"DACE_REDIST_DEVICE": str(stand_in_device()), "STAND_IN_DEVICE": kind}


def use_device(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process use a device, one of :data:`KINDS`; skip the test without a usable GPU."""
    if kind != "gpu":
        for name, value in stand_in(kind).items():
            monkeypatch.setenv(name, value)
        return
    try:
        DeviceArray(1)
    except (BuildError, RedistributionError) as error:
        pytest.skip(f"no GPU: {error}")


class OtherLibrary:
    """Array in main memory of a library other than NumPy, such as PyTorch, by DLPack before version 1.0."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self) -> Any:
        return self.array.__dlpack__()


class StridedDeviceArray:
    """
    Copy of a NumPy array on the device with the layout of the original: with its strides, in a copy of the surrounding
    memory.
    """

    def __init__(self, array: np.ndarray) -> None:
        base = array.base if isinstance(array.base, np.ndarray) else array
        self._as_given = base
        order = "F" if base.flags.f_contiguous and not base.flags.c_contiguous else "C"
        self._memory = DeviceArray.from_numpy(np.frombuffer(base.tobytes(order), np.uint8))
        self._order, self._offset = order, array.ctypes.data - base.ctypes.data
        self._array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        address = self._memory.__cuda_array_interface__["data"][0] + self._offset if self._array.size else 0
        return {
            "shape": self._array.shape,
            "typestr": self._array.dtype.str,
            "data": (address, False),
            "strides": self._array.strides,
            "version": 3,
            "stream": None,
        }

    def to_numpy(self) -> np.ndarray:
        """Copy the elements and the surrounding memory back to the original array; return it."""
        base = self._as_given
        base[...] = np.ndarray(base.shape, base.dtype, self._memory.to_numpy().tobytes(), order=self._order)
        return self._array
