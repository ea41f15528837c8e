"""Functions of the compiled library that Python calls: plans and transfers."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist.errors import BuildError, RedistributionError
from dace_redist.mpi.collective import decoded_failure, remembered, together
from dace_redist.native.cmake_build import ensure_library
from dace_redist.native.loaded_mpi import loaded_interface
from dace_redist.native.toolchain import mpi_compiler, processor_levels
from dace_redist.native.variants import load
from dace_redist.schedule import Schedule
from dace_redist.strategies import OPTIONS, default_options
from dace_redist.transform import EncodedOperation

_SUCCESS = 0

#: Bytes of a version of any MPI, at most.
_MAX_VERSION = 8192

#: Extents and strides, in elements, of a rank's array; None: C order.
StridedShape = tuple[Sequence[int], Sequence[int]] | None
#: Handle of an MPI communicator as a number, name of a strategy, and its options that are not at their defaults.
How = tuple[int, str, Mapping[str, int | float]]
#: Elements that a peer sends or receives: peer, offset, counts and strides, in elements of this rank's array.
PeerBlock = tuple[int, int, Sequence[int], Sequence[int]]
#: Counts, displacements in bytes, and handles of the datatypes of one side of an ``Alltoallw``, by rank.
TypedSide = tuple[Sequence[int], Sequence[int], Sequence[int]]

#: ``dr_options``, ``dr_operation`` and ``dr_block`` of ``dace_redist.h``.
_OPTIONS = np.dtype([(name, np.int64 if isinstance(o.default, int) else np.float64) for name, o in OPTIONS.items()])
_OPERATION = np.dtype(
    [
        *(("source_type", np.intc), ("target_type", np.intc)),
        *(("alpha", np.complex128), ("beta", np.complex128)),
        *((name, np.intc) for name in ("conjugate", "op", "wire", "wire_within_nodes", "accumulate", "reproducible")),
    ]
)
_BLOCK = np.dtype(
    [("peer", np.intc), ("ndim", np.intc), ("offset", np.int64), ("counts", np.uintp), ("strides", np.uintp)]
)
#: ``Numbers`` of ``dace_redist_program.hpp``.
_NUMBERS = np.dtype([("begin", np.uintp), ("count", np.int64)])
#: ``EncodedTensor`` of ``handles.hpp``.
_TENSOR = np.dtype(
    [
        ("element_bytes", np.int64),
        *((part, _NUMBERS) for part in ("source", "target", "index_map")),
        ("operation", _OPERATION),
        *((memory, np.intc) for memory in ("source_memory", "target_memory")),
    ]
)


def _numbers(array: npt.NDArray[np.int64]) -> tuple[int, int]:
    return array.__array_interface__["data"][0], array.size


@functools.cache
def library() -> Any:
    """
    Load the library and declare the types of its functions.

    :raises BuildError: If it cannot be built, was built for another MPI than the one that mpi4py loaded, or would call
        another one.
    """
    found = load(ensure_library(), processor_levels())
    found.dr_python_mpi_interface.restype = ctypes.c_char_p
    _check_mpi(found.dr_python_mpi_interface().decode())
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    found.dr_error.restype = ctypes.c_char_p
    how, made = (ctypes.c_ssize_t, ctypes.c_char_p, pointer), (ctypes.c_char_p, ctypes.POINTER(pointer))
    found.dr_python_plan_create.argtypes = [*how, number, pointer, ctypes.c_char_p, *made]
    found.dr_python_plan_create_messages.argtypes = [*how, number, pointer, pointer, *made]
    found.dr_python_plan_create_alltoallw.argtypes = [*how, pointer, pointer, *made]
    found.dr_plan_set_stream.argtypes = [pointer, pointer]
    found.dr_python_plan_set_arrays.argtypes = [pointer, pointer]
    found.dr_plan_execute.argtypes = [pointer] * 3
    found.dr_plan_start.argtypes = [pointer, pointer, pointer, ctypes.c_int, ctypes.POINTER(pointer)]
    found.dr_request_test.argtypes = [pointer, ctypes.POINTER(ctypes.c_int)]
    found.dr_request_wait.argtypes = [ctypes.POINTER(pointer)]
    found.dr_plan_free.argtypes = [ctypes.POINTER(pointer)]
    found.dr_python_agree.argtypes = [ctypes.c_ssize_t, ctypes.c_uint64]
    return found


def _check_mpi(compiled_for: str) -> None:
    from mpi4py import MPI

    loaded = MPI.Get_library_version().split("\n")[0].rstrip("\0")
    if compiled_for != (there := loaded_interface()):
        raise BuildError(
            f"{mpi_compiler()} compiles for MPIs of the interface {compiled_for}, but mpi4py loaded {loaded}, of "
            f"{there}, whose handles are others: put the folder of that MPI's mpicxx first on PATH, or install mpi4py "
            "for this one"
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
def _options(given: tuple[tuple[str, int | float], ...]) -> ctypes.c_void_p:
    """Return ``dr_options`` from those that are not at their defaults."""
    return np.array(tuple((default_options() | dict(given)).values()), _OPTIONS).ctypes.data_as(ctypes.c_void_p)


#: Text of an error of another rank that :func:`dace_redist.mpi.collective.encoded_failure` made.
_OF_ANOTHER_RANK = re.compile(r"plan: on rank (?P<rank>\d+): (?P<failure>\w+: .*)", re.DOTALL)
_DIFFERENCE = "plan: the ranks differ in "


def check_agreed(code: int) -> None:
    """Raise the error of making a plan: a difference between ranks, a failure in Python on one, or the library's."""
    if code == _SUCCESS:
        return
    text = library().dr_error().decode(errors="replace")
    other = _OF_ANOTHER_RANK.fullmatch(text)
    failure = decoded_failure(other["failure"], int(other["rank"])) if other else None
    if text.startswith(_DIFFERENCE):
        failure = ValueError(text.removeprefix("plan: "))
    raise failure or RedistributionError(text)


class NativePlan:
    """
    Plan of the library. Making one is collective, freeing it local.

    :param create: Name of the function that makes it.
    :param how: Handle of an MPI communicator, strategy, and options that are not at their defaults.
    :param described: Arguments of the function after those.
    :param failure: Failure of this rank, as :func:`dace_redist.mpi.collective.encoded_failure` has it, which becomes
        the error of all ranks; None: it describes a problem.
    :param arrays: Number of arrays on each side.
    :raises RedistributionError: On every rank, if one of them cannot make it.
    :raises ValueError: On every rank, if they differ in an argument.
    """

    def __init__(self, create: str, how: How, *described: Any, failure: str | None, arrays: int = 1) -> None:
        self._plan = ctypes.c_void_p()
        self._addresses = ctypes.c_void_p * arrays
        comm, strategy, options = how
        settings = comm, strategy.encode(), _options(tuple(options.items()))
        check_agreed(getattr(library(), create)(*settings, *described, failure and failure.encode(), self._plan))

    @classmethod
    def of_tensors(
        cls,
        how: How,
        tensors: Sequence[Schedule],
        memories: Sequence[int] = (0, 0),
        elements: str = "",
        failure: str | None = None,
    ) -> NativePlan:
        """
        Make a plan of one or several tensors.

        :param memories: Places of the sources and the targets, each a ``dr_memory``.
        :param elements: Types of the elements in words, equal on all ranks.
        """
        rows = [
            (
                one.dtype.itemsize,
                *(_numbers(part.encoded_array) for part in (one.source, one.target, one.transform)),
                one.transform.encoded_operation,
                *memories,
            )
            for one in tensors
        ]
        encoded = np.array(rows, _TENSOR)
        described = len(tensors), encoded.ctypes.data, elements.encode()
        return cls("dr_python_plan_create", how, *described, failure=failure, arrays=len(tensors))

    @classmethod
    def of_blocks(
        cls,
        how: How,
        itemsize: int,
        operation: EncodedOperation,
        sides: Sequence[Sequence[PeerBlock]],
        failure: str | None = None,
    ) -> NativePlan:
        """
        Make a plan of messages that each rank describes.

        :param sides: Blocks that are sent, and that are received.
        """
        kept, lists = [], []
        for blocks in sides:
            numbers = [np.array(block[2:], np.int64) for block in blocks]
            rows = [
                (peer, len(counts), offset, *(part.ctypes.data for part in both))
                for (peer, offset, counts, _), both in zip(blocks, numbers, strict=True)
            ]
            array = np.array(rows, _BLOCK)
            kept.append((numbers, array))
            lists.append((len(array), array.ctypes.data))
        described = itemsize, np.array(operation, _OPERATION).ctypes, np.array(lists, np.int64).ctypes
        return cls("dr_python_plan_create_messages", how, *described, failure=failure)

    @classmethod
    def of_datatypes(cls, how: How, sides: Sequence[TypedSide], failure: str | None = None) -> NativePlan:
        """Make a plan of an ``Alltoallw``, of which ``sides`` are source and target."""
        integers = [np.array(numbers, np.intc) for side in sides for numbers in side[:2]]
        types = [np.array(side[2], np.uintp) for side in sides]
        described = (np.array([part.ctypes.data for part in parts], np.uintp).ctypes for parts in (integers, types))
        return cls("dr_python_plan_create_alltoallw", how, *described, failure=failure)

    @property
    def address(self) -> int:
        """Handle of the plan, as a number."""
        return int(self._plan.value or 0)

    def execute(self, sources: Sequence[int | None], targets: Sequence[int | None]) -> None:
        """Move the tensors between addresses of this rank's parts. Collective."""
        check(library().dr_plan_execute(self._plan, self._addresses(*sources), self._addresses(*targets)))

    def start(
        self, sources: Sequence[int | None], targets: Sequence[int | None], progress: int, request: ctypes.c_void_p
    ) -> None:
        """Start :meth:`execute`; ``progress`` is a ``dr_progress``. The library's request is written to ``request``."""
        addresses = self._addresses(*sources), self._addresses(*targets)
        check(library().dr_plan_start(self._plan, *addresses, progress, request))

    def set_stream(self, stream: int) -> None:
        """Use a ``cudaStream_t``, given as a number, for arrays on a GPU. Local."""
        check(library().dr_plan_set_stream(self._plan, stream))

    def set_arrays(self, layouts: Sequence[StridedShape]) -> None:
        """Use other layouts of this rank's arrays: of each source and target in turn. Local."""
        lists = [np.array(numbers, np.int64) for layout in layouts for numbers in layout or ((), ())]
        check(library().dr_python_plan_set_arrays(self._plan, np.array([*map(_numbers, lists)], _NUMBERS).ctypes))

    def free(self) -> None:
        """Free the plan. Local."""
        check(library().dr_plan_free(self._plan))
