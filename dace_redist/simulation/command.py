"""The sub-command ``dace-redist simulate``. Needs neither DaCe nor MPI."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dace_redist.einsum.command import index_sizes, multiplied_type, read_statements
from dace_redist.problem_options import (
    GroupedCommand,
    described_schedule,
    file_option,
    given_problem_options,
    json_option,
    memory_option,
    plot_option,
    problem_options,
    ranks_per_node_option,
    whole_numbers,
)
from dace_redist.report.units import format_seconds
from dace_redist.strategies import host_strategies
from dace_redist.tuning.problem import MAIN_MEMORIES

if TYPE_CHECKING:
    from dace_redist.simulation.program import SimulatedProgram
    from dace_redist.simulation.redistribution import SimulatedRedistribution

_SHIPPED = ", ".join(sorted(path.stem for path in Path(__file__).with_name("machines").glob("*.yaml")))
_KNOWN = ", ".join(host_strategies())
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(cls=GroupedCommand)
@click.argument("einsums", required=False)
@functools.partial(problem_options, required=False)
@click.option(
    "--sizes", metavar="LIST", multiple=True, callback=index_sizes, help="size of each index of the einsums: i=512,a=24"
)
@click.option(
    "--ranks", metavar="LIST", callback=whole_numbers(), help="ranks for the einsums; several show how it scales"
)
@click.option("--weak", is_flag=True, help="sizes are those for one rank, and grow with the ranks")
@click.option("--machine", metavar="FILE", required=True, help=f"machine file, or one of the package's: {_SHIPPED}")
@ranks_per_node_option(help="ranks on each node; default: one per core")
@click.option("--scattered", is_flag=True, help="place nodes anywhere in the machine, not side by side")
@click.option(
    "--strategy", "strategies", multiple=True, metavar="NAME", help=f"strategy to predict, repeatable: {_KNOWN}"
)
@memory_option(MAIN_MEMORIES)
@click.option("--traces", type=_FOLDER, help="folder to write traces for SimGrid to")
@click.option("--replay", is_flag=True, help="with --traces: replay them by SimGrid, and print its time")
@file_option("--goal", help="file to write GOAL text for LogGOPSim to")
@plot_option
@json_option
def simulate(einsums: str | None, **given: Any) -> None:
    """
    Predict run time on another machine.

    Predicts a redistribution, or a program of einsums.

    \b
    dace-redist simulate --shape 8192,8192 --from 512 --to 1,512 --machine fat-tree
    dace-redist simulate 'ij,jk->ik; ik,kl->il' --sizes i=4096,j=4096,k=4096,l=4096 \\
        --ranks 1,8,64,512 --weak --machine piz-daint --ranks-per-node 1 --plot scaling.png
    """  # noqa: D301 (click reads the backspace)
    if given["replay"] and given["traces"] is None:
        raise click.BadParameter("goes with --traces", param_hint="--replay")
    simulated: Any
    exported: SimulatedRedistribution | SimulatedProgram
    if einsums is None:
        simulated = exported = _redistribution(given)
    else:
        from dace_redist.simulation.program import Scaling

        programs = _programs(einsums, given)
        exported = programs[-1]
        simulated = Scaling(programs, given["weak"]) if len(programs) > 1 else exported
    replayed = _export(exported, given)
    if given["path"] is not None:
        simulated.plot(given["path"])
    if given["as_json"]:
        click.echo(json.dumps(simulated.to_json() | ({} if replayed is None else {"replayed_seconds": replayed})))
    else:
        by = "" if replayed is None else f"\nreplay    {format_seconds(replayed)} by SimGrid"
        click.echo(f"{simulated}{by}")


def _redistribution(given: dict[str, Any]) -> SimulatedRedistribution:
    from dace_redist.simulation.redistribution import simulate_schedule

    for option, value in (("--shape", given["shape"]), ("--from", given["source"]), ("--to", given["target"])):
        if value is None:
            raise click.UsageError(f"missing {option}: name --shape, --from and --to of a redistribution, or einsums")
    for option in ("sizes", "ranks", "weak"):
        if given[option]:
            raise click.BadParameter("goes with einsums", param_hint=f"--{option}")
    schedule = described_schedule(given)
    options = {name: given[name] for name in ("ranks_per_node", "scattered", "memory", "strategies")}
    return simulate_schedule(schedule, given["machine"], **options)


def _programs(einsums: str, given: dict[str, Any]) -> list[SimulatedProgram]:
    """Return the einsums on each number of ranks, ascending."""
    from dace_redist.einsum.planner import plan_einsums
    from dace_redist.simulation.machine import Job, Machine
    from dace_redist.simulation.program import simulate_plan

    _check_einsums(given)
    machine, programs = Machine.load(given["machine"]), []
    options = {name: given[name] for name in ("ranks_per_node", "scattered")}
    strategy = (*given["strategies"], "Auto")[0]
    sizes, power = given["sizes"], _growth(einsums, given["sizes"]) if given["weak"] else math.inf
    for ranks in sorted(set(given["ranks"])):
        scaled = {index: round(ranks ** (1 / power) * size) for index, size in sizes.items()}
        statements, shapes = read_statements(einsums, scaled)
        job = Job.of(machine, ranks, **options)  # an error before it is planned
        each = job.ranks_per_node if ranks % job.ranks_per_node == 0 else None
        plan = plan_einsums(statements, shapes, ranks, itemsize=given["dtype"].itemsize, node_size=each)
        programs.append(simulate_plan(plan, machine, strategy=strategy, **options))
    return programs


def _growth(einsums: str, sizes: dict[str, int]) -> float:
    """Return the power of all sizes by which the operations grow, from plans on one rank of these and twice these."""
    from dace_redist.einsum.planner import plan_einsums

    one, twice = (
        plan_einsums(*read_statements(einsums, {index: factor * size for index, size in sizes.items()}), 1).flops
        for factor in (1, 2)
    )
    return max(1.0, math.log2(twice / one) if one else 1.0)


def _check_einsums(given: dict[str, Any]) -> None:
    of_a_redistribution = given_problem_options(given) + ["--memory"] * (given["memory"] != MAIN_MEMORIES[0])
    if of_a_redistribution:
        raise click.BadParameter("goes with a redistribution, not with einsums", param_hint=of_a_redistribution[0])
    for name in ("sizes", "ranks"):
        if not given[name]:
            raise click.UsageError(f"missing --{name}: einsums need the size of each index, and the number of ranks")
    multiplied_type(given["dtype"])
    if min(given["ranks"]) < 1:
        raise click.BadParameter(f"a number of ranks is at least 1, got {min(given['ranks'])}", param_hint="--ranks")
    if len(given["strategies"]) > 1:
        raise click.BadParameter("einsums take one", param_hint="--strategy")


def _export(simulated: SimulatedRedistribution | SimulatedProgram, given: dict[str, Any]) -> float | None:
    """Write the requested traces, of the largest number of ranks; return SimGrid's time if a replay is requested."""
    from dace_redist.simulation import exports

    if given["goal"] is not None:
        exports.write_goal(simulated.operations(), simulated.job.ranks, given["goal"])
    if given["traces"] is not None:
        exports.write_traces(simulated.operations(), simulated.job, given["traces"])
    return exports.replay(given["traces"], simulated.job.ranks) if given["replay"] else None
