"""Plans that redistribute NumPy arrays, kept with their communicator from call to call. Start at: kept_plan."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, cast

from mpi4py import MPI

from dace_redist.mpi.collective_errors import together
from dace_redist.native import program
from dace_redist.redistribution.request import Request
from dace_redist.schedule import schedule
from dace_redist.selection.problem_key import Case
from dace_redist.selection.selection import NOT_IN_C_ORDER, Choice, choice_by_rule, choose_all
from dace_redist.strategies import AUTO

#: Plans kept per communicator; the one used least recently is freed first.
_PLANS_KEPT = 64


@dataclasses.dataclass
class Plan:
    """A state of a compiled program, and the options it runs with; the strategy is never ``"Auto"``."""

    program: program.Program
    state: int
    strategy: str
    options: dict[str, int | float]
    recorded: bool  # whether "Auto" took what was measured

    def free(self) -> None:
        """Frees what the program holds for it. Collective."""
        self.program.stop(self.state)


_Plans = OrderedDict[Request, Plan]


def _free_all(plans: _Plans) -> None:
    while plans:
        plans.popitem(last=False)[1].free()


#: Communicators carry their plans as an attribute, so that freeing one frees them.
_plans_of = MPI.Comm.Create_keyval(delete_fn=lambda comm, keyval, plans: _free_all(plans), nopython=False)


def _plans(comm: MPI.Intracomm) -> _Plans:
    plans: Any = comm.Get_attr(_plans_of)
    if plans is None:
        plans = OrderedDict()
        comm.Set_attr(_plans_of, plans)
        atexit.register(_free_all, plans)  # before MPI is finalized
    return cast(_Plans, plans)


def kept_plan(comm: MPI.Intracomm, request: Request) -> Plan:
    """The plan of a request; all ranks keep and drop plans in the same order. Collective."""
    plans = _plans(comm)
    if request in plans:
        plans.move_to_end(request)
        return plans[request]
    plan = new_plan(comm, request)
    while len(plans) >= _PLANS_KEPT:
        plans.popitem(last=False)[1].free()
    plans[request] = plan
    return plan


def new_plan(comm: MPI.Intracomm, request: Request) -> Plan:
    """A plan; where the strategy is ``"Auto"``, it is chosen now. Collective."""
    strategy, options, recorded = request.strategy, dict(request.options), False
    if strategy == AUTO.name:
        choice = _choice(comm, request)
        strategy, options, recorded = choice.strategy, {**choice.options, **options}, choice.recorded
    loaded = _load(comm, strategy)
    return Plan(loaded, loaded.start(), strategy, options, recorded)


def _choice(comm: MPI.Intracomm, request: Request) -> Choice:
    """What ``"Auto"`` stands for. Collective."""
    moves = schedule(request.source, request.target, dtype=request.dtype)
    if not request.memories:
        return choice_by_rule(Case(moves), comm, NOT_IN_C_ORDER)
    choices = choose_all([Case(moves, memory) for memory in request.memories], comm)
    return next((choice for choice in choices if choice.recorded), choices[0])


def forget_choices(comm: MPI.Intracomm) -> None:
    """Frees the plans of strategy ``"Auto"``, so that the next call chooses anew. Collective."""
    plans = _plans(comm)
    for request in [r for r in plans if r.strategy == AUTO.name]:
        plans.pop(request).free()


def plans_in_use(comm: MPI.Intracomm) -> list[tuple[str, dict[str, int | float]]]:
    """
    Strategy and options of the plans that a communicator keeps, the one used last at the end.

    :param comm: mpi4py communicator.
    """
    return [(plan.strategy, dict(plan.options)) for plan in _plans(comm).values()]


def forget(comm: MPI.Intracomm, plan: Plan) -> None:
    """Keeps a plan no longer, which failed and is not freed: MPI may still use it."""
    plans = _plans(comm)
    for request in [r for r, p in plans.items() if p is plan]:
        del plans[request]


_loaded: dict[str, program.Program] = {}


def _load(comm: MPI.Intracomm, strategy: str) -> program.Program:
    """Builds and loads a program; on each node one rank builds if need be. Collective."""
    if comm.allreduce(strategy in _loaded, MPI.LAND):
        return _loaded[strategy]
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    builds = node.rank == 0
    node.Free()
    with together(comm), _failing_as(f"cannot compile strategy {strategy}"):
        if builds:
            program.ensure_built(strategy)
    with together(comm), _failing_as(f"cannot load strategy {strategy}"):
        _loaded[strategy] = program.load(strategy)
    return _loaded[strategy]


@contextlib.contextmanager
def _failing_as(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise RuntimeError(f"{what}: {error}") from error
