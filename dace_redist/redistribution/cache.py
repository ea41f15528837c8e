"""Cache of the plans of ``redistribute``, one per communicator."""

from __future__ import annotations

import atexit
import os
from collections import OrderedDict
from typing import Any

import numpy as np
from mpi4py import MPI

from dace_redist import _core
from dace_redist.mpi.collective import checked_communicator, forget_fact
from dace_redist.redistribution.plan import Plan
from dace_redist.redistribution.problem import MEASURED, Problem
from dace_redist.strategies import AUTO

#: Maximum number of plans per communicator; the least recently used one is freed first.
_MAX_PLANS = 64


class PlanCache:
    """
    Plans of one communicator. All ranks keep and drop plans in the same order.

    :ivar plans: Plans by their problems, the most recently used one last.
    :ivar calls: Plans by the arguments of earlier calls, so that an equal call skips the checks; with the objects whose
        ``id`` is part of the key, which live as long, so that ids are not reused.
    """

    def __init__(self) -> None:
        self.calls: dict[Any, tuple[Plan, Any]] = {}
        self.plans: OrderedDict[Problem, Plan] = OrderedDict()

    def get(self, comm: MPI.Intracomm, problem: Problem) -> Plan:
        """Return the plan of a problem, made on first use. Collective."""
        if problem not in self.plans:
            plan = Plan(comm, problem)
            if len(self.plans) >= _MAX_PLANS:
                self.drop(next(iter(self.plans))).free()
            self.plans[problem] = plan
        self.plans.move_to_end(problem)
        return self.plans[problem]

    def remember(self, call: Any, plan: Plan, kept: Any) -> None:
        """Register a plan under the arguments of a call, which are hashable."""
        if len(self.calls) > 16 * _MAX_PLANS:
            self.calls.clear()
        self.calls[call] = plan, kept

    def drop(self, problem: Problem) -> Plan:
        """Take a plan out and return it. One that failed is not to be freed: MPI may still use its buffers."""
        plan = self.plans.pop(problem)
        self.calls = {call: found for call, found in self.calls.items() if found[0] is not plan}
        return plan

    def free(self, strategy: str | None = None) -> None:
        """Free the plans of problems with a strategy; default: all plans."""
        for problem in [problem for problem in self.plans if strategy in (None, problem.strategy)]:
            self.drop(problem).free()


#: Plan caches by the handle of the communicator. A forked child has none: MPI belongs to its parent.
_CACHES: dict[int, PlanCache] = {}
os.register_at_fork(after_in_child=_CACHES.clear)


@atexit.register  # before MPI is finalized
def _free_all() -> None:
    for cache in _CACHES.values():
        cache.free()


def _communicator_freed(comm: MPI.Comm, _: int, cache: PlanCache) -> None:
    _CACHES.pop(MPI._handleof(comm), None)
    cache.free()


#: Communicators carry their plans as an attribute, so that freeing one frees them.
_KEY = MPI.Comm.Create_keyval(delete_fn=_communicator_freed, nopython=False)


def plan_cache(comm: MPI.Intracomm) -> PlanCache:
    """Return the plan cache of a communicator; a TypeError if it is not a communicator of this rank."""
    cache = _CACHES.get(MPI._handleof(comm)) if isinstance(comm, MPI.Intracomm) else None
    if cache is None:
        checked_communicator(comm)
        cache = _CACHES[MPI._handleof(comm)] = PlanCache()
        comm.Set_attr(_KEY, cache)
    return cache


def forget_choices(comm: MPI.Intracomm) -> None:
    """Have strategy ``"Auto"`` choose again: free its plans, and look for measurements. Collective."""
    forget_fact(comm, MEASURED)
    plan_cache(comm).free(AUTO.name)


def plans_in_use(comm: MPI.Intracomm) -> list[tuple[str, dict[str, int | float]]]:
    """Return strategy and options of the cached plans of a communicator, the most recently used one last."""
    return [(plan.strategy, dict(plan.options)) for plan in plan_cache(comm).plans.values()]


def key_of_call(array: Any, source: Any, target: Any, out: Any, how: tuple[Any, ...]) -> Any:
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
