"""Command line ``dace-redist``, of which ``explain`` needs neither DaCe nor MPI."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from dace_redist._version import __version__
from dace_redist.einsum.command import bytes_of_memory, einsum
from dace_redist.errors import RedistributionError
from dace_redist.mpi.launch import launched_rank
from dace_redist.native.command import build, config, installation
from dace_redist.problem_options import (
    GroupedCommand,
    described_schedule,
    file_option,
    json_option,
    operation_options,
    plot_option,
    print_found,
    problem_options,
    ranks_per_node_option,
    whole_numbers,
)
from dace_redist.relabelling import saved_by_relabelling
from dace_redist.report import text as report
from dace_redist.report.as_json import nodes_json, rank_json, to_json
from dace_redist.report.text import nodes_text, relabelling_text
from dace_redist.report.units import format_bytes
from dace_redist.schedule import Schedule
from dace_redist.strategies import DEFAULT_STRATEGY, with_options
from dace_redist.strategy_memory import options_within, rounds
from dace_redist.timing.command import bench, tune


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="dace-redist", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Inspect, tune and measure redistributions of distributed arrays."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for _other in (bench, build, config, einsum, tune):
    cli.add_command(_other)


@cli.command()
def info() -> None:
    """Show the installation, and test it on two ranks."""
    lines = installation()
    click.echo("\n".join([*lines, "2 ranks started, and found each other"]))


@cli.command(cls=GroupedCommand)
@problem_options
@operation_options
@click.option("--rank", type=int, help="list the messages of this rank instead")
@json_option
@plot_option
@click.option(
    "--memory-bytes",
    metavar="BYTES",
    callback=bytes_of_memory,
    help="limit of a rank's buffers, as in 64MiB; prints the number of rounds within it",
)
@click.option("--tensors", type=click.IntRange(1), default=1, help="number of such tensors in one exchange")
@ranks_per_node_option(help="ranks on each node, numbered node by node")
def explain(as_json: bool, path: Path | None, **given: Any) -> None:
    """
    Show what a redistribution moves.

    \b
    dace-redist explain --shape 48,24,24,72,288 --from 2,1,1,3,2 --to 1,1,1,1,12 --dtype int32
    """  # noqa: D301 (click reads the backspace)
    schedule = described_schedule(given)
    _check_combination(schedule, given)
    several = Schedule.joined([schedule] * given["tensors"]) if given["tensors"] > 1 else None
    if path is not None:
        (several or schedule).plot(path)
    if given["rank"] is not None:
        said = rank_json(schedule, given["rank"]) if as_json else report.rank_text(schedule, given["rank"])
    elif several is not None:
        said = several.to_json() if as_json else str(several)
    else:
        said = (_report_json if as_json else _report_text)(schedule, given)
    click.echo(json.dumps(said) if as_json else said)


#: Options of a report on one whole tensor, by their names in Python.
_OF_ONE_TENSOR = {"memory_bytes": "--memory-bytes", "ranks_per_node": "--ranks-per-node"}


def _check_combination(schedule: Schedule, given: Mapping[str, Any]) -> None:
    """Refuse options of :func:`explain` that do not go together."""
    rank = given["rank"]
    if rank is not None and not 0 <= rank < schedule.ranks:
        wrong = f"a rank must be between 0 and {schedule.ranks - 1}, got {rank}"
        raise click.BadParameter(wrong, param_hint="--rank")
    for alone, option, others in (
        (given["tensors"] > 1, "--tensors", {"rank": "--rank", **_OF_ONE_TENSOR}),
        (rank is not None, "--rank", _OF_ONE_TENSOR),
    ):
        if alone and any(given[name] is not None for name in others):
            *most, last = others.values()
            raise click.BadParameter(f"goes with none of {', '.join(most)} and {last}", param_hint=option)


def _nodes_of(schedule: Schedule, given: Mapping[str, Any]) -> Sequence[int] | None:
    ranks_per_node = given["ranks_per_node"]
    return None if ranks_per_node is None else [rank // ranks_per_node for rank in range(schedule.ranks)]


def _report_json(schedule: Schedule, given: Mapping[str, Any]) -> dict[str, Any]:
    facts = {**to_json(schedule), "bytes_saved_by_relabelling": saved_by_relabelling(schedule)}
    node_of = _nodes_of(schedule, given)
    if node_of is not None:
        saved = saved_by_relabelling(schedule, node_of)
        facts |= {**nodes_json(schedule, node_of), "bytes_between_nodes_saved_by_relabelling": saved}
    if given["memory_bytes"] is not None:
        options = options_within(schedule, DEFAULT_STRATEGY, given["memory_bytes"], {})
        facts["rounds"] = {"count": rounds(schedule, options), "options": options}
    return facts


def _report_text(schedule: Schedule, given: Mapping[str, Any]) -> str:
    lines, node_of, nbytes = [str(schedule)], _nodes_of(schedule, given), given["memory_bytes"]
    if node_of is not None:
        lines.append(nodes_text(schedule, node_of))
    lines += relabelling_text(saved_by_relabelling(schedule), schedule.bytes_moved())
    if node_of is not None:
        saved, between = saved_by_relabelling(schedule, node_of), schedule.bytes_between_nodes(node_of)
        lines += relabelling_text(saved, between, " with node_weights", " between nodes")
    if nbytes is not None:
        options = options_within(schedule, DEFAULT_STRATEGY, nbytes, {})
        called = with_options(DEFAULT_STRATEGY, options)
        lines.append(f"rounds    {rounds(schedule, options):,} within {format_bytes(nbytes)}, by {called}")
    return "\n".join([*lines, report.verdict(schedule)])


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
@file_option("--merge", "merged", metavar="FILE", help="file of all ranks to write, for Perfetto")
@plot_option
@click.option("--begin", type=float, default=0.0, metavar="MS", help="leave out earlier events, in ms after the first")
@click.option("--end", type=float, default=math.inf, metavar="MS", help="leave out later events, in ms after the first")
def trace(folder: Path, as_json: bool, merged: Path | None, path: Path | None, begin: float, end: float) -> None:
    """
    Summarise a trace of a run.

    \b
    DACE_REDIST_TRACE=run mpiexec -n 4 python program.py
    dace-redist trace run --merge run.json
    """  # noqa: D301 (click reads the backspace)
    from dace_redist.report.trace import Trace

    found = Trace(folder, begin, end)
    if merged is not None:
        found.merge(merged)
    if path is not None:
        found.plot(path)
    print_found(found, as_json)


@cli.command()
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT")
@click.option("--chunks", metavar="LIST", callback=whole_numbers(), help="extents of chunks, -1 for a whole axis")
@click.option("--shards", metavar="LIST", callback=whole_numbers(), help="extents of the shards of a Zarr array")
@click.option("--name", "names", metavar="NAME", multiple=True, help="array to write, repeatable; default: all")
@click.option(
    "--memory",
    "memory_bytes",
    metavar="BYTES",
    default="1GiB",
    callback=bytes_of_memory,
    help="limit per rank, as in 4GiB; default: 1GiB",
)
@click.option("--dry-run", is_flag=True, help="print the plan and write nothing")
@click.option("-q", "--quiet", is_flag=True, help="suppress the progress bar")
def rechunk(source: str, target: str, names: tuple[str, ...], dry_run: bool, quiet: bool, **how: Any) -> None:
    """
    Write a file in other chunks, or another format.

    Under mpiexec or alone; IN and OUT are .npy, HDF5, netCDF-4 or safetensors files, or Zarr stores. Prints the plan
    first: slabs, bytes read and written, peak memory per rank.

    \b
    mpiexec -n 4 dace-redist rechunk in.zarr out.zarr --chunks 8760,72,144 --memory 4GiB
    """  # noqa: D301 (click reads the backspace)
    from mpi4py import MPI

    from dace_redist.io.rechunk import rechunk
    from dace_redist.mpi.launch import check_launcher

    check_launcher(MPI.COMM_WORLD)
    plan = rechunk(source, target, names=names or None, dry_run=True, **how)
    if MPI.COMM_WORLD.rank == 0:
        click.echo(str(plan))
    if not dry_run:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: click.echo(f"dace-redist: {message}", err=True)
            rechunk(source, target, names=names or None, progress=not quiet, **how)


#: Errors that are reported in one line: of bad input, exit status 2, and of everything else, exit status 1.
_BAD_INPUT = (ValueError, TypeError, OverflowError, MemoryError, FileNotFoundError)
_FAILED = (RuntimeError, OSError, ImportError, RedistributionError)


def run_command(command: click.Command, name: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """
    Run a command and end the process: 0 when done, with one line on standard error 2 for bad input and 1 for a failure.

    :param name: Name of the program, for its help and its errors.
    :param arguments: Words of the command line without the program's name; default those of this process.
    """
    try:
        code = command.main(arguments, prog_name=name, standalone_mode=False)
        print(end="", flush=True)  # sys.stdout is None if it was closed: `dace-redist ... >&-`
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        code = _fail(name, error.format_message(), 2, f" (see {context.command_path} --help)" if context else "")
    except BrokenPipeError:  # the reader has what it wants: `dace-redist ... | head`
        code = 1
    except (click.Abort, KeyboardInterrupt):  # before RuntimeError, which click's is
        code = 130
    except (*_BAD_INPUT, *_FAILED) as error:
        code = _fail(name, str(error) or type(error).__name__, 2 if isinstance(error, _BAD_INPUT) else 1)
    try:
        print(end="", flush=True)
    except OSError:  # Python would try again at the end of the process, and report it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _fail(name: str, message: str, code: int, remedy: str = "") -> int:
    if launched_rank() in (None, 0):  # every rank of a job fails alike
        print(f"{name}: {' '.join(message.split())}{remedy}", file=sys.stderr)
    return code


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run ``dace-redist`` and end the process, see :func:`run_command`."""
    run_command(cli, "dace-redist", arguments)


if __name__ == "__main__":
    main()
