"""Redistributes NumPy arrays at once: for mpi4py programs that contain no DaCe."""

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
    Moves a distributed tensor. Collective over ``comm``.

    Lists in the places of ``array``, ``source`` and ``target`` (and ``out``) move several tensors in one exchange, as
    :func:`dace_redist.plan` does.

    The first call with a pair of distributions plans, and later calls reuse the plan. The first call on a machine
    builds the package's library, which is kept on disk for all later processes.

    :param array: This rank's part of the source, of shape ``source.local_shape(rank)`` and any strides. A rank that
        owns nothing of the source may pass None if it passes ``out``, also in a list. An array of NumPy, or one of
        CuPy, PyTorch or another library with ``__cuda_array_interface__`` or ``__dlpack__``, in main memory or on a
        GPU.
    :param source: Distribution of the tensor now, over the ranks of ``comm``.
    :param target: Distribution wanted; of the same global shape, but for ``axes`` and ``region``.
    :param comm: mpi4py communicator (default: the world). Every rank of it must call, also one that owns nothing.
    :param out: Where to put this rank's part of the target, of shape ``target.local_shape(rank)``; it must not overlap
        ``array``. Default: a new C-order array of the library of ``array`` and where that lies, in main memory
        node-shared with the strategies that copy straight into it.
    :param strategy: How to move, see ``dace_redist.strategies``; ``"Auto"``: what was measured to be fastest for this
        redistribution here (:func:`dace_redist.tune`), else what the cost model predicts to be clearly faster than the
        default, else the default; see :func:`dace_redist.chosen_strategy`.
    :param axes: Permutes the dimensions on the way, as ``numpy.transpose``: the source axis that each target axis comes
        from. Default: the same order.
    :param region: Moves a sub-tensor: (source_offset, target_offset, shape), each offset in the axes of its own tensor,
        the shape in those of the source. The rest of ``out`` stays as it is, which must be given if there is a rest.
        Default: the whole tensor.
    :param dtype: Element type of the target; default: that of ``array``. Elements are converted on the way, by NumPy's
        rule "same_kind"; messages hold the smaller of the two types.
    :param alpha: The target gets ``alpha * array + beta * out``, in its own type.
    :param beta: See ``alpha``; 0: what is in ``out`` is not read. With ``op`` only where that is ``"sum"``.
    :param conj: Whether the source is conjugated.
    :param op: Replicas of the source are partial results, and the target gets their ``"sum"``, ``"prod"``, ``"min"``
        or ``"max"``: reduced one after another in an order that is the same in every run. Default: replicas are equal.
    :param memory_bytes: Most bytes of buffers that a rank takes besides the arrays: the tensor then moves in more,
        smaller chunks. For strategies with chunks or slots; ``"Auto"`` is the default one then. Default: as the options
        say.
    :param options: Options of the strategy, e.g. ``chunk_bytes=1 << 20``; with ``"Auto"`` those that all have.
    :return: This rank's part of the target: ``out`` if given.
    :raises ValueError: On every rank, if something does not fit on any of them, or if the ranks ask for different
        things; says which rank, what was expected and what was given.
    :raises TypeError: The same, for something of the wrong type.
    :raises RedistributionError: If MPI fails.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    cache = plan_cache(comm)
    # What distinguishes this call from others that need another plan; None if that takes the full check. A small tensor
    # moves in less time than these statements take up to the first return.
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
    # a rank has not asked for this before, its arrays need other checks, or the ranks ask for different things
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
    As :func:`redistribute`, of a call with which no plan was found: looks for one by the checked arguments.

    :param call: What distinguishes the call, by which its plan is found the next time; None: nothing does.
    :param how: What is done with the elements on the way: the arguments of these names.
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
    The same where an array is of another library than NumPy, in main memory or on a GPU.

    :param checked: What this rank asks for, from how its arrays lie and what other ranks tell of the source's type;
        raises if something does not fit.
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
    """How the arrays of two lists lie that are not of NumPy, the others themselves, and what is wrong with one."""
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
    """Several tensors in main memory, of which some are of another library than NumPy."""
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
    """What distinguishes a call with lists from others that need another plan."""
    distributions = (tuple(map(id, source)), tuple(map(id, target)))
    types = tuple(one.dtype if isinstance(one, np.ndarray) else None for one in array)
    # new targets may not be possible where given ones are
    return (
        *distributions,
        types,
        out is None,
        *((list, *value) if isinstance(value, list) else value for value in how),
    )
