"""Contractions of local arrays by the compiled library, without DaCe."""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.errors import RedistributionError
from dace_redist.native.blas import blas_wanted, pypi_openblas
from dace_redist.native.cmake_build import ensure_library
from dace_redist.native.interface import library
from dace_redist.native.toolchain import EINSUM, packaged, processor_levels
from dace_redist.native.variants import EINSUM_FILE, load

Array = npt.NDArray[Any]

#: Element types that the library contracts.
ELEMENT_TYPES = frozenset(
    f"{kind}{bits}" for kind, widths in (("int", (8, 16, 32, 64)), ("float", (32, 64))) for bits in widths
) | {"uint8", "uint16", "uint32", "uint64", "complex64", "complex128"}


def ensure_contractions() -> None:
    """Build the library unless it is there. Not collective."""
    if _packaged() is None:
        ensure_library(EINSUM)


def _packaged() -> Path | None:
    """Return the library that came with the package; None if there is none, or another BLAS is wanted."""
    beside = packaged()
    path = beside.parent / EINSUM_FILE if isinstance(beside, Path) else None
    return path if path is not None and path.exists() and pypi_openblas() and blas_wanted() in ("", "pypi") else None


@functools.cache
def _library() -> Any:
    library()  # it calls this one
    path = _packaged()
    if path is None:
        found = ctypes.CDLL(str(ensure_library(EINSUM)))
    else:
        ctypes.CDLL(pypi_openblas())  # which it is linked with by name
        found = load(path, processor_levels())
    number, pointer, text = ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p
    found.dr_python_contraction_error.restype = text
    found.dr_python_contraction_create.argtypes = [text, text, pointer, number]
    found.dr_python_contraction_create.restype = pointer
    found.dr_python_contraction_workspace.argtypes = [pointer]
    found.dr_python_contraction_workspace.restype = number
    found.dr_python_contraction_free.argtypes = [pointer]
    return found


class LocalContraction:
    """
    Einsum of arrays of this process; keeps its plan and its workspace from call to call.

    :param expression: Indices of operands and result, such as ``"ijk,ja,ka->ia"``.
    :param dtype: Element type of all arrays, one of :data:`ELEMENT_TYPES`.
    :param path: Positions of the operands that each step takes, as opt_einsum's; empty: all in one step.
    :raises RedistributionError: If an argument is wrong.
    """

    def __init__(self, expression: str, dtype: np.dtype[Any], path: Sequence[Sequence[int]]) -> None:
        words = np.array([word for step in path for word in (len(step), *step)], np.int64)
        made = _library().dr_python_contraction_create(
            expression.encode(), dtype.name.encode(), words.ctypes.data, len(words)
        )
        _check(made)
        weakref.finalize(self, _library().dr_python_contraction_free, made)
        run = ctypes.cast(_library().dr_python_contraction_run, ctypes.c_void_p).value or 0
        self._made, self._zero = made, np.zeros(1, dtype)
        self._run = _core.BoundContraction(run, made, [*map(len, expression.replace("->", ",").split(","))]).run

    def __call__(self, operands: Sequence[Array], result: Array, alpha: Array, beta: Array | None = None) -> None:
        """
        Compute ``result = alpha * einsum(operands) + beta * result``.

        :param alpha, beta: Arrays of one element; without ``beta`` the result is not read.
        """
        if self._run(operands, result, alpha, self._zero if beta is None else beta):
            _check(None)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the buffers that the last call took."""
        return int(_library().dr_python_contraction_workspace(self._made))


def _check(well: object) -> None:
    if not well:
        raise RedistributionError(_library().dr_python_contraction_error().decode(errors="replace"))
