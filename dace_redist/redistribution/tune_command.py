"""Sub-commands ``dace-redist tune`` and ``dace-redist calibrate``, which measure plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from dace_redist.problem_options import described_schedule, problem_options
from dace_redist.strategies import OPTIONS, host_strategies
from dace_redist.tuning.problem import MEMORIES, Problem

_FILE = click.Path(dir_okay=False, path_type=Path)


def _values(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, list[int | float]]:
    """Read ``chunk_bytes=1048576,8388608``, which may be given for several options."""
    values: dict[str, list[int | float]] = {}
    for text in given:
        name, found, numbers = text.partition("=")
        if not found:
            raise click.BadParameter(f"{text!r} is no option with values, such as chunk_bytes=1048576,8388608")
        values.setdefault(name.strip(), []).extend(_number(number.strip(), text) for number in numbers.split(","))
    return values


def _number(word: str, given: str) -> int | float:
    try:
        return int(word) if word.lstrip("-").isdigit() else float(word)
    except ValueError:
        raise click.BadParameter(f"{word!r} in {given!r} is no number") from None


_STRATEGY_HELP = f"try this one only: {', '.join((*host_strategies(), 'NCCL'))}; may be repeated"
_OPTION_HELP = f"try these values of an option: {', '.join(OPTIONS)}; may be repeated"


@click.command()
@problem_options
@click.option("--memory", type=click.Choice(MEMORIES), default=MEMORIES[0], show_default=True, help="of the arrays")
@click.option("--strategy", "strategies", multiple=True, metavar="NAME", help=_STRATEGY_HELP)
@click.option("--option", "options", multiple=True, metavar="NAME=LIST", callback=_values, help=_OPTION_HELP)
@click.option("--record", type=_FILE, help="file to write the winner to")
@click.option("--limit-seconds", type=float, default=60.0, show_default=True, help="time for the measurements")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@click.option("--quiet", is_flag=True, help="do not show how far it is")
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
    Measure which strategy is fastest, and record it for "Auto". Run it on as many ranks as the program will have:

    \b
    mpiexec -n 12 dace-redist tune --shape 48,24,24,72,288 --from 2,1,1,3,2 --to 1,1,1,1,12 --dtype int32
    """  # noqa: D301 (click reads the backspace)
    from mpi4py import MPI

    from dace_redist.mpi.launch import check_launcher
    from dace_redist.redistribution.bench import BENCH
    from dace_redist.tuning.tune import tune as measure

    check_launcher(MPI.COMM_WORLD)
    limits = {name: others.pop(name) for name in ("record", "limit_seconds")}
    problem = Problem(described_schedule(shape, dtype, others), others["memory"])
    found = measure({(): problem}, BENCH, strategies=strategies or None, options=options, progress=not quiet, **limits)
    if MPI.COMM_WORLD.rank == 0:
        click.echo(json.dumps(found.to_json()) if as_json else str(found))


@click.command()
@click.option("--output", type=_FILE, help="file to write; default: the user's own")
@click.option(
    "--limit-seconds",
    type=click.FloatRange(0, min_open=True),
    default=45.0,
    show_default=True,
    help="time for the measurements",
)
@click.option("--quiet", is_flag=True, help="do not show how far it is")
def calibrate(output: Path | None, limit_seconds: float, quiet: bool) -> None:
    """
    Measure copies and messages on this machine for the cost model, also on GPUs if every rank can use one. Run it with
    the number of ranks per node of later programs, and on two or more nodes for messages between nodes:

    \b
    mpiexec -n 12 dace-redist calibrate
    """  # noqa: D301 (click reads the backspace)
    from mpi4py import MPI

    from dace_redist.mpi.launch import check_launcher
    from dace_redist.redistribution.bench import BENCH
    from dace_redist.tuning.calibrate import calibrate as measure
    from dace_redist.tuning.files import profile_path
    from dace_redist.tuning.report import profile_text

    check_launcher(MPI.COMM_WORLD)
    made = measure(BENCH, output=output, limit_seconds=limit_seconds, progress=not quiet)
    if MPI.COMM_WORLD.rank == 0:
        click.echo(f"{profile_text(made)}\nwritten to {profile_path(output)}")
