"""Arrays that know their distribution. Start reading at: DistributedArray."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from numpy.lib.mixins import NDArrayOperatorsMixin

from dace_redist import interop
from dace_redist.distribution import AnyDistribution, Distribution, check_distribution
from dace_redist.integers import AnyInt
from dace_redist.mpi.collective import check_congruent, check_same, checked_communicator, together
from dace_redist.redistribution.arrays import array_view, sample_of
from dace_redist.redistribution.cache import Keywords, Settings, move, settings
from dace_redist.redistribution.problem import CHANGE, check_ranks, is_list
from dace_redist.redistribution.problem.agreement import agreed_root, fail_together, shapes_on_ranks
from dace_redist.redistribution.problem.checks import check_part
from dace_redist.transform import Transform

if TYPE_CHECKING:
    from typing_extensions import Unpack

_OP = CHANGE.index("op")


#: What to call in place of functions and operators of NumPy.
_INSTEAD = (
    "call dace_redist.einsum for products and sums, allgather() for the whole array, or take its local array, which is "
    "this rank's part"
)


class DistributedArray(NDArrayOperatorsMixin):
    """
    Array and its distribution over the ranks of a communicator. It has no arithmetic, comparisons or indices.

    :param local: This rank's part, as for :func:`redistribute`. It is not copied.
    :param distribution: Distribution of the tensor.
    :param comm: mpi4py communicator; default: the world.
    :param op: ``"sum"``, ``"prod"``, ``"min"`` or ``"max"`` if replicas are partial results; default: they are equal.
    :raises ValueError: On this rank, if ``local`` has another shape, or the communicator is too small.
    :raises TypeError: On this rank, if an argument has the wrong type.
    """

    def __init__(
        self, local: Any, distribution: AnyDistribution, comm: MPI.Intracomm | None = None, *, op: str | None = None
    ) -> None:
        self.comm: MPI.Intracomm = checked_communicator(comm)
        check_distribution("distribution", distribution)
        check_ranks("given", distribution, self.comm.size)
        view = array_view("local", local)
        check_part("local", view, distribution.local_shape(self.comm.rank), view.dtype, self.comm.rank)
        if op is not None:
            Transform(len(distribution.shape), view.dtype, op=op)  # checks it
        self.local, self.distribution, self.op = local, distribution, op
        #: Element type, as NumPy has it.
        self.dtype: np.dtype[Any] = view.dtype

    @classmethod
    def of_checked(cls, local: Any, distribution: AnyDistribution, comm: MPI.Intracomm) -> DistributedArray:
        """Return the array of parts that fit, without checks; for results."""
        made = cls.__new__(cls)
        made.local, made.distribution, made.comm, made.op = local, distribution, comm, None
        made.dtype = local.dtype if isinstance(local, np.ndarray) else array_view("local", local).dtype
        return made

    @classmethod
    def from_function(
        cls,
        function: Callable[..., Any],
        distribution: AnyDistribution,
        dtype: npt.DTypeLike = np.float64,
        comm: MPI.Intracomm | None = None,
    ) -> DistributedArray:
        """
        Return the array whose elements are a function of their indices, as of ``numpy.fromfunction``. Not collective.

        :param function: Called with an array of global indices for each axis, of this rank's elements; they broadcast.
        :raises ValueError: On this rank, if the communicator is too small, or the values do not broadcast.
        :raises TypeError: On this rank, if an argument has the wrong type, or the function takes other arguments.
        """
        made = cls._new(distribution, dtype, comm)
        rank = made.comm.rank
        if isinstance(distribution, Distribution) and not any(distribution.halo):
            indices: Any = np.ix_(*distribution.global_index(rank)) if distribution.shape else ()
        else:
            indices = [distribution.local(index, rank) for index in np.indices(distribution.shape)]
        with contextlib.suppress(ValueError):  # of a function that does not say what it takes
            try:
                inspect.signature(function).bind(*indices)
            except TypeError as error:
                raise TypeError(f"function must take an array of indices for each axis: {error}") from None
        made.local[...] = function(*indices)
        return made

    @classmethod
    def full(
        cls,
        distribution: AnyDistribution,
        value: Any,
        dtype: npt.DTypeLike | None = None,
        comm: MPI.Intracomm | None = None,
    ) -> DistributedArray:
        """Return an array filled with a number, of its type by default. Not collective."""
        made = cls._new(distribution, np.asarray(value).dtype if dtype is None else dtype, comm)
        made.local[...] = value
        return made

    @classmethod
    def zeros(
        cls, distribution: AnyDistribution, dtype: npt.DTypeLike = np.float64, comm: MPI.Intracomm | None = None
    ) -> DistributedArray:
        """Return an array of zeros. Not collective."""
        return cls.full(distribution, 0, dtype, comm)

    @classmethod
    def _new(cls, distribution: AnyDistribution, dtype: npt.DTypeLike, comm: MPI.Intracomm | None) -> DistributedArray:
        comm = checked_communicator(comm)
        check_distribution("distribution", distribution)
        check_ranks("given", distribution, comm.size)
        return cls(np.empty(distribution.local_shape(comm.rank), dtype), distribution, comm)

    __hash__ = object.__hash__

    def __array_ufunc__(self, function: Any, *_: Any, **__: Any) -> NoReturn:  # of operators, too
        raise TypeError(f"numpy.{function.__name__} takes no DistributedArray: {_INSTEAD}")

    def __bool__(self) -> NoReturn:
        raise TypeError(f"a DistributedArray has no truth value: {_INSTEAD}")

    def __getitem__(self, *_: Any) -> NoReturn:
        raise TypeError(f"a DistributedArray has no indices: {_INSTEAD}")

    __setitem__ = __getitem__

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"a DistributedArray is not an array of NumPy: {_INSTEAD}")

    def __array_function__(self, function: Callable[..., Any], *_: Any) -> NoReturn:
        raise TypeError(f"numpy.{function.__name__} takes no DistributedArray: {_INSTEAD}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape, in elements."""
        return tuple(self.distribution.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions of the tensor."""
        return len(self.distribution.shape)

    @property
    def size(self) -> int:
        """Number of elements of the tensor."""
        return math.prod(self.distribution.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements of the tensor."""
        return self.size * self.dtype.itemsize

    def redistribute(self, target: AnyDistribution, **options: Unpack[Keywords]) -> DistributedArray:
        """
        Move the tensor to another distribution. Collective over :attr:`comm`.

        :param options: Arguments of :func:`dace_redist.redistribute`, such as ``axes`` and ``target_dtype``.
        """
        comm, out = options.pop("comm", None), options.pop("out", None)
        moved: DistributedArray = redistribute_known(self, target, comm, out, settings(options))
        return moved

    def gather(self, root: AnyInt = 0) -> Any:
        """
        Collect the tensor on one rank. Collective over :attr:`comm`.

        :return: The whole tensor on rank ``root``; None on all others.
        """
        comm = checked_communicator(self.comm)  # it may have been freed
        whole = self.redistribute(agreed_root("distribution", self.distribution, comm, root)).local
        return whole if comm.rank == root else None

    def allgather(self) -> npt.NDArray[Any]:
        """Return the whole tensor, on every rank. Collective over :attr:`comm`."""
        comm = checked_communicator(self.comm)
        whole: npt.NDArray[Any] = self.redistribute(Distribution.replicated(self.shape, comm.size)).local
        return whole

    def to(self, library: str, **how: Any) -> Any:
        """
        Return the array as one of another library, without a copy where the library allows it. Collective.

        :param library: Name of the library, see :mod:`dace_redist.interop`.
        :param how: Arguments of ``make`` in the module of that library.
        :raises ValueError: On every rank, if the library does not have the distribution; names one that it has. Or if
            ranks differ in the library, the distribution or the element type.
        :raises ImportError: On every rank, if the library cannot be imported on one of them.
        """
        facts: dict[str, object] = {"library": library, "distribution": self.distribution, "element type": self.dtype}
        facts["arguments"] = sorted(how)
        check_same(checked_communicator(self.comm), facts)  # before the import, collective in Heat
        with together(self.comm):
            module = interop.module_named(library)
            inspect.signature(module.make).bind(None, **how)
            if any(self.distribution.halo):
                raise ValueError("the array has a halo: redistribute() to a distribution without one first")
            if self.op is not None and library != "torch":
                raise ValueError(f"{library} has no partial results, as those of op={self.op!r}: redistribute() first")
        return module.make(part_of(self, self.comm), **how)

    def __repr__(self) -> str:
        op = "" if self.op is None else f", op={self.op!r}"
        ranks = self.comm.size if self.comm and not MPI.Is_finalized() else 0
        return f"DistributedArray(shape={self.shape}, dtype={self.dtype}, ranks={ranks}{op})"


def replicated(array: npt.ArrayLike, comm: MPI.Intracomm | None = None) -> DistributedArray:
    """
    Return an array that every rank has whole, as an operand of :func:`dace_redist.einsum`. Collective.

    :param array: The whole array, which is not copied.
    :param comm: mpi4py communicator; default: the world.
    :raises ValueError: On every rank, if the ranks differ in shape, type or in some of the elements; a sample of up to
        32 is compared.
    """
    comm, whole = checked_communicator(comm), np.asarray(array)
    facts = {"shape": whole.shape, "element type": whole.dtype}
    check_same(comm, facts | {"elements (a checksum)": sample_of(whole).hex()})
    return DistributedArray(whole, Distribution.replicated(whole.shape, comm.size), comm)


def redistribute_known(array: Any, target: Any, comm: Any, out: Any, how: Settings) -> Any:
    """Redistribute arrays that know their distributions; see :func:`dace_redist.redistribution.cache.move`."""
    lists = is_list(array)
    given = array if lists else [array]
    comm = checked_communicator(known_communicator(given) if comm is None else comm)
    try:
        if target is None:
            check_distribution("target", target)
        parts = [part_of(one, comm) for one in given]
        outs = _local_outs(out, target, comm)
    except Exception as error:
        fail_together(comm, error)
    if any(callable(part.distribution) for part in parts):
        shapes = shapes_on_ranks(comm, [part.local.shape for part in parts])
        parts = [
            part._replace(distribution=part.distribution(of_all)) if callable(part.distribution) else part
            for part, of_all in zip(parts, shapes, strict=True)
        ]
    arrays, sources, ops = ([getattr(part, name) for part in parts] for name in ("local", "distribution", "op"))
    if not lists:
        arrays, sources, ops = arrays[0], sources[0], ops[0]
    change = list(how[0])
    if change[_OP] is None:
        change[_OP] = ops
    results = move(arrays, sources, target, comm, outs, (tuple(change), *how[1:]))

    def made(result: Any, side: AnyDistribution, out: Any) -> DistributedArray:
        return out if isinstance(out, DistributedArray) else DistributedArray.of_checked(result, side, comm)

    return list(map(made, results, target, out or repeat(None))) if lists else made(results, target, out)


def _local_outs(out: Any, target: Any, comm: MPI.Intracomm) -> Any:
    """Return ``out`` with this rank's parts of distributed arrays, which must be distributed as the target."""
    if is_list(out) and is_list(target) and len(out) == len(target):
        return [_local_outs(one, side, comm) for one, side in zip(out, target, strict=True)]
    if not isinstance(out, DistributedArray):
        return out
    part = part_of(out, comm)
    if part.op is not None or not part.distribution.is_equivalent_to(target):
        raise ValueError(f"out must be distributed as target, {target}, without op, got {out.distribution}, {out.op}")
    return part.local


def known_communicator(arrays: Sequence[Any]) -> MPI.Intracomm | None:
    """Return the communicator of the first array that knows its own."""
    for one in arrays:
        if type(one) is not np.ndarray:  # which has none, and may be one of thousands
            comm = one.comm if isinstance(one, DistributedArray) else interop.communicator(one)
            if comm is not None:
                return comm
    return None


def part_of(array: Any, comm: MPI.Intracomm) -> interop.Part:
    """
    Return this rank's part of an array; of another library as one of NumPy, unless it lies on a GPU.

    :param comm: Communicator of the call, which must have the ranks of the array's.
    """
    if isinstance(array, DistributedArray):
        part = interop.Part(array.local, array.distribution, array.comm, array.op)
    else:
        part = interop.read(array, comm)
        view = array_view("array", part.local)
        if view.device == "cpu":
            part = part._replace(local=view.as_numpy())
    check_congruent(part.comm, comm)
    return part
