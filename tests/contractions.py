"""Contractions by the C++ runtime, called from Python: built once into a shared library."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dace_redist.native.blas import find_blas
from dace_redist.native.toolchain import PACKAGE_DIRECTORY, SOURCE_DIRECTORY

ROOM = PACKAGE_DIRECTORY / "contraction" / "src"
SOURCE = Path(__file__).parent / "cpp" / "contraction.cpp"
#: Sources of the runtime that it is linked with: all of the room but those of generated programs, which need MPI.
LINKED = (
    *(path for path in sorted(ROOM.glob("*.cpp")) if path.stem not in ("program", "device_program", "linear_solve")),
    *(SOURCE_DIRECTORY / "copy" / name for name in ("copy.cpp", "copy_block.cpp", "huge_pages.cpp")),
)
_MESSAGE_BYTES = 4096


def build(folder: Path, *switches: str) -> Library:
    """Compile the library into a folder and load it."""
    library, blas = folder / "libcontraction.so", find_blas()
    compiler = os.environ.get("CXX", "g++").split()
    command = [*compiler, "-std=c++17", "-Wall", "-Wextra", "-Wshadow", "-fPIC", "-shared", *switches]
    command += ["-I", str(ROOM), "-I", str(SOURCE_DIRECTORY), *(f"-isystem{path}" for path in blas.include_directories)]
    command += [*blas.definitions, *map(str, (SOURCE, *LINKED)), "-o", str(library), blas.library]
    command += [f"-Wl,-rpath,{Path(blas.library).parent}"]
    subprocess.run(command, check=True)
    return Library(library)


class Library:
    """The loaded library."""

    def __init__(self, path: Path) -> None:
        self.functions = ctypes.CDLL(str(path))
        self.functions.contraction_workspace_nbytes.restype = ctypes.c_size_t

    def call(self, name: str, *arguments: Any) -> None:
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        if self.functions[name](*arguments, message, ctypes.c_size_t(_MESSAGE_BYTES)) != 0:
            raise ValueError(message.value.decode())


class CompiledContraction:
    """An einsum, planned at its first run."""

    def __init__(self, library: Library, expression: str, dtype: Any, path: Sequence[Sequence[int]] = ()) -> None:
        self.library, self.dtype, self.made = library, np.dtype(dtype), ctypes.c_void_p()
        words = _words([word for step in path for word in (len(step), *step)])
        kind = self.dtype.name.encode()
        self.library.call("contraction_make", kind, expression.encode(), *words, ctypes.byref(self.made))

    def __call__(self, operands: Sequence[np.ndarray], result: np.ndarray, alpha: complex = 1, beta: complex = 0):
        """Write ``alpha * einsum + beta * result`` to the result."""
        layouts: list[int] = []
        for array in (*operands, result):
            assert array.dtype == self.dtype
            layouts += [*array.shape, *(stride // array.itemsize for stride in array.strides)]
        pointers = (ctypes.c_void_p * max(1, len(operands)))(*(array.ctypes.data for array in operands))
        scalars = [np.array(value).astype(self.dtype) for value in (alpha, beta)]
        addresses = [ctypes.c_void_p(value.ctypes.data) for value in (result, *scalars)]
        count = ctypes.c_size_t(len(operands))
        self.library.call("contraction_run", self.made, *_words(layouts), pointers, count, *addresses)
        return result

    @property
    def workspace_nbytes(self) -> int:
        return self.library.functions.contraction_workspace_nbytes(self.made)

    def __del__(self) -> None:
        if self.made:
            self.library.functions.contraction_free(self.made)


def _words(values: Sequence[int]) -> tuple[Any, Any]:
    return (ctypes.c_int64 * max(1, len(values)))(*values), ctypes.c_size_t(len(values))
