"""Cache of the plans of ``redistribute``, one per communicator."""

from __future__ import annotations

import atexit
import os
from collections import OrderedDict
from typing import Any, NamedTuple

from mpi4py import MPI

from dace_redist.mpi.collective import checked_communicator
from dace_redist.redistribution.arguments import JointArguments, PlanArguments
from dace_redist.redistribution.device_joint_plan import DeviceJointPlan, make_joint_plan
from dace_redist.redistribution.device_plan import make_plan
from dace_redist.redistribution.host_plan import Plan
from dace_redist.redistribution.joint_plan import JointPlan
from dace_redist.strategies import AUTO

#: Maximum number of plans per communicator; the least recently used one is freed first.
_MOST_PLANS = 64


Arguments = PlanArguments | JointArguments
AnyPlan = Plan | JointPlan | DeviceJointPlan


class Found(NamedTuple):
    """
    A plan found by the arguments of a call.

    :param digest: Hash of the arguments, not 0, equal on all ranks that found equal arguments.
    :param keep: Objects whose ``id`` is part of the key; kept alive so that ids are not reused.
    """

    arguments: Arguments
    plan: Plan | JointPlan
    digest: int
    keep: Any


class PlanCache:
    """
    Plans of one communicator. All ranks keep and drop plans in the same order.

    It also maps the arguments of earlier calls to their plans, so that an equal call skips the checks.
    """

    def __init__(self) -> None:
        self.is_new = True  # until the ranks have built the library
        self._plans: OrderedDict[Arguments, AnyPlan] = OrderedDict()
        self._found: dict[Any, Found] = {}
        self._process = os.getpid()

    def get(self, comm: MPI.Intracomm, arguments: Arguments) -> AnyPlan:
        """Return the plan of some arguments, made on first use. Collective."""
        if arguments in self._plans:
            self._plans.move_to_end(arguments)
            return self._plans[arguments]
        plan: AnyPlan
        if isinstance(arguments, JointArguments):
            plan = make_joint_plan(comm, arguments)
        else:
            plan = make_plan(comm, arguments)
        while len(self._plans) >= _MOST_PLANS:
            self._drop(next(iter(self._plans))).free()
        self._plans[arguments] = plan
        return plan

    def remember(self, call: Any, arguments: Arguments, plan: Plan | JointPlan, keep: Any) -> None:
        """
        Register a plan under the arguments of a call.

        :param call: Key of the call, hashable.
        :param keep: Objects whose ``id`` is part of ``call``; kept alive so that ids are not reused.
        """
        if len(self._found) > 16 * _MOST_PLANS:
            self._found.clear()
        self._found[call] = Found(arguments, plan, arguments.digest() or 1, keep)

    def find(self, call: Any) -> Found | None:
        """Return the plan registered under a key; None without one."""
        return self._found.get(call)

    def touch(self, arguments: Arguments) -> None:
        """Mark a plan found by :meth:`find` as used, on all ranks."""
        self._plans.move_to_end(arguments)

    def _drop(self, arguments: Arguments) -> AnyPlan:
        plan = self._plans.pop(arguments)
        self._found = {call: found for call, found in self._found.items() if found.plan is not plan}
        return plan

    def forget(self, plan: AnyPlan) -> None:
        """Drop a plan that failed, without freeing it: MPI may still use its buffers."""
        for arguments in [r for r, p in self._plans.items() if p is plan]:
            self._drop(arguments)

    def forget_choices(self) -> None:
        """Free the plans of strategy ``"Auto"``, so that the next call chooses again. Collective."""
        for arguments in [r for r in self._plans if r.strategy == AUTO.name]:
            self._drop(arguments).free()

    def free(self) -> None:
        """Free all plans. Collective."""
        while self._plans:
            self._drop(next(iter(self._plans))).free()

    def free_at_exit(self) -> None:
        """Free all plans, except in a forked child: MPI belongs to its parent."""
        if os.getpid() == self._process:
            self.free()

    def plans(self) -> list[AnyPlan]:
        """Plans, the most recently used one last."""
        return list(self._plans.values())


#: Plan caches by the handle of the communicator.
_CACHES: dict[int, PlanCache] = {}


def _communicator_freed(comm: MPI.Comm, _: int, cache: PlanCache) -> None:
    _CACHES.pop(MPI._handleof(comm), None)
    atexit.unregister(cache.free_at_exit)
    cache.free()


#: Communicators carry their plans as an attribute, so that freeing one frees them.
_KEY = MPI.Comm.Create_keyval(delete_fn=_communicator_freed, nopython=False)


def plan_cache(comm: MPI.Intracomm) -> PlanCache:
    """
    Return the plan cache of a communicator.

    :raises TypeError: If it is not a communicator of this rank.
    """
    cache = _CACHES.get(MPI._handleof(comm)) if isinstance(comm, MPI.Intracomm) else None
    if cache is None:
        checked_communicator(comm)
        cache = _CACHES[MPI._handleof(comm)] = PlanCache()
        comm.Set_attr(_KEY, cache)
        atexit.register(cache.free_at_exit)  # before MPI is finalized
    return cache


def forget_choices(comm: MPI.Intracomm) -> None:
    """Free the plans of strategy ``"Auto"``, so that the next call chooses again. Collective."""
    plan_cache(comm).forget_choices()


def plans_in_use(comm: MPI.Intracomm) -> list[tuple[str, dict[str, int | float]]]:
    """
    Return strategy and options of the cached plans of a communicator, the most recently used one last.

    :param comm: mpi4py communicator.
    """
    return [(plan.strategy, dict(plan.options)) for plan in plan_cache(comm).plans()]
