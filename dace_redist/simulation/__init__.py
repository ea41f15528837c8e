"""Predicts redistributions and programs of einsums on described machines. Start reading at: simulate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dace_redist.einsum.plan import EinsumPlan
    from dace_redist.schedule import Schedule


def simulate(what: Schedule | EinsumPlan, machine: Any, **options: Any) -> Any:
    """
    Predict the time of a schedule, or of the plan of a program of einsums, on a machine.

    Parameters, results and errors are those of :func:`dace_redist.simulation.redistribution.simulate_schedule` and
    :func:`dace_redist.simulation.program.simulate_plan`.
    """
    from dace_redist.schedule import Schedule
    from dace_redist.simulation.program import simulate_plan
    from dace_redist.simulation.redistribution import simulate_schedule

    if isinstance(what, Schedule):
        return simulate_schedule(what, machine, **options)
    return simulate_plan(what, machine, **options)
