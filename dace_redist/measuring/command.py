"""Sub-commands ``dace-redist tune``, ``bench`` and ``calibrate``, which measure plans."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from dace_redist.problem_options import GroupedCommand, described_schedule, problem_options
from dace_redist.strategies import OPTIONS, host_strategies
from dace_redist.tuning.problem import MEMORIES, Problem

_FILE = click.Path(dir_okay=False, path_type=Path)


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

_limit = click.FloatRange(0, min_open=True)


def memory_option(known: Sequence[str] = MEMORIES, suffix: str = "") -> Callable[[Any], Any]:
    """Return the option of the memory that arrays lie in; ``suffix`` ends its help."""
    text = f"memory of the arrays{suffix}: {', '.join(known)}; default: {known[0]}"
    return click.option("--memory", type=click.Choice(known), default=known[0], metavar="NAME", help=text)


_strategy = click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="NAME",
    help=f"strategy to measure, repeatable; default: all of {', '.join((*host_strategies(), 'NCCL'))}",
)
_json = click.option("--json", "as_json", is_flag=True, help="print JSON")
_quiet = click.option("-q", "--quiet", is_flag=True, help="suppress the progress bar")


def _time(seconds: float) -> Callable[[Any], Any]:
    return click.option(
        "--limit-seconds", type=_limit, default=seconds, show_default=True, help="time for the measurements"
    )


@click.command(cls=GroupedCommand)
@problem_options
@memory_option()
@_strategy
@click.option("--option", "options", multiple=True, metavar="NAME=LIST", callback=_values, help=_OPTION_HELP)
@click.option("-o", "--record", type=_FILE, help="file to write the winner to; default: the user's own")
@_time(60.0)
@_json
@_quiet
def tune(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    strategies: tuple[str, ...],
    options: dict[str, list[int | float]],
    as_json: bool,
    quiet: bool,
    **others: Any,
) -> None:
    """
    Find and record the fastest strategy.

    Run it on as many ranks as the program will have; strategy "Auto" then uses the winner.

    \b
    mpiexec -n 12 dace-redist tune --shape 48,24,24,72,288 --from 2,1,1,3,2 --to 1,1,1,1,12 --dtype int32
    """  # noqa: D301 (click reads the backspace)
    from mpi4py import MPI

    from dace_redist.measuring.tune import tune as measure
    from dace_redist.mpi.launch import check_launcher

    check_launcher(MPI.COMM_WORLD)
    limits = {name: others.pop(name) for name in ("record", "limit_seconds")}
    problem = Problem(described_schedule(shape, dtype, others), others["memory"])
    found = measure({(): problem}, strategies=strategies or None, options=options, progress=not quiet, **limits)
    if MPI.COMM_WORLD.rank == 0:
        click.echo(json.dumps(found.to_json()) if as_json else str(found))


@click.command(cls=GroupedCommand)
@problem_options
@memory_option()
@_strategy
@_time(10.0)
@_json
def bench(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    memory: str,
    strategies: tuple[str, ...],
    limit_seconds: float,
    as_json: bool,
    **others: Any,
) -> None:
    """
    Compare strategies with MPI_Alltoallw.

    \b
    mpiexec -n 4 dace-redist bench --shape 4096x4096 --from 4 --to 1x4
    """  # noqa: D301 (click reads the backspace)
    from mpi4py import MPI

    from dace_redist.measuring.comparison import compare
    from dace_redist.mpi.launch import check_launcher

    check_launcher(MPI.COMM_WORLD)
    problem = Problem(described_schedule(shape, dtype, others), memory)
    found = compare(problem, strategies, limit_seconds)
    if MPI.COMM_WORLD.rank == 0:
        click.echo(json.dumps(found.to_json()) if as_json else str(found))


@click.command()
@click.option("-o", "--output", type=_FILE, help="file to write; default: the user's own")
@_time(45.0)
@_quiet
def calibrate(output: Path | None, limit_seconds: float, quiet: bool) -> None:
    """
    Measure this machine for the cost model.

    Run it with the number of ranks per node of later programs, and on two or more nodes for messages between nodes.
    GPUs are measured if every rank can use one.

    \b
    mpiexec -n 12 dace-redist calibrate
    """  # noqa: D301 (click reads the backspace)
    from mpi4py import MPI

    from dace_redist.measuring.calibrate import calibrate as measure
    from dace_redist.mpi.launch import check_launcher
    from dace_redist.tuning.files import profile_path
    from dace_redist.tuning.report import profile_text

    check_launcher(MPI.COMM_WORLD)
    made = measure(output=output, limit_seconds=limit_seconds, progress=not quiet)
    if MPI.COMM_WORLD.rank == 0:
        click.echo(f"{profile_text(made)}\nwritten to {profile_path(output)}")
