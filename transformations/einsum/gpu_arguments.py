"""Parts of what a distributed program takes and returns, which lie on the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import Distribution
from dace_redist.redistribution.device_arrays import ArrayView, array_view, empty_like_library, is_foreign
from dace_redist.redistribution.plan import plan
from dace_redist.transformations.einsum.distributed_tensor import DistributedTensor


def checked_on_gpu(array: Any, tensor: DistributedTensor, shape: tuple[int, ...], rank: int, written: bool) -> Any:
    """
    A part as given, which a run can use where it is.

    :param array: Of CuPy, PyTorch, or anything with ``__cuda_array_interface__``.
    :param shape: What the rank holds.
    :param written: Whether the program writes it.
    :raises ValueError: If it lies elsewhere, has another shape or type, is not in C order, or cannot be written.
    :raises TypeError: If it is no array.
    """
    view = array_view(f"run: {tensor.name}", array)
    if view.device != "gpu" and view.size:
        raise ValueError(
            f"run: {tensor.name} lies in main memory on rank {rank}, but the program was distributed with "
            'arguments="gpu": pass what scatter returns, or an array of CuPy or PyTorch'
        )
    if view.dtype != tensor.dtype:
        raise ValueError(f"run: {tensor.name} must hold {tensor.dtype}, got {view.dtype} on rank {rank}")
    if view.shape != shape:
        raise ValueError(f"run: rank {rank} holds {shape} of {tensor.name}, shape {tensor.shape}; got {view.shape}")
    if not view.in_c_order or (written and not view.writeable):
        wanted = "in C order and writeable" if written else "in C order"
        raise ValueError(f"run: {tensor.name} lies on the GPU, where its part must be {wanted}, on rank {rank} too")
    return array


def empty_on_gpu(given: Mapping[str, Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """
    A new array for a part, of the library of the first part given that lies there.

    :param given: Parts by name.
    """
    return empty_like_library(next((array for array in given.values() if lies_there(array)), None), shape, dtype)


def lies_there(array: Any) -> bool:
    """Whether something is an array on the GPU."""
    return is_foreign(array) and array_view("array", array).device == "gpu"


def in_main_memory(array: Any) -> npt.NDArray[Any]:
    """A copy of an array on the GPU, as it is when all that was enqueued before on its stream is done."""
    view: ArrayView = array_view("array", array)
    everything = Distribution(view.shape, (1,))
    with plan(everything, everything, view.dtype, comm=MPI.COMM_SELF, device=("gpu", "cpu")) as copying:
        return np.asarray(copying(array))
