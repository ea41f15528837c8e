"""Redistribution in one call, for mpi4py programs without DaCe; arrays that know their distribution; whole tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from mpi4py import MPI

from dace_redist import interop
from dace_redist.distribution import AnyDistribution, check_distribution
from dace_redist.integers import AnyInt, AnyInts, AnyNumber
from dace_redist.mpi.collective import check_congruent, check_same, checked_communicator, together
from dace_redist.native.interface import agree, prepare
from dace_redist.redistribution.agreement import (
    Distributions,
    Types,
    agreed,
    agreed_problem,
    agreed_root,
    fail_together,
    shapes_of_all,
)
from dace_redist.redistribution.arrays import array_view
from dace_redist.redistribution.cache import PlanCache, key_of_call, plan_cache
from dace_redist.redistribution.problem import CHANGE, Arguments, check_part, check_ranks
from dace_redist.transform import Transform


def redistribute(
    array: Any,
    source: Distributions | None = None,
    target: Distributions | None = None,
    *,
    comm: MPI.Intracomm | None = None,
    out: Any = None,
    strategy: str = "Auto",
    axes: AnyInts | Sequence[AnyInts | None] | None = None,
    region: Sequence[Any] | None = None,
    target_dtype: Types | None = None,
    alpha: AnyNumber | Sequence[AnyNumber] = 1,
    beta: AnyNumber | Sequence[AnyNumber] = 0,
    conj: bool | Sequence[bool] = False,
    op: str | Sequence[str | None] | None = None,
    reshape: AnyInts | Sequence[AnyInts | None] | None = None,
    memory_bytes: AnyInt | None = None,
    **options: AnyInt | float,
) -> Any:
    """
    Move a distributed tensor. Collective over ``comm``.

    Lists in the places of ``array``, ``source`` and ``target`` (and ``out``) move several tensors in one exchange, as
    :func:`dace_redist.plan` does. The first call with a pair of distributions makes a plan, which later calls reuse.
    The first call on a machine builds the package's library, which is kept on disk for later processes.

    ``redistribute(array, target)`` takes an array that knows its distribution: a :class:`DistributedArray`, or one of
    another library, see :mod:`dace_redist.interop`. It returns a :class:`DistributedArray`; of lists, a list. Default
    of ``comm`` is the array's; a rank without such an array, which is an error on every rank, takes the world.

    Parameters that are not listed here, and errors, are those of :func:`dace_redist.plan`.

    :param array: This rank's part of the source. Its shape is ``source.local_shape(rank)``, with any strides. A rank
        that owns nothing of the source may pass None if it passes ``out``, also in a list. An array of NumPy, or of
        CuPy, PyTorch or another library with ``__cuda_array_interface__`` or ``__dlpack__``, in main memory or on a
        GPU. Not a ``numpy.ma.MaskedArray``: redistribute its data and its mask.
    :param out: This rank's part of the target, not overlapping ``array``; in a halo exchange it may be ``array``. Its
        shape is ``target.local_shape(rank)``. Required with ``beta``, and with a ``region`` that does not cover the
        target. Default: a new C-order array of the library and on the device of ``array``; in main memory it is
        node-shared if the strategy copies directly into it.
    :param target_dtype: Element type of the target; default: that of ``array``.
    :return: This rank's part of the target: ``out`` if given. Without ``source`` a :class:`DistributedArray`.
    :raises RedistributionError: If MPI or a GPU fails.
    :raises MemoryError: On every rank, if a new array does not fit into the memory of one.
    """
    how = (axes, region, target_dtype, alpha, beta, conj, op, reshape, strategy, memory_bytes, *options.items())
    if target is None or source is None:
        named = dict(zip((*CHANGE, "strategy", "memory_bytes"), how, strict=False))
        return _redistribute_known(array, target if source is None else source, comm, out, **named, **options)
    comm = MPI.COMM_WORLD if comm is None else comm
    cache = plan_cache(comm)
    # Up to the first return every statement counts: they take longer than moving a small tensor.
    found = call = None
    try:
        call = key_of_call(array, source, target, out, how)
        found = cache.calls.get(call)
    except TypeError:  # not hashable
        call = None
    if found is None:
        prepare(checked_communicator(comm))
        agree(MPI._handleof(comm), 0)
    else:
        plan, _ = found
        try:
            result = plan.empty_target() if out is None else out
        except MemoryError:
            result = None  # fits no plan: all ranks take the way below, where one reports it to the others
        try:
            if plan.run_if_agreed(array, result):
                cache.plans.move_to_end(plan.problem)  # used, on all ranks
                return result
        except Exception:
            cache.drop(plan.problem)
            raise
    given = Arguments(source, target, dict(zip(CHANGE, how, strict=False)), strategy, options, memory_bytes)
    return _redistribute_checked(cache, given, (array, out), comm, call)


def _redistribute_checked(
    cache: PlanCache, given: Arguments, arrays: tuple[Any, Any], comm: MPI.Intracomm, call: Any
) -> Any:
    """
    Redistribute with all checks: the call is new to a rank, its arrays need them, or the arguments of the ranks differ.
    The plan is registered under ``call`` for later calls, unless that is None.
    """
    problem, _ = agreed_problem(checked_communicator(comm), given, *arrays)
    plan = cache.get(comm, problem)
    if call is not None and not problem.on_gpu:
        kept = [list(side) if given.lists else side for side in (given.source, given.target)]
        cache.remember(call, plan, kept)
    (array, out), failure = arrays, None
    try:
        out = plan.empty_target(array) if out is None else out
    except Exception as error:
        failure = error
    agreed(comm, problem, failure)
    try:
        return plan(array, out)
    except Exception:
        cache.drop(problem)
        raise


class DistributedArray:
    """
    Array and its distribution over the ranks of a communicator. It has no arithmetic.

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

    __array_ufunc__ = None

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a DistributedArray is not an array of NumPy: gather() it, or pass its local array")

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape, in elements."""
        return tuple(self.distribution.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions of the tensor."""
        return len(self.distribution.shape)

    def redistribute(self, target: AnyDistribution, **options: Any) -> DistributedArray:
        """
        Move the tensor to another distribution. Collective over :attr:`comm`.

        :param options: Arguments of :func:`dace_redist.redistribute`, such as ``axes`` and ``target_dtype``.
        """
        moved: DistributedArray = redistribute(self, target, **options)
        return moved

    def gather(self, root: AnyInt = 0) -> Any:
        """
        Collect the tensor on one rank. Collective over :attr:`comm`.

        :return: The whole tensor on rank ``root``; None on all others.
        """
        comm = checked_communicator(self.comm)  # it may have been freed
        whole = self.redistribute(agreed_root("distribution", self.distribution, comm, root)).local
        return whole if comm.rank == root else None

    def to(self, library: str, **how: Any) -> Any:
        """
        Return the array as one of another library, without a copy where the library allows it. Collective.

        :param library: Name of the library, see :mod:`dace_redist.interop`.
        :param how: Arguments of ``make`` in the module of that library.
        :raises ValueError: On every rank, if the library does not have the distribution; names one that it has. Or if
            ranks differ in the library, the distribution or the element type.
        :raises ImportError: On every rank, if the library cannot be imported on one of them.
        """
        facts = {"library": library, "distribution": self.distribution, "element type": self.dtype}
        check_same(checked_communicator(self.comm), facts)  # before the import, collective in Heat
        with together(self.comm):
            module = interop.module_named(library)
            if any(self.distribution.halo):
                raise ValueError("the array has a halo: redistribute() to a distribution without one first")
            if self.op is not None and library != "torch":
                raise ValueError(f"{library} has no partial results, as those of op={self.op!r}: redistribute() first")
        return module.make(_part(self, self.comm), **how)

    def __repr__(self) -> str:
        op = "" if self.op is None else f", op={self.op!r}"
        ranks = self.comm.size if self.comm else 0
        return f"DistributedArray(shape={self.shape}, dtype={self.dtype}, ranks={ranks}{op})"


def _redistribute_known(array: Any, target: Any, comm: Any, out: Any, op: Any, **how: Any) -> Any:
    """Redistribute arrays that know their distributions; arguments as of :func:`redistribute`."""
    lists = isinstance(array, list)
    given = array if lists else [array]
    found = (one.comm if isinstance(one, DistributedArray) else interop.communicator(one) for one in given)
    comm = checked_communicator(next((one for one in found if one is not None), None) if comm is None else comm)
    try:
        if target is None:
            check_distribution("target", target)
        parts = [_part(one, comm) for one in given]
        for part in parts:
            check_congruent(part.comm, comm)
    except Exception as error:
        fail_together(comm, error)
    if any(callable(part.distribution) for part in parts):
        shapes = shapes_of_all(comm, [part.local.shape for part in parts])
        parts = [
            part._replace(distribution=part.distribution(of_all)) if callable(part.distribution) else part
            for part, of_all in zip(parts, shapes, strict=True)
        ]
    arrays, sources, ops = ([getattr(part, name) for part in parts] for name in ("local", "distribution", "op"))
    if not lists:
        arrays, sources, ops = arrays[0], sources[0], ops[0]
    results = redistribute(arrays, sources, target, comm=comm, out=out, op=ops if op is None else op, **how)
    if not lists:
        return DistributedArray(results, target, comm)
    return [DistributedArray(result, side, comm) for result, side in zip(results, target, strict=True)]


def _part(array: Any, comm: MPI.Intracomm) -> interop.Part:
    """Return this rank's part of an array; of another library as one of NumPy, unless it lies on a GPU."""
    if isinstance(array, DistributedArray):
        return interop.Part(array.local, array.distribution, array.comm, array.op)
    part = interop.read(array, comm)
    view = array_view("array", part.local)
    return part._replace(local=view.as_numpy()) if view.device == "cpu" else part


def scatter(whole: Any, target: AnyDistribution, comm: MPI.Intracomm | None = None, root: AnyInt = 0) -> Any:
    """
    Distribute a tensor that one rank has. Collective over ``comm``.

    :param whole: The tensor, of shape ``target.shape``, of any library that :func:`dace_redist.redistribute` takes.
        Only that of rank ``root`` is read.
    :param target: Distribution of the result.
    :param comm: mpi4py communicator; default: the world.
    :param root: Rank that has the tensor.
    :return: This rank's part: an array of NumPy; on rank ``root`` one of the library of ``whole``.
    :raises ValueError: On every rank, if an argument is invalid on one of them, as a tensor on a GPU.
    :raises TypeError: On every rank, if something is of the wrong type.
    """
    comm = checked_communicator(comm)
    source, element = agreed_root("target", target, comm, root), None
    with together(comm):
        if comm.rank == root:
            view = array_view("whole", whole)
            if view.shape != tuple(target.shape):
                raise ValueError(f"scatter: whole must have shape {tuple(target.shape)}, got {view.shape}")
            if view.device == "gpu":
                raise ValueError("scatter: whole must lie in main memory, but lies on the GPU: copy it first")
            element = view.dtype
    element = comm.bcast(element, int(root))
    part = whole if comm.rank == root else np.empty(source.local_shape(comm.rank), element)
    return redistribute(part, source, target, comm=comm)


def gather(part: Any, source: AnyDistribution, comm: MPI.Intracomm | None = None, root: AnyInt = 0) -> Any:
    """
    Collect a distributed tensor on one rank. Collective over ``comm``.

    :param part: This rank's part of the tensor, as for :func:`dace_redist.redistribute`.
    :param source: Its distribution.
    :param comm: mpi4py communicator; default: the world.
    :param root: Rank that gets the tensor.
    :return: The tensor, of the library and device of ``part``, on rank ``root``; None on all others.
    :raises ValueError: On every rank, if an argument is invalid on one of them.
    :raises TypeError: On every rank, if something is of the wrong type.
    """
    comm = checked_communicator(comm)
    whole = redistribute(part, source, agreed_root("source", source, comm, root), comm=comm)
    return whole if comm.rank == root else None
