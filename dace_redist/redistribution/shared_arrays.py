"""Arrays in memory that the ranks of one node share."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from dace_redist import _core


def empty(shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float64, comm: Any = None) -> npt.NDArray[Any]:
    """
    A new C-order array in node-shared memory: as the source or target of a redistribution it is moved with one copy;
    short runs of a source, to an ordinary target, with two.

    Not collective; whatever the other ranks pass, the strategies that know nodes find out. The memory is given back
    when the array is gone. From 2 MiB on it lies in huge pages where there are any, and is taken from the system at
    once, not when first written. A forked process shares the array with its parent. DaCe takes the array for a view: to
    pass it to a compiled program set its option ``compiler.allow_view_arguments``.

    :param shape: Shape of this rank's local array.
    :param dtype: Type of the elements.
    :param comm: Communicator in which the array will be moved; its ranks on other nodes do not see the array. Any
        will do, None too.
    :return: The array, not initialised. If there is too little node-shared memory, an ordinary array, and a
        ``RuntimeWarning`` says what was needed and what there is; it is moved, too, only slower.
    """
    element = np.dtype(dtype)
    extents = (int(shape),) if isinstance(shape, int | np.integer) else tuple(map(int, shape))
    try:
        return _shared(extents, element)
    except _core.Error as error:
        warnings.warn(f"empty: {error}; taking ordinary memory", RuntimeWarning, stacklevel=2)
        return np.empty(extents, element)


@overload
def node_shared_memory() -> contextlib.AbstractContextManager[None]: ...
@overload
def node_shared_memory(on: bool) -> None: ...
def node_shared_memory(on: bool | None = None) -> contextlib.AbstractContextManager[None] | None:
    """
    Lets NumPy allocate in node-shared memory, so that arrays of unchanged code are moved as those of :func:`empty`.

    That holds for new arrays of 64 KiB and more, whoever makes them, in the current context: another thread or
    ``contextvars`` context has its own. They stay there for as long as they live. A forked process shares them with its
    parent, instead of having copies. Where node-shared memory runs out, arrays lie in ordinary memory.

    :param on: From now on: whether NumPy allocates so. Default: in a ``with`` block.
    :return: Without ``on`` a context manager, which restores what was before.
    """
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


def is_shared(array: npt.NDArray[Any]) -> bool:
    """
    Whether an array lies in node-shared memory.

    :param array: Any array; a view lies where its base does. What is no array does not.
    """
    return _core.is_shared(array)


#: Smaller arrays lie in ordinary memory; as ``min_shared_bytes`` of the runtime.
LEAST_SHARED_BYTES = 64 << 10


def empty_result(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An array in node-shared memory, without a warning if that is scarce: then an ordinary one."""
    try:
        return _shared(shape, dtype)
    except _core.Error:
        return np.empty(shape, dtype)


def _shared(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if any(extent < 0 for extent in shape):
        raise ValueError(f"empty: extents must be 0 or more, got {shape}")
    memory: Any = _core.SharedMemory(math.prod(shape) * dtype.itemsize)
    array: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer=memory)
    return array
