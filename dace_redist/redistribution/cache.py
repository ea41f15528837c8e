"""Calls of ``redistribute``, and the cache of their plans, one per communicator. Start reading at: move."""

from __future__ import annotations

import atexit
import functools
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
from mpi4py import MPI

from dace_redist.integers import AnyBytes, AnyInt, AnyInts, AnyNumber
from dace_redist.mpi.collective import checked_communicator, together
from dace_redist.native.interface import check
from dace_redist.redistribution.problem import CHANGE, Arguments, Types, is_list
from dace_redist.redistribution.problem.agreement import agreed_problem, enter_without_plan
from dace_redist.redistribution.tensor_plan import Plan, run_if_agreed
from dace_redist.strategies import AUTO

#: Maximum number of plans per communicator, maximum bytes on a rank of the arrays of those that were not used last, and
#: number of those that were. With the arrays the buffers grow.
_MAX_PLANS, _MAX_BYTES, _USED_LAST = 128, 256 << 20, 8


class Known(NamedTuple):
    """
    Result of an earlier call: the plan, and its key in the cache.

    :param same: How all ranks find that they make the same call: a function that then runs the plan, or a digest.
    :param kept: Objects whose ``id`` is part of the call's key; they live as long, so that ids are not reused.
    """

    plan: Any
    key: Any
    same: Any
    kept: Any = None


class PlanCache:
    """
    Plans of one communicator, of redistributions and of einsums. All ranks keep and drop them in the same order.

    :ivar plans: Plans by their keys, a :class:`Problem` or what describes an einsum, the most recently used one last.
    :ivar calls: What is known of earlier calls by their arguments, so that an equal call skips the checks.
    """

    def __init__(self) -> None:
        self.calls: dict[Any, Known] = {}
        self.plans: OrderedDict[Any, Any] = OrderedDict()
        # Of arrays, by id of the plan: the most on a rank, but of the plan made last those of this rank.
        self._bytes: dict[int, int] = {}

    def get(self, comm: MPI.Intracomm, key: Any, make: Callable[[], Any]) -> Any:
        """Return the plan of a key, made on first use, or anew where it failed on some rank. Collective."""
        plan, (last, nbytes) = self.plans.get(key), next(reversed(self._bytes.items()), (0, 0))
        facts = np.array([plan is None, nbytes])
        comm.Allreduce(MPI.IN_PLACE, facts, MPI.MAX)
        missing, nbytes = facts.tolist()
        if last:
            self._bytes[last] = nbytes
        if missing:
            if plan is not None:
                self.drop(key)
            if len(self.plans) >= _USED_LAST:
                self._make_room()
            self.plans[key] = plan = make()
            self._bytes[id(plan)] = plan._array_bytes
        self.plans.move_to_end(key)
        return plan

    def _make_room(self) -> None:
        """Free plans for another one."""
        kept = 0
        for number, (key, plan) in enumerate([*reversed(self.plans.items())], 1):
            if number < _USED_LAST:
                continue
            if number < _MAX_PLANS and kept + self._bytes[id(plan)] <= _MAX_BYTES:
                kept += self._bytes[id(plan)]
            else:
                self.drop(key)

    def remember(self, call: Any, known: Known) -> None:
        """Register what is known under the arguments of a call, which are hashable."""
        if len(self.calls) > 16 * _MAX_PLANS:
            self.calls.clear()
        self.calls[call] = known

    def drop(self, key: Any) -> None:
        """Take a plan out and free it; of one that failed, the library keeps what MPI or other ranks may still use."""
        plan = self.plans.pop(key)
        self._bytes.pop(id(plan), None)
        self.calls = {call: known for call, known in self.calls.items() if known.plan is not plan}
        plan.free()

    def free(self) -> None:
        """Free all plans."""
        while self.plans:
            self.drop(next(iter(self.plans)))


#: Plan caches by the handle of the communicator. A forked child has none: MPI belongs to its parent.
_CACHES: dict[int, PlanCache] = {}
os.register_at_fork(after_in_child=_CACHES.clear)


@atexit.register  # before MPI is finalized
def _free_all() -> None:
    for cache in list(_CACHES.values()):  # a daemon thread may add one
        cache.free()


def _communicator_freed(comm: MPI.Comm, _: int, cache: PlanCache) -> None:
    _CACHES.pop(MPI._handleof(comm), None)
    cache.free()


@functools.cache  # not at the import: MPI may be initialized later
def _key() -> int:
    """Return the key of the attribute by which communicators carry their plans, so that freeing one frees them."""
    return MPI.Comm.Create_keyval(delete_fn=_communicator_freed, nopython=False)


def plan_cache(comm: MPI.Intracomm) -> PlanCache:
    """Return the plan cache of a communicator; a TypeError if it is not a communicator of this rank."""
    cache = _CACHES.get(MPI._handleof(comm)) if isinstance(comm, MPI.Intracomm) else None
    if cache is None:
        checked_communicator(comm)
        cache = _CACHES[MPI._handleof(comm)] = PlanCache()
        comm.Set_attr(_key(), cache)
    return cache


def plans_in_use(comm: MPI.Intracomm) -> list[tuple[str, dict[str, int | float]]]:
    """Return strategy and options of the cached plans of a communicator, the most recently used one last."""
    plans = plan_cache(comm).plans.values()
    return [(plan.strategy, dict(plan.options)) for plan in plans if isinstance(plan, Plan)]


def key_of_call(array: Any, source: Any, target: Any, out: Any, how: tuple[Any, ...]) -> Any:
    """Return the key of a call in the plan cache; None if it needs the full check."""
    if isinstance(array, np.ndarray):
        return id(source), id(target), array.dtype, out is None, how
    if not is_list(array):
        return None
    plain = {*map(type, array)} == {np.ndarray}  # quicker than a look at each of a thousand
    types = tuple([one.dtype if plain or isinstance(one, np.ndarray) else None for one in array])
    listed = tuple([(list, *value) if isinstance(value, list) else value for value in how[0]])
    # "out is None" is part of the key: some redistributions require out
    return tuple(map(id, source)), tuple(map(id, target)), types, out is None, listed, *how[1:]


class Keywords(TypedDict, total=False):
    """Keyword arguments of :func:`dace_redist.redistribute`, for type checkers."""

    comm: MPI.Intracomm | None
    out: Any
    strategy: str
    axes: AnyInts | Sequence[AnyInts | None] | None
    region: Sequence[Any] | None
    target_dtype: Types | None
    alpha: AnyNumber | Sequence[AnyNumber]
    beta: AnyNumber | Sequence[AnyNumber]
    conj: bool | Sequence[bool]
    op: str | Sequence[str | None] | None
    reshape: AnyInts | Sequence[AnyInts | None] | None
    wire: Types | None
    within_nodes: bool | Sequence[bool]
    accumulate: Types | None
    reproducible: bool | Sequence[bool]
    memory_bytes: AnyBytes | None
    chunk_bytes: AnyInt
    depth: AnyInt
    growth: float
    threads: AnyInt
    slot_bytes: AnyInt
    max_message_bytes: AnyInt
    join_bytes: AnyInt
    max_in_flight_bytes: AnyInt


#: Arguments of a call: the values of :data:`CHANGE`, strategy, memory_bytes, options as of :func:`typed`, and the names
#: of the tensors or None.
Settings = tuple[tuple[Any, ...], Any, Any, tuple[Any, Any], Any]
_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(CHANGE),
    **{"alpha": 1, "beta": 0, "conj": False, "within_nodes": False, "reproducible": False},
}


def typed(options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return options, then the types of their values, for a key: a number may equal True, which is no option."""
    return tuple(options.items()), tuple(map(type, options.values()))


#: No options.
NO_OPTIONS = typed({})


def settings(arguments: Mapping[str, Any]) -> Settings:
    """Return keyword arguments of :func:`dace_redist.redistribute`, with its defaults."""
    options = dict(arguments)
    change = tuple([options.pop(name, default) for name, default in _DEFAULTS.items()])
    return change, options.pop("strategy", AUTO), options.pop("memory_bytes", None), typed(options), None


def move(array: Any, source: Any, target: Any, comm: MPI.Intracomm | None, out: Any, how: Settings) -> Any:
    """Move tensors between given distributions, by the plan of an equal call; see :func:`dace_redist.redistribute`."""
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
        enter_without_plan(checked_communicator(comm))
    else:
        plan, problem, run, _ = found
        try:
            result = plan.empty_target() if out is None else out
        except MemoryError:
            result = None  # fits no plan: all ranks take the way below, where one reports it to the others
        try:
            code = run(array, result)
            if code > 0:
                check(code)
            if code == 0:
                cache.plans.move_to_end(problem)  # used, on all ranks
                return result
        except Exception:
            cache.drop(problem)
            raise
    return _move_checked(cache, (array, source, target, out, how), comm, call)


def _move_checked(cache: PlanCache, arguments: tuple[Any, ...], comm: MPI.Intracomm, call: Any) -> Any:
    """
    Move with all checks: the call is new to a rank, its arrays need them, or the arguments of the ranks differ. The
    plan is registered under ``call`` for later calls, unless that is None.
    """
    array, source, target, out, how = arguments
    change, strategy, memory_bytes, (options, _), names = how
    of_tensors = dict(zip(CHANGE, change, strict=True))
    given = Arguments(source, target, of_tensors, strategy, dict(options), memory_bytes, names)
    problem, _ = agreed_problem(checked_communicator(comm), given, array, out)
    plan = cache.get(comm, problem, lambda: Plan(comm, problem))
    problem = plan._problem  # that of the first such call: with itself it is compared at once
    if call is not None and not problem.on_gpu:
        kept = [list(side) if problem.lists else side for side in (source, target)]
        cache.remember(call, Known(plan, problem, run_if_agreed(plan), kept))
    with together(comm):
        out = plan.empty_target(array) if out is None else out
    try:
        return plan(array, out)
    except Exception:
        cache.drop(problem)
        raise
