"""Sub-commands ``dace-redist tune`` and ``bench``, which measure plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from dace_redist.problem_options import (
    GroupedCommand,
    described_schedule,
    file_option,
    json_option,
    memory_option,
    print_found,
    problem_options,
)
from dace_redist.strategies import OPTIONS, STRATEGIES
from dace_redist.tuning.problem import MEMORIES, TuningProblem


def _values(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, list[int | float]]:
    """Read ``chunk_bytes=1048576,8388608``, which may be given for several options."""
    values: dict[str, list[int | float]] = {}
    for text in given:
        name, found, numbers = text.partition("=")
        if not found:
            raise click.BadParameter(f"{text!r} is not an option with values, such as chunk_bytes=1048576,8388608")
        values.setdefault(name.strip(), []).extend(_number(number.strip(), text) for number in numbers.split(","))
    return values


def _number(word: str, given: str) -> int | float:
    try:
        return int(word) if word.lstrip("-").isdigit() else float(word)
    except ValueError:
        raise click.BadParameter(f"{word!r} in {given!r} is not a number") from None


_OPTION_HELP = f"values of an option to try, repeatable: {', '.join(OPTIONS)}"

_strategy = click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="NAME",
    help=f"strategy to measure, repeatable; default: all of {', '.join(STRATEGIES)}",
)
_quiet = click.option("-q", "--quiet", is_flag=True, help="suppress the progress bar")


def _time(seconds: float) -> Callable[[Any], Any]:
    above_0 = click.FloatRange(0, min_open=True)
    return click.option(
        "--limit-seconds", type=above_0, default=seconds, show_default=True, help="time for the measurements"
    )


def _rank() -> int:
    """Return the rank of this process in a world that the launcher and the MPI library agree on."""
    from mpi4py import MPI

    from dace_redist.mpi.launch import check_launcher

    check_launcher(MPI.COMM_WORLD)
    return int(MPI.COMM_WORLD.rank)


@click.command(cls=GroupedCommand)
@problem_options
@memory_option(MEMORIES)
@_strategy
@click.option("--option", "options", multiple=True, metavar="NAME=LIST", callback=_values, help=_OPTION_HELP)
@file_option("-o", "--record", help="file to write the winner to; default: the user's own")
@_time(60.0)
@json_option
@_quiet
def tune(strategies: tuple[str, ...], as_json: bool, quiet: bool, memory: str, **given: Any) -> None:
    """
    Find and record the fastest strategy.

    Run it on as many ranks as the program will have; strategy "Auto" then uses the winner.

    \b
    mpiexec -n 12 dace-redist tune --shape 48,24,24,72,288 --from 2,1,1,3,2 --to 1,1,1,1,12 --dtype int32
    """  # noqa: D301 (click reads the backspace)
    from dace_redist.measuring.tune import tune_problems

    rank = _rank()
    how = {name: given[name] for name in ("options", "record", "limit_seconds")}
    problem = TuningProblem(described_schedule(given), memory)
    found = tune_problems({(): problem}, strategies=strategies or None, progress=not quiet, **how)
    if rank == 0:
        print_found(found, as_json)


@click.command(cls=GroupedCommand)
@problem_options
@memory_option(MEMORIES)
@_strategy
@_time(10.0)
@json_option
def bench(strategies: tuple[str, ...], limit_seconds: float, as_json: bool, memory: str, **given: Any) -> None:
    """
    Compare strategies with MPI_Alltoallw.

    \b
    mpiexec -n 4 dace-redist bench --shape 4096x4096 --from 4 --to 1x4
    """  # noqa: D301 (click reads the backspace)
    from dace_redist.measuring.comparison import compare

    rank = _rank()
    found = compare(TuningProblem(described_schedule(given), memory), strategies, limit_seconds)
    if rank == 0:
        print_found(found, as_json)
