"""Redistribution of arrays in one call, for mpi4py programs without DaCe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from dace_redist.native.interface import agree
from dace_redist.redistribution.agreement import agreed_arguments, agreed_joint_arguments
from dace_redist.redistribution.arguments import (
    JointArguments,
    PlanArguments,
    SourceTypes,
    checked_arguments,
    source_types,
)
from dace_redist.redistribution.device_arrays import ArrayView, array_view, empty_like_library, is_foreign
from dace_redist.redistribution.device_joint_plan import DeviceJointPlan
from dace_redist.redistribution.host_plan import build_library
from dace_redist.redistribution.joint_plan import check_count, check_joint_arrays, joint_arguments, listed, tensor_count
from dace_redist.redistribution.plan_cache import PlanCache, plan_cache
from dace_redist.redistribution.shared_arrays import is_shared


def redistribute(
    array: Any,
    source: Any,
    target: Any,
    *,
    comm: Any = None,
    out: Any = None,
    strategy: str = "Auto",
    axes: Any = None,
    region: Any = None,
    dtype: Any = None,
    alpha: Any = 1,
    beta: Any = 0,
    conj: Any = False,
    op: str | None = None,
    memory_bytes: int | None = None,
    **options: Any,
) -> Any:
    """
    Move a distributed tensor. Collective over ``comm``.

    Lists in the places of ``array``, ``source`` and ``target`` (and ``out``) move several tensors in one exchange, as
    :func:`dace_redist.plan` does.

    The first call with a pair of distributions makes a plan, which later calls reuse. The first call on a machine
    builds the package's library, which is kept on disk for later processes.

    :param array: This rank's part of the source, of shape ``source.local_shape(rank)`` and any strides. A rank that
        owns nothing of the source may pass None if it passes ``out``, also in a list. An array of NumPy, or of CuPy,
        PyTorch or another library with ``__cuda_array_interface__`` or ``__dlpack__``, in main memory or on a GPU.
    :param source: Distribution of the tensor before, over the ranks of ``comm``.
    :param target: Distribution after, of the same global shape except for ``axes`` and ``region``.
    :param comm: mpi4py communicator (default: the world). Every rank must call, even one that owns nothing.
    :param out: This rank's part of the target, of shape ``target.local_shape(rank)``; it must not overlap ``array``.
        Default: a new C-order array of the library and on the device of ``array``; in main memory it is node-shared if
        the strategy copies directly into it.
    :param strategy: Name of a strategy, see ``dace_redist.strategies``. ``"Auto"`` selects the fastest measured one
        (:func:`dace_redist.tune`), else one that the cost model predicts to be clearly faster than the default, else
        the default; see :func:`dace_redist.chosen_strategy`.
    :param axes: Permutation of the dimensions, as of ``numpy.transpose``: the source axis of each target axis.
        Default: no permutation.
    :param region: Sub-tensor to move: (source_offset, target_offset, shape), each offset in the axes of its own
        tensor, the shape in those of the source. The rest of ``out`` is unchanged; ``out`` is required unless the
        region covers the target. Default: the whole tensor.
    :param dtype: Element type of the target; default: that of ``array``. Elements are converted by NumPy's rule
        "same_kind"; messages hold the smaller of the two types.
    :param alpha: Factor of the source: the target becomes ``alpha * array + beta * out``, in its own type.
    :param beta: Factor of the target; if 0, ``out`` is not read. With ``op`` only if that is ``"sum"``.
    :param conj: True to conjugate the source.
    :param op: ``"sum"``, ``"prod"``, ``"min"`` or ``"max"``: replicas of the source are partial results, and the
        target becomes their reduction, in an order that is the same in every run. Default: replicas are equal.
    :param memory_bytes: Maximum bytes of buffers per rank, in addition to the arrays; a lower limit means more,
        smaller chunks. For strategies with chunks or slots; ``"Auto"`` is then the default strategy. Default: set by
        the options.
    :param options: Options of the strategy, e.g. ``chunk_bytes=1 << 20``; with ``"Auto"`` only common options.
    :return: This rank's part of the target: ``out`` if given.
    :raises ValueError: On every rank, if an argument is invalid on one of them, or if the ranks pass different
        arguments; names the rank, the expected and the given value.
    :raises TypeError: On every rank, if an argument has the wrong type on one of them.
    :raises RedistributionError: If MPI fails.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    cache = plan_cache(comm)
    # Key of the call in the plan cache; None if it needs the full check. Up to the first return every statement counts:
    # they take longer than moving a small tensor.
    call: Any = None
    found = None
    how = (strategy, memory_bytes, axes, region, dtype, alpha, beta, conj, op, *options.items())
    try:
        if isinstance(source, list) or isinstance(target, list):
            call = _call_of_lists(array, source, target, out, how)
            found = cache.find(call)
        elif isinstance(array, np.ndarray):
            there = None if out is None else is_shared(out)
            call = (id(source), id(target), array.dtype, is_shared(array), there, how)
            found = cache.find(call)
    except TypeError:  # not hashable
        call = None
    if found is not None:
        plan = found.plan
        result = plan.empty_target() if out is None else out
        try:
            if plan.run_if_agreed(found.digest, array, result):
                cache.touch(found.arguments)
                return result
        except Exception:
            cache.forget(plan)
            raise
    else:
        if cache.is_new:
            build_library(comm)
            cache.is_new = False
        agree(MPI._handleof(comm), 0)
    # Slow path: the call is new to a rank, its arrays need further checks, or the arguments of the ranks differ.
    values = {"axes": axes, "region": region, "dtype": dtype, "alpha": alpha, "beta": beta, "conj": conj, "op": op}
    if is_foreign(array) or is_foreign(out):

        def checked_views(array: Any, out: Any, told: SourceTypes) -> PlanArguments:
            return checked_arguments(
                array, source, target, comm, out, strategy, options, **values, memory_bytes=memory_bytes, told=told
            )

        return _redistribute_foreign(cache, comm, array, out, checked_views)
    moved: dict[str, Any] = {"strategy": strategy, "options": options, "memory_bytes": memory_bytes, "how": values}
    return _redistribute_checked(array, source, target, out, comm=comm, call=call, **moved)


def _redistribute_checked(
    array: Any,
    source: Any,
    target: Any,
    out: Any,
    *,
    comm: MPI.Intracomm,
    call: Any,
    strategy: str,
    options: dict[str, Any],
    memory_bytes: int | None,
    how: dict[str, Any],
) -> Any:
    """
    Redistribute with all checks, for a call that is not in the plan cache.

    :param call: Key under which the plan is registered for later calls; None: it is not registered.
    :param how: Arguments ``axes``, ``region``, ``dtype``, ``alpha``, ``beta``, ``conj`` and ``op`` by name.
    """
    several = isinstance(source, list) or isinstance(target, list)

    def checked(told: SourceTypes = ()) -> PlanArguments:
        return checked_arguments(
            array, source, target, comm, out, strategy, options, **how, memory_bytes=memory_bytes, told=told
        )

    def checked_lists(told: SourceTypes = ()) -> JointArguments:
        if failure is not None:
            raise failure
        if not isinstance(array, list) or not all(isinstance(one, np.ndarray | ArrayView | None) for one in views):
            raise TypeError(f"array must be a list of NumPy arrays, as source and target are lists, got {array!r}")
        count = tensor_count(source, target)
        wanted = target_views if isinstance(out, list) else [None] * count if out is None else out
        for name, given in (("array", array), ("out", wanted)):
            check_count(name, given, count)
        names = [f"array[{number}]" for number in range(count)]
        types = source_types(names, views, wanted, listed("dtype", how["dtype"], count), told)
        made = joint_arguments(types, source, target, comm, strategy, options, memory_bytes, how)
        check_joint_arrays(made, views, None if out is None else wanted, comm.rank)
        return made

    cache = plan_cache(comm)
    arguments: PlanArguments | JointArguments
    if several:
        views, target_views, failure = _views(array, out)
        arguments = agreed_joint_arguments(comm, views, target_views, checked_lists)
        foreign = any(isinstance(view, ArrayView) for view in (*views, *target_views))
        if foreign and "gpu" not in arguments.device:
            return _redistribute_foreign_lists(cache, comm, arguments, array, out)
    else:
        arguments = agreed_arguments(comm, array, out, checked)
    made = cache.get(comm, arguments)
    if call is not None and not isinstance(made, DeviceJointPlan):
        cache.remember(call, arguments, made, [list(side) if several else side for side in (source, target)])
    try:
        return made(array, out)
    except Exception:
        cache.forget(made)
        raise


def _redistribute_foreign(
    cache: PlanCache,
    comm: MPI.Intracomm,
    array: Any,
    out: Any,
    checked: Callable[[ArrayView | None, ArrayView | None, SourceTypes], PlanArguments],
) -> Any:
    """
    Redistribute an array of a library other than NumPy, in main memory or on a GPU.

    :param checked: Returns this rank's arguments from the views of its arrays and the source's type reported by other
        ranks; raises if an argument is invalid.
    """
    view = target_view = None
    failure: TypeError | None = None
    try:
        view = None if array is None else array_view("array", array)
        target_view = None if out is None else array_view("out", out)
    except TypeError as error:
        failure = error

    def checked_views(told: SourceTypes = ()) -> PlanArguments:
        if failure is not None:
            raise failure
        return checked(view, target_view, told)

    arguments = agreed_arguments(comm, view, target_view, checked_views)
    made = cache.get(comm, arguments)
    try:
        if "gpu" in arguments.device:
            return made(array, out)
        shape, dtype = arguments.target.local_shape(comm.rank), arguments.operation.target
        result = empty_like_library(array, shape, dtype) if out is None else out
        given: Any = None if view is None else view.as_numpy()
        wanted: Any = array_view("out", result).as_numpy()
        made(given, wanted)
        return result
    except Exception:
        cache.forget(made)
        raise


def _views(array: Any, out: Any) -> tuple[list[Any], list[Any], TypeError | None]:
    """Return the items of both lists, arrays of other libraries as views, and the error of an item without a view."""
    sources: list[Any] = []
    targets: list[Any] = []
    failure = None
    try:
        for name, given, seen in (("array", array, sources), ("out", out, targets)):
            for number, one in enumerate(given if isinstance(given, list) else ()):
                seen.append(array_view(f"{name}[{number}]", one) if is_foreign(one) else one)
    except TypeError as error:
        failure = error
    return sources, targets, failure


def _redistribute_foreign_lists(
    cache: PlanCache, comm: MPI.Intracomm, arguments: JointArguments, array: list[Any], out: list[Any] | None
) -> list[Any]:
    """Redistribute several tensors in main memory, some of which are of a library other than NumPy."""
    results = out
    if results is None:
        results = [
            empty_like_library(one, tensor.target.local_shape(comm.rank), tensor.operation.target)
            for one, tensor in zip(array, arguments.tensors, strict=True)
        ]
    given, wanted = (
        [None if one is None else array_view("array", one).as_numpy() for one in side] for side in (array, results)
    )
    made: Any = cache.get(comm, arguments)
    try:
        made(given, wanted)
    except Exception:
        cache.forget(made)
        raise
    return results


def _call_of_lists(array: Any, source: Any, target: Any, out: Any, how: tuple[Any, ...]) -> Any:
    """Return the key of a call with lists in the plan cache."""
    distributions = (tuple(map(id, source)), tuple(map(id, target)))
    types = tuple(one.dtype if isinstance(one, np.ndarray) else None for one in array)
    # "out is None" is part of the key: some redistributions require out
    return (
        *distributions,
        types,
        out is None,
        *((list, *value) if isinstance(value, list) else value for value in how),
    )
