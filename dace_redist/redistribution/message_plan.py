"""Plans of messages that each rank describes. Start reading at: MessagePlan."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.errors import RedistributionError
from dace_redist.integers import AnyInt, AnyInts, AnyNumber, integers
from dace_redist.mpi.collective import checked_communicator, encoded_failure
from dace_redist.native.interface import How, NativePlan, PeerBlock, TypedSide, prepare
from dace_redist.redistribution.arrays import ArrayView, Views, array_view, reach
from dace_redist.redistribution.request import FreeablePlan, Request, progress_number
from dace_redist.strategies import check_options, find_strategy
from dace_redist.transform import Transform, element_type

#: One side of an ``Alltoallw``: a datatype for each rank, or counts, displacements in bytes, and datatypes.
Datatypes = Sequence[MPI.Datatype] | tuple[AnyInts, AnyInts, Sequence[MPI.Datatype]]
#: Blocks of one side.
Blocks = Sequence[tuple[AnyInt, AnyInt, AnyInts, AnyInts]]
#: Bytes that one side of a plan reads or writes, from the address of its array: first and end; (0, 0): none.
Reach = tuple[int, int]


class MessagePlan(FreeablePlan):
    """
    Reusable exchange of messages between arrays in main memory, made by :meth:`dace_redist.Plan.from_datatypes` or
    :meth:`dace_redist.Plan.from_messages`; a context manager that frees it at the end.

    :ivar strategy: Name of the strategy, never ``"Auto"``.
    :ivar options: Options that are not at their defaults.
    """

    _contiguous = False  # arrays must be, as for datatypes, which count bytes of memory

    def __init__(
        self, native: NativePlan, strategy: str, options: Mapping[str, int | float], held: tuple[Reach, Reach]
    ) -> None:
        self._native = native
        self.strategy, self.options, self._reach = strategy, dict(options), held

    def __call__(self, array: Any, out: Any) -> Any:
        """
        Move the messages. Collective over the ranks that send or receive any.

        :param array: Array that is sent from, of any library that :func:`dace_redist.redistribute` takes and any type,
            ``mpi4py.MPI.BOTTOM`` for datatypes with absolute addresses, or None if nothing is sent.
        :param out: Array that is received into, likewise; must not overlap what is sent.
        :return: ``out``.
        :raises ValueError: On this rank only, if the plan was freed, messages reach beyond an array, or one for
            datatypes is not contiguous; the others may wait for this rank.
        :raises TypeError: On this rank only, if an array does not lie in main memory.
        :raises RedistributionError: If MPI fails.
        """
        native, views = self._prepared(array, out)
        native.execute(*views.addresses())
        return out

    def start(self, array: Any, out: Any, *, progress: str = "calls") -> Request:
        """Start to move the messages; see :meth:`dace_redist.Plan.start`."""
        number = progress_number(progress)
        native, views = self._prepared(array, out)
        return self._start(native, views, views, out, number)

    def _prepared(self, array: Any, out: Any) -> tuple[NativePlan, Views]:
        native = self._ready()
        source, target = (
            _checked_view(name, given, held, self._contiguous)
            for name, given, held in zip(("array", "out"), (array, out), self._reach, strict=True)
        )
        if target is not None:
            target.check_writeable("out")
        return native, Views([source], [target])


def from_datatypes(
    source: Datatypes,
    target: Datatypes,
    *,
    comm: MPI.Intracomm | None = None,
    strategy: str = "Auto",
    **options: AnyInt | float,
) -> MessagePlan:
    """
    Plan an ``Alltoallw`` with these datatypes. Collective over ``comm``.

    Each rank gives its own side only. Datatypes may be freed afterwards. If one of a rank cannot be decoded, MPI
    packs or unpacks the side of this rank.

    :param source: Datatype for each receiver, or (counts, displacements in bytes, datatypes).
    :param target: Datatype for each sender, likewise.
    :param comm: mpi4py communicator; default: the world.
    :param strategy, options: See :func:`dace_redist.plan`.
    :raises ValueError: On every rank, if an argument is invalid on one of them.
    :raises TypeError: On every rank, if an argument has the wrong type on one of them.
    :raises RedistributionError: On every rank, if a rank sends another number of bytes than its peer receives.
    """
    comm = checked_communicator(comm)

    def describe() -> tuple[tuple[TypedSide, Reach], ...]:
        return _typed_side("source", source, comm.size), _typed_side("target", target, comm.size)

    made = _made(comm, strategy, options, describe, NativePlan.of_datatypes, ((), (), ()))
    made._contiguous = True
    return made


def from_messages(
    sends: Blocks,
    receives: Blocks,
    dtype: npt.DTypeLike,
    *,
    comm: MPI.Intracomm | None = None,
    target_dtype: npt.DTypeLike | None = None,
    alpha: AnyNumber = 1,
    beta: AnyNumber = 0,
    conj: bool = False,
    strategy: str = "Auto",
    **options: AnyInt | float,
) -> MessagePlan:
    """
    Plan messages in strided blocks. Collective over ``comm``.

    Errors are those of :meth:`from_datatypes`.

    A message is the blocks of one peer in the order of the list, each in C order, and has the same number of
    elements on both sides; the blocks may differ.

    :param sends: Blocks of the source: (peer, offset, counts, strides), in elements from the array's address. At
        most 10 dimensions.
    :param receives: Blocks of the target, likewise, which do not overlap.
    :param dtype: Element type of the source.
    """
    comm = checked_communicator(comm)
    transform = Transform(1, np.dtype("u1"))

    def describe() -> tuple[tuple[list[PeerBlock], Reach], ...]:
        nonlocal transform
        change: dict[str, Any] = {"target_dtype": target_dtype, "alpha": alpha, "beta": beta, "conj": conj}
        transform = Transform(1, element_type(dtype), **change)
        return _blocks("sends", sends, transform.dtype), _blocks("receives", receives, transform.target_dtype)

    def make(how: How, sides: Sequence[list[PeerBlock]], failure: str | None) -> NativePlan:
        return NativePlan.of_blocks(how, transform.dtype.itemsize, transform.encoded_operation, sides, failure)

    return _made(comm, strategy, options, describe, make, [])


def _checked_view(name: str, array: Any, held: Reach, contiguous: bool) -> ArrayView | None:
    """Return the view of an array that holds all bytes that messages reach; None for MPI.BOTTOM."""
    if array is MPI.BOTTOM:
        return None
    first, end = held
    if array is None:
        if first < end:
            raise ValueError(f"{name} is None, but messages reach its bytes {first} to {end}")
        return None
    view = array_view(name, array)
    if view.device != "cpu":
        raise TypeError(f"{name} must lie in main memory, as messages do; got an array on the GPU")
    lowest, highest = (address - view.address for address in view.bounds)
    if contiguous and view.size and (lowest, highest) != (0, view.size * view.dtype.itemsize):
        raise ValueError(
            f"{name} must be contiguous, as datatypes count bytes, got strides {view.strides} of shape {view.shape}: "
            "pass a copy, or the whole array and datatypes that skip elements"
        )
    if first < end and not (lowest <= first and end <= highest):
        raise ValueError(
            f"messages reach bytes {first} to {end} of {name}, which has bytes {lowest} to {highest}: pass the "
            "array that datatypes, displacements and blocks describe"
        )
    return view


def _made(
    comm: MPI.Intracomm,
    strategy: str,
    options: Mapping[str, Any],
    describe: Callable[[], Any],
    make: Callable[[How, Any, str | None], NativePlan],
    no_side: Any,
) -> MessagePlan:
    """Make a plan; what ``describe`` raises on one rank is an error on all, whose sides are then empty. Collective."""
    prepare(comm)
    handle = MPI._handleof(comm)
    try:
        chosen = find_strategy(strategy)
        checked = check_options(chosen, options, ("comm", "strategy", "dtype"))
        sides, held = zip(*describe(), strict=True)
    except Exception as error:
        with contextlib.suppress(RedistributionError):
            make((handle, "", {}), [no_side] * 2, encoded_failure(error))
        raise
    return MessagePlan(make((handle, chosen.name, checked), sides, None), chosen.name, checked, held)


def _together(parts: Sequence[Reach]) -> Reach:
    return (min(first for first, _ in parts), max(end for _, end in parts)) if parts else (0, 0)


def _listed(name: str, values: Any) -> list[Any]:
    if not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list with an entry for each message, got {values!r}")
    return list(values)


def _mpi_integers(name: str, values: Any) -> list[int]:
    """Return integers that fit MPI's, of 32 bits."""
    numbers = list(integers(name, _listed(name, values)))
    if any(not -(2**31) <= number < 2**31 for number in numbers):
        raise ValueError(f"{name} must fit 32 bits, got {numbers}")
    return numbers


def _typed_side(name: str, side: Datatypes, size: int) -> tuple[TypedSide, Reach]:
    given: Any = side
    if not (isinstance(given, tuple) and len(given) == 3 and not isinstance(given[0], MPI.Datatype)):
        given = [1] * size, [0] * size, given
    *numbers, types = given
    words = ("counts", "displacements")
    counts, displacements = (
        _mpi_integers(f"{word} of {name}", part) for word, part in zip(words, numbers, strict=True)
    )
    types = _listed(name, types)
    for what, part in (("counts", counts), ("displacements", displacements), ("datatypes", types)):
        if len(part) != size:
            raise ValueError(f"{name} must have {size} {what}, one for each rank of comm, got {len(part)}")
    parts = []
    for rank, (count, displacement, datatype) in enumerate(zip(counts, displacements, types, strict=True)):
        if not isinstance(datatype, MPI.Datatype):
            raise TypeError(f"{name} must have an mpi4py datatype for rank {rank}, got {datatype!r}")
        if count > 0 and datatype == MPI.DATATYPE_NULL:
            raise ValueError(f"{name} has a null or freed datatype for rank {rank}, but its count is {count}")
        if count > 0 and datatype.Get_size() > 0:
            begin, true_extent = datatype.Get_true_extent()
            first, last = reach([count], [datatype.Get_extent()[1]])
            parts.append((displacement + begin + first, displacement + begin + last + true_extent))
    handles = [MPI._handleof(datatype) % (1 << 64) for datatype in types]
    return (counts, displacements, handles), _together(parts)


def _blocks(name: str, blocks: Blocks, dtype: np.dtype[Any]) -> tuple[list[PeerBlock], Reach]:
    """Return blocks, checked; the library checks the peers."""
    made: list[PeerBlock] = []
    parts: list[Reach] = []
    for number, block in enumerate(_listed(name, blocks)):
        try:
            peer, offset, *numbers = block
            (peer,), (offset,) = _mpi_integers("peer", [peer]), integers("offset", [offset])
            counts, strides = (list(integers("counts and strides", list(part))) for part in numbers)
        except (TypeError, ValueError) as error:
            expected = f"{name}[{number}] must be (peer, offset, counts, strides)"
            raise TypeError(f"{expected}, got {block!r}: {error}") from error
        if len(counts) != len(strides):
            raise ValueError(f"{name}[{number}] must have as many strides as counts, got {block!r}")
        made.append((peer, offset, counts, strides))
        if 0 not in counts:
            first, last = reach(counts, strides)
            parts.append(((offset + first) * dtype.itemsize, (offset + last + 1) * dtype.itemsize))
    return made, _together(parts)
