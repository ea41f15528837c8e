"""Sub-commands ``dace-redist tune`` and ``bench``, which measure plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from dace_redist.problem_options import (
    GroupedCommand,
    described_schedule,
    json_option,
    print_found,
    problem_options,
)
from dace_redist.strategies import STRATEGIES
from dace_redist.timing.memories import MEMORIES, PlacedSchedule

_strategy = click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="NAME",
    help=f"strategy to measure, repeatable; default: all of {', '.join(STRATEGIES)}",
)
_memory = click.option(
    "--memory",
    type=click.Choice(MEMORIES),
    default=MEMORIES[0],
    metavar="NAME",
    help=f"memory of the arrays: {', '.join(MEMORIES)}; default: {MEMORIES[0]}",
)
_quiet = click.option("-q", "--quiet", is_flag=True, help="suppress the progress bar")


def _time(seconds: float) -> Callable[[Any], Any]:
    above_0 = click.FloatRange(0, min_open=True)
    return click.option(
        "--limit-seconds", type=above_0, default=seconds, show_default=True, help="time for the measurements"
    )


def _print(strategies: tuple[str, ...], as_json: bool, memory: str, given: dict[str, Any], **how: Any) -> None:
    """Measure strategies in a world that the launcher and the MPI library agree on, and print them on rank 0."""
    from mpi4py import MPI

    from dace_redist.mpi.launch import check_launcher
    from dace_redist.timing.tune import tuned

    check_launcher(MPI.COMM_WORLD)
    placed = PlacedSchedule(described_schedule(given), memory)
    (found,) = tuned({placed: ()}, strategies=strategies or None, **how)
    if MPI.COMM_WORLD.rank == 0:
        print_found(found, as_json)


@click.command(cls=GroupedCommand)
@problem_options
@_memory
@_strategy
@_time(60.0)
@json_option
@_quiet
def tune(
    strategies: tuple[str, ...], limit_seconds: float, as_json: bool, quiet: bool, memory: str, **given: Any
) -> None:
    """
    Find the fastest strategy and options.

    Run it on as many ranks as the program will have.

    \b
    mpiexec -n 12 dace-redist tune --shape 48,24,24,72,288 --from 2,1,1,3,2 --to 1,1,1,1,12 --dtype int32
    """  # noqa: D301 (click reads the backspace)
    _print(strategies, as_json, memory, given, limit_seconds=limit_seconds, progress=not quiet)


@click.command(cls=GroupedCommand)
@problem_options
@_memory
@_strategy
@_time(10.0)
@json_option
def bench(strategies: tuple[str, ...], limit_seconds: float, as_json: bool, memory: str, **given: Any) -> None:
    """
    Compare strategies with MPI_Alltoallw.

    \b
    mpiexec -n 4 dace-redist bench --shape 4096x4096 --from 4 --to 1x4
    """  # noqa: D301 (click reads the backspace)
    _print(strategies, as_json, memory, given, limit_seconds=limit_seconds, progress=False, versus_mpi=True)
