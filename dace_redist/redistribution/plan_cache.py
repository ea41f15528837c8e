"""Plans that are kept with their communicator from call to call of ``redistribute``."""

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

#: Plans kept per communicator; the one used least recently is freed first.
_MOST_PLANS = 64


Arguments = PlanArguments | JointArguments
AnyPlan = Plan | JointPlan | DeviceJointPlan


class Found(NamedTuple):
    """
    A plan that was found by the arguments of a call.

    :param digest: Not 0, and the same on all ranks that found the same.
    :param keep: Objects of whose identity the arguments are remembered.
    """

    arguments: Arguments
    plan: Plan | JointPlan
    digest: int
    keep: Any


class PlanCache:
    """
    The plans of one communicator. All ranks keep and drop plans in the same order.

    Beside the plans it remembers by which arguments of a call each was found, so that the same call finds it again
    without a check of its arguments.
    """

    def __init__(self) -> None:
        self.is_new = True  # until the ranks have made sure that the library is there
        self._plans: OrderedDict[Arguments, AnyPlan] = OrderedDict()
        self._found: dict[Any, Found] = {}
        self._process = os.getpid()

    def get(self, comm: MPI.Intracomm, arguments: Arguments) -> AnyPlan:
        """The plan of some arguments, made if need be. Collective."""
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
        Finds a plan by the arguments of a call from now on.

        :param call: What distinguishes the call, hashable.
        :param keep: Objects of which ``call`` has the identity: they must live as long.
        """
        if len(self._found) > 16 * _MOST_PLANS:
            self._found.clear()
        self._found[call] = Found(arguments, plan, arguments.digest() or 1, keep)

    def find(self, call: Any) -> Found | None:
        """The plan of the same call before; None if there is none."""
        return self._found.get(call)

    def touch(self, arguments: Arguments) -> None:
        """Counts as a use of a plan that was found by :meth:`find`, on all ranks."""
        self._plans.move_to_end(arguments)

    def _drop(self, arguments: Arguments) -> AnyPlan:
        plan = self._plans.pop(arguments)
        self._found = {call: found for call, found in self._found.items() if found.plan is not plan}
        return plan

    def forget(self, plan: AnyPlan) -> None:
        """Keeps a plan no longer, which failed and is not freed: MPI may still use it."""
        for arguments in [r for r, p in self._plans.items() if p is plan]:
            self._drop(arguments)

    def forget_choices(self) -> None:
        """Frees the plans of strategy ``"Auto"``, so that the next call chooses anew. Collective."""
        for arguments in [r for r in self._plans if r.strategy == AUTO.name]:
            self._drop(arguments).free()

    def free(self) -> None:
        """Frees all plans. Collective."""
        while self._plans:
            self._drop(next(iter(self._plans))).free()

    def free_at_exit(self) -> None:
        """Frees all plans, unless a forked child ends: MPI is its parent's."""
        if os.getpid() == self._process:
            self.free()

    def plans(self) -> list[AnyPlan]:
        """The plans, the one used last at the end."""
        return list(self._plans.values())


#: The plans of each communicator, by its handle.
_CACHES: dict[int, PlanCache] = {}


def _communicator_freed(comm: MPI.Comm, _: int, cache: PlanCache) -> None:
    _CACHES.pop(MPI._handleof(comm), None)
    atexit.unregister(cache.free_at_exit)
    cache.free()


#: Communicators carry their plans as an attribute, so that freeing one frees them.
_KEY = MPI.Comm.Create_keyval(delete_fn=_communicator_freed, nopython=False)


def plan_cache(comm: MPI.Intracomm) -> PlanCache:
    """
    The plans of a communicator.

    :raises TypeError: If it is no communicator of this rank.
    """
    cache = _CACHES.get(MPI._handleof(comm)) if isinstance(comm, MPI.Intracomm) else None
    if cache is None:
        checked_communicator(comm)
        cache = _CACHES[MPI._handleof(comm)] = PlanCache()
        comm.Set_attr(_KEY, cache)
        atexit.register(cache.free_at_exit)  # before MPI is finalized
    return cache


def forget_choices(comm: MPI.Intracomm) -> None:
    """Frees the plans of strategy ``"Auto"``, so that the next call chooses anew. Collective."""
    plan_cache(comm).forget_choices()


def plans_in_use(comm: MPI.Intracomm) -> list[tuple[str, dict[str, int | float]]]:
    """
    Strategy and options of the plans that a communicator keeps, the one used last at the end.

    :param comm: mpi4py communicator.
    """
    return [(plan.strategy, dict(plan.options)) for plan in plan_cache(comm).plans()]
