"""Redistribution of arrays in one call, for mpi4py programs without DaCe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from dace_redist import _core
from dace_redist.native.interface import agree, prepare
from dace_redist.redistribution.agreement import agreed_problem
from dace_redist.redistribution.cache import Found, PlanCache, plan_cache
from dace_redist.redistribution.planning import Distributions, Types
from dace_redist.redistribution.problem import Arguments


def redistribute(
    array: Any,
    source: Distributions,
    target: Distributions,
    *,
    comm: MPI.Intracomm | None = None,
    out: Any = None,
    strategy: str = "Auto",
    axes: Sequence[int] | Sequence[Sequence[int] | None] | None = None,
    region: Sequence[Any] | None = None,
    target_dtype: Types | None = None,
    alpha: complex | Sequence[complex] = 1,
    beta: complex | Sequence[complex] = 0,
    conj: bool | Sequence[bool] = False,
    op: str | Sequence[str | None] | None = None,
    reshape: Sequence[int] | Sequence[Sequence[int] | None] | None = None,
    memory_bytes: int | None = None,
    **options: int | float,
) -> Any:
    """
    Move a distributed tensor. Collective over ``comm``.

    Lists in the places of ``array``, ``source`` and ``target`` (and ``out``) move several tensors in one exchange, as
    :func:`dace_redist.plan` does. The first call with a pair of distributions makes a plan, which later calls reuse.
    The first call on a machine builds the package's library, which is kept on disk for later processes.

    Parameters that are not listed here, and errors, are those of :func:`dace_redist.plan`.

    :param array: This rank's part of the source, of shape ``source.local_shape(rank)`` and any strides. A rank that
        owns nothing of the source may pass None if it passes ``out``, also in a list. An array of NumPy, or of CuPy,
        PyTorch or another library with ``__cuda_array_interface__`` or ``__dlpack__``, in main memory or on a GPU.
    :param out: This rank's part of the target, of shape ``target.local_shape(rank)``; it must not overlap ``array``.
        Required with ``beta``, and with a ``region`` that does not cover the target. Default: a new C-order array of
        the library and on the device of ``array``; in main memory it is node-shared if the strategy copies directly
        into it.
    :param target_dtype: Element type of the target; default: that of ``array``.
    :return: This rank's part of the target: ``out`` if given.
    :raises RedistributionError: If MPI or a GPU fails.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    cache = plan_cache(comm)
    # Up to the first return every statement counts: they take longer than moving a small tensor.
    how = (strategy, memory_bytes, axes, region, target_dtype, alpha, beta, conj, op, reshape, *options.items())
    found = call = None
    try:
        call = _key(array, source, target, out, how)
        found = cache.calls.get(call)
    except TypeError:  # not hashable
        call = None
    if found is None:
        prepare(comm)
        agree(MPI._handleof(comm), 0)
    else:
        plan = found.plan
        result = plan.empty_target() if out is None else out
        try:
            if plan.run_if_agreed(found.problem.digest, array, result):
                cache.touch(found.problem)
                return result
        except Exception:
            cache.forget(plan)
            raise
    change: dict[str, Any] = {"axes": axes, "region": region, "target_dtype": target_dtype}
    change |= {"alpha": alpha, "beta": beta, "conj": conj, "op": op, "reshape": reshape}
    given = Arguments(source, target, change, strategy, options, memory_bytes)
    return _redistribute_checked(cache, given, (array, out), comm, call)


def _key(array: Any, source: Any, target: Any, out: Any, how: tuple[Any, ...]) -> Any:
    """Return the key of a call in the plan cache; None if it needs the full check."""
    if isinstance(array, np.ndarray):
        there = None if out is None else _core.is_shared(out)
        return id(source), id(target), array.dtype, _core.is_shared(array), there, how
    if not isinstance(array, list):
        return None
    types = tuple(one.dtype if isinstance(one, np.ndarray) else None for one in array)
    listed = ((list, *value) if isinstance(value, list) else value for value in how)
    # "out is None" is part of the key: some redistributions require out
    return tuple(map(id, source)), tuple(map(id, target)), types, out is None, *listed


def _redistribute_checked(
    cache: PlanCache, given: Arguments, arrays: tuple[Any, Any], comm: MPI.Intracomm, call: Any
) -> Any:
    """
    Redistribute with all checks: the call is new to a rank, its arrays need them, or the arguments of the ranks differ.

    :param arrays: Source and target of the call.
    :param call: Key under which the plan is registered for later calls; None: it is not registered.
    """
    problem, _ = agreed_problem(comm, given, *arrays)
    plan = cache.get(comm, problem)
    if call is not None and not problem.on_gpu:
        kept = [list(side) if given.lists else side for side in (given.source, given.target)]
        cache.remember(call, Found(problem, plan, kept))
    try:
        return plan(*arrays)
    except Exception:
        cache.forget(plan)
        raise
