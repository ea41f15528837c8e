"""Functions of the compiled library that Python calls: plans and transfers."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dace_redist.errors import BuildError, RedistributionError
from dace_redist.mpi.collective import decoded_failure, remembered, together
from dace_redist.native.cmake_build import ensure_library
from dace_redist.native.toolchain import mpi_compiler, processor_flags
from dace_redist.native.variants import load
from dace_redist.schedule import Schedule
from dace_redist.strategies import OPTIONS, default_options

_SUCCESS = 0

#: Bytes of a version of any MPI, at most.
_MAX_VERSION = 8192

#: See :attr:`dace_redist.transform.Transform.encoded_operation`.
EncodedOperation = tuple[int, int, complex, complex, bool, int]
#: Extents and strides, in elements, of a rank's array; None: C order.
Layout = tuple[Sequence[int], Sequence[int]] | None


class EncodedProblem(NamedTuple):
    """
    Problem of a plan; of messages that each rank describes strategy, options and failure only.

    :param strategy: Name of a strategy of the library.
    :param options: Options of the strategy that are not at their defaults.
    :param memories: Places of the sources and the targets, each a ``dr_memory``.
    :param elements: Types of the elements in words, equal on all ranks.
    :param failure: Failure of this rank, as :func:`dace_redist.mpi.collective.encoded_failure` has it, in UTF-8, which
        becomes the error of all ranks; None: it has a problem.
    """

    strategy: str = ""
    options: Mapping[str, int | float] = {}
    tensors: Sequence[Schedule] = ()
    memories: Sequence[int] = (0, 0)
    elements: str = ""
    failure: bytes | None = None

    @property
    def how(self) -> tuple[Any, ...]:
        """Strategy and options as the library takes them."""
        return self.strategy.encode(), ctypes.byref(native_options(tuple(self.options.items())))


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


class _Numbers(ctypes.Structure):
    """``Numbers`` of ``dace_redist_program.hpp``."""

    _fields_ = [("begin", ctypes.c_void_p), ("count", ctypes.c_int64)]

    @classmethod
    def of(cls, array: Any) -> _Numbers:
        """Return the numbers of an array of NumPy."""
        return cls(array.__array_interface__["data"][0], array.size)


class _Tensor(ctypes.Structure):
    """``EncodedTensor`` of ``handles.hpp``."""

    _fields_ = [
        ("element_bytes", ctypes.c_int64),
        *((part, _Numbers) for part in ("source", "target", "index_map")),
        ("operation", _Operation),
        ("source_memory", ctypes.c_int),
        ("target_memory", ctypes.c_int),
    ]


def native_operation(encoded: EncodedOperation) -> _Operation:
    """Return a ``dr_operation``."""
    *types, alpha, beta, conj, op = encoded
    factors = [(ctypes.c_double * 2)(factor.real, factor.imag) for factor in (alpha, beta)]
    return _Operation(*types, *factors, conj, op)


@functools.cache
def library() -> Any:
    """
    Load the library and declare the types of its functions.

    :raises BuildError: If it cannot be built, was built for another MPI than the one that mpi4py loaded, or would call
        another one.
    """
    found = load(ensure_library(), processor_flags())
    found.dr_python_mpi.restype = ctypes.c_char_p
    _check_mpi(found.dr_python_mpi().decode())
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    found.dr_error.restype = ctypes.c_char_p
    found.dr_python_plan_create.argtypes = [
        *(ctypes.c_ssize_t, ctypes.c_char_p, ctypes.POINTER(_Options), number, ctypes.POINTER(_Tensor)),
        *(ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(pointer)),
    ]
    found.dr_plan_set_stream.argtypes = [pointer, pointer]
    found.dr_python_plan_set_arrays.argtypes = [pointer, pointer]
    found.dr_plan_execute.argtypes = [pointer] * 3
    found.dr_plan_start.argtypes = [pointer, pointer, pointer, ctypes.c_int, ctypes.POINTER(pointer)]
    found.dr_request_test.argtypes = [pointer, ctypes.POINTER(ctypes.c_int)]
    found.dr_request_wait.argtypes = [ctypes.POINTER(pointer)]
    found.dr_plan_free.argtypes = [ctypes.POINTER(pointer)]
    found.dr_python_agree.argtypes = [ctypes.c_ssize_t, ctypes.c_uint64]
    return found


def _check_mpi(compiled_with: str) -> None:
    from mpi4py import MPI

    loaded = MPI.Get_library_version().split("\n")[0].rstrip("\0")
    if compiled_with not in loaded:
        raise BuildError(
            f"{mpi_compiler()} compiles for {compiled_with}, but mpi4py loaded {loaded}: put the folder of that MPI's "
            "mpicxx first on PATH, or install mpi4py for this one"
        )
    program, length = ctypes.CDLL(None), ctypes.c_int()
    if hasattr(program, "MPI_Get_library_version"):  # the dynamic linker takes it before the library's own MPI
        version = ctypes.create_string_buffer(_MAX_VERSION)
        program.MPI_Get_library_version(version, ctypes.byref(length))
        first = version.value.decode(errors="replace").split("\n")[0]
        if first != loaded:
            raise BuildError(
                f"this process has two MPIs: mpi4py loaded {loaded}, but the library would call {first}, which the "
                "program, LD_PRELOAD or another Python module loaded for all libraries; load one of them only"
            )


def prepare(comm: Any, ensure: Callable[[], object] | None = None) -> None:
    """
    Build the library unless it exists, and load it. Collective at the first call for a communicator.

    :param ensure: Builds another library; default: that of redistribution.
    """

    def build() -> bool:
        with together(comm):
            (ensure or ensure_library)()
            library()
        return True

    remembered(comm, ensure, build)


def agree(comm: int, number: int) -> bool:
    """Check that all ranks have one 64-bit number, which is not 0. Collective over the MPI handle ``comm``."""
    return bool(library().dr_python_agree(comm, number))


@functools.cache
def function_address(name: str) -> int:
    """Return the address of a function of the library."""
    return int(ctypes.cast(library()[name], ctypes.c_void_p).value or 0)


def check(code: int) -> None:
    """Raise the library's last error, a RedistributionError, unless ``code`` is success."""
    if code != _SUCCESS:
        raise RedistributionError(library().dr_error().decode(errors="replace"))


@functools.lru_cache(maxsize=64)
def native_options(given: tuple[tuple[str, int | float], ...]) -> _Options:
    """Return ``dr_options`` from those that are not at their defaults."""
    return _Options(**(default_options() | dict(given)))


#: Text of an error of another rank that :func:`dace_redist.mpi.collective.encoded_failure` made.
_OF_ANOTHER_RANK = re.compile(r"plan: on rank (?P<rank>\d+): (?P<failure>\w+: .*)", re.DOTALL)
_DIFFERENCE = "plan: the ranks differ: "


def check_agreed(code: int) -> None:
    """Raise the error of making a plan: a difference between ranks, a failure in Python on one, or the library's."""
    if code == _SUCCESS:
        return
    text = library().dr_error().decode(errors="replace")
    other = _OF_ANOTHER_RANK.fullmatch(text)
    failure = decoded_failure(other["failure"], int(other["rank"])) if other else None
    if text.startswith(_DIFFERENCE):
        failure = ValueError(f"the ranks ask for different redistributions: {text.removeprefix(_DIFFERENCE)}")
    raise failure or RedistributionError(text)


class NativePlan:
    """
    Plan of the library for one or several tensors. Making one is collective, freeing it local.

    :param comm: Handle of an MPI communicator, as a number.
    :raises RedistributionError: On every rank, if one of them cannot make it.
    :raises ValueError: On every rank, if they ask for different redistributions.
    """

    def __init__(self, comm: int, problem: EncodedProblem) -> None:
        self._plan = ctypes.c_void_p()
        tensors = problem.tensors
        self._addresses = ctypes.c_void_p * len(tensors)
        self._layouts = _Numbers * (4 * len(tensors))
        encoded = [
            _Tensor(
                one.dtype.itemsize,
                *(_Numbers.of(part.encoded_array) for part in (one.source, one.target, one.transform)),
                native_operation(one.transform.encoded_operation),
                *problem.memories,
            )
            for one in tensors
        ]
        arguments = (*problem.how, len(tensors), (_Tensor * len(tensors))(*encoded))
        words = problem.elements.encode(), problem.failure
        check_agreed(library().dr_python_plan_create(comm, *arguments, *words, self._plan))

    @property
    def address(self) -> int:
        """Handle of the plan, as a number."""
        return int(self._plan.value or 0)

    def execute(self, sources: Sequence[int | None], targets: Sequence[int | None]) -> None:
        """Move the tensors between addresses of this rank's parts. Collective."""
        check(library().dr_plan_execute(self._plan, self._addresses(*sources), self._addresses(*targets)))

    def start(self, sources: Sequence[int | None], targets: Sequence[int | None], progress: int) -> NativeRequest:
        """Start :meth:`execute`; ``progress`` is a ``dr_progress``."""
        started = ctypes.c_void_p()
        addresses = self._addresses(*sources), self._addresses(*targets)
        check(library().dr_plan_start(self._plan, *addresses, progress, started))
        return NativeRequest(started)

    def set_stream(self, stream: int) -> None:
        """Use a ``cudaStream_t``, given as a number, for arrays on a GPU. Local."""
        check(library().dr_plan_set_stream(self._plan, stream))

    def set_arrays(self, layouts: Sequence[Layout]) -> None:
        """Use other layouts of this rank's arrays: of each source and target in turn. Local."""
        lists = [numbers for layout in layouts for numbers in layout or ((), ())]
        kept = [(ctypes.c_int64 * len(numbers))(*numbers) for numbers in lists]
        numbers = [_Numbers(ctypes.addressof(array), len(array)) for array in kept]
        check(library().dr_python_plan_set_arrays(self._plan, self._layouts(*numbers)))

    def free(self) -> None:
        """Free the plan. Local."""
        check(library().dr_plan_free(self._plan))


class NativeRequest:
    """Transfer of the library that is under way."""

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self._handle = handle

    def test(self) -> bool:
        """Make progress; return True if the transfer is done."""
        done = ctypes.c_int()
        check(library().dr_request_test(self._handle, done))
        return bool(done.value)

    def wait(self) -> None:
        """Wait until the transfer is done."""
        check(library().dr_request_wait(self._handle))
