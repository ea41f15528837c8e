"""Functions of the compiled library that Python calls: plans and transfers."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist.errors import BuildError, RedistributionError
from dace_redist.native.cmake_build import ensure_library
from dace_redist.native.toolchain import mpi_compiler
from dace_redist.strategies import OPTIONS, default_options

_SUCCESS = 0

#: See :attr:`dace_redist.element_operation.ElementOperation.encoded`.
EncodedOperation = tuple[int, int, complex, complex, bool, int]
#: A tensor of several: bytes of an element, encoded source, target and index map, and operation.
EncodedProblem = tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64], EncodedOperation]


class _Options(ctypes.Structure):
    """``dr_options`` of ``dace_redist.h``."""

    _fields_ = [
        (name, ctypes.c_int64 if isinstance(option.default, int) else ctypes.c_double)
        for name, option in OPTIONS.items()
    ]


class _Operation(ctypes.Structure):
    """``dr_operation`` of ``dace_redist.h``."""

    _fields_ = [
        ("source_type", ctypes.c_int),
        ("target_type", ctypes.c_int),
        ("alpha", ctypes.c_double * 2),
        ("beta", ctypes.c_double * 2),
        ("conjugate", ctypes.c_int),
        ("op", ctypes.c_int),
    ]


class _Problem(ctypes.Structure):
    """``dr_python_problem`` of ``python.cpp``."""

    _fields_ = [
        ("element_bytes", ctypes.c_int64),
        *(
            (f"{part}{end}", kind)
            for part in ("source", "target", "index_map")
            for end, kind in (("", ctypes.c_void_p), ("_count", ctypes.c_int64))
        ),
        ("operation", _Operation),
        ("source_memory", ctypes.c_int),
        ("target_memory", ctypes.c_int),
    ]


def _operation(encoded: EncodedOperation) -> _Operation:
    *types, alpha, beta, conj, op = encoded
    factors = [(ctypes.c_double * 2)(factor.real, factor.imag) for factor in (alpha, beta)]
    return _Operation(*types, *factors, conj, op)


@functools.cache
def library() -> Any:
    """
    Load the library and declare the types of its functions.

    :raises BuildError: If it cannot be built, or was built for another MPI than the one that mpi4py loaded.
    """
    found: Any = ctypes.CDLL(str(ensure_library()))
    found.dr_python_mpi.restype = ctypes.c_char_p
    _check_mpi(found.dr_python_mpi().decode())
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    found.dr_error.restype = ctypes.c_char_p
    found.dr_python_plan_create.argtypes = [
        *(ctypes.c_ssize_t, ctypes.c_char_p, ctypes.POINTER(_Options), ctypes.c_int),
        *(number, ctypes.POINTER(_Problem), ctypes.POINTER(pointer)),
    ]
    found.dr_plan_set_stream.argtypes = [pointer, pointer]
    found.dr_plan_set_arrays.argtypes = [pointer] * 5
    found.dr_plan_execute.argtypes = [pointer] * 3
    found.dr_plan_start.argtypes = [pointer, pointer, pointer, ctypes.c_int, ctypes.POINTER(pointer)]
    found.dr_request_test.argtypes = [pointer, ctypes.POINTER(ctypes.c_int)]
    found.dr_request_wait.argtypes = [ctypes.POINTER(pointer)]
    found.dr_plan_free.argtypes = [ctypes.POINTER(pointer)]
    found.dr_python_agree.argtypes = [ctypes.c_ssize_t, ctypes.c_uint64]
    return found


def _check_mpi(compiled_with: str) -> None:
    from mpi4py import MPI

    loaded = MPI.Get_library_version().split("\n")[0]
    if compiled_with not in loaded:
        raise BuildError(
            f"{mpi_compiler()} compiles for {compiled_with}, but mpi4py loaded {loaded}: put the folder of that MPI's "
            "mpicxx first on PATH, or install mpi4py for this one"
        )


def agree(comm: int, number: int) -> bool:
    """Check that all ranks have one 64-bit number, which is not 0. Collective over the MPI handle ``comm``."""
    return bool(library().dr_python_agree(comm, number))


def function_address(name: str) -> int:
    """Return the address of a function of the library."""
    return int(ctypes.cast(library()[name], ctypes.c_void_p).value or 0)


def check(code: int) -> None:
    """Raise the library's last error, a RedistributionError, unless ``code`` is success."""
    if code != _SUCCESS:
        raise RedistributionError(library().dr_error().decode(errors="replace"))


class NativePlan:
    """
    Plan of the library. Making and freeing one is collective.

    :param comm: Handle of an MPI communicator, as a number.
    :param strategy: Name of a strategy of the library.
    :param options: Options of the strategy that are not at their defaults.
    :param problems: The tensors: one, or with ``joint`` any number, in one exchange.
    :param memories: Places of the sources and the targets, each a ``dr_memory``.
    :param joint: Whether arrays are given as lists of addresses.
    :raises RedistributionError: On every rank, if the ranks disagree or one of them cannot make it.
    """

    def __init__(
        self,
        comm: int,
        strategy: str,
        options: Mapping[str, int | float],
        problems: Sequence[EncodedProblem],
        memories: Sequence[int] = (0, 0),
        joint: bool = False,
    ) -> None:
        self._plan = ctypes.c_void_p()
        self._joint = ctypes.c_void_p * len(problems) if joint else None
        listed = []
        for itemsize, *parts, operation in problems:
            encoded = [word for part in parts for word in (part.ctypes.data, part.size)]
            listed.append(_Problem(itemsize, *encoded, _operation(operation), *memories))
        made = (_Problem * len(listed))(*listed)
        given = _Options(**(default_options() | dict(options)))
        create = library().dr_python_plan_create
        check(create(comm, strategy.encode(), given, joint, len(listed), made, self._plan))

    @property
    def address(self) -> int:
        """Handle of the plan, as a number."""
        return int(self._plan.value or 0)

    def _given(self, addresses: Any) -> Any:
        return addresses if self._joint is None else self._joint(*addresses)

    def execute(self, source: Any, target: Any) -> None:
        """Move the tensor between addresses of this rank's parts; of several tensors, lists. Collective."""
        check(library().dr_plan_execute(self._plan, self._given(source), self._given(target)))

    def start(self, source: Any, target: Any, progress: int) -> NativeRequest:
        """Start :meth:`execute`; ``progress`` is a ``dr_progress``."""
        started = ctypes.c_void_p()
        check(library().dr_plan_start(self._plan, self._given(source), self._given(target), progress, started))
        return NativeRequest(started)

    def set_stream(self, stream: int) -> None:
        """Use a ``cudaStream_t``, given as a number, for arrays on a GPU. Local."""
        check(library().dr_plan_set_stream(self._plan, stream))

    def set_arrays(
        self, source: tuple[Sequence[int], Sequence[int]] | None, target: tuple[Sequence[int], Sequence[int]] | None
    ) -> None:
        """Use arrays with other extents and strides, in elements, for this rank's parts; None: C order. Local."""
        lists = [(ctypes.c_int64 * len(values))(*values) for side in (source, target) for values in side or ()]
        source_lists = lists[:2] if source else [None, None]
        target_lists = lists[-2:] if target else [None, None]
        check(library().dr_plan_set_arrays(self._plan, *source_lists, *target_lists))

    def free(self) -> None:
        """Free the plan. Collective."""
        check(library().dr_plan_free(self._plan))


class NativeRequest:
    """Transfer of the library that is under way."""

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self._handle = handle

    def test(self) -> bool:
        """Make progress; return whether the transfer is done."""
        done = ctypes.c_int()
        check(library().dr_request_test(self._handle, done))
        return bool(done.value)

    def wait(self) -> None:
        """Wait until the transfer is done."""
        check(library().dr_request_wait(self._handle))
