"""``dace-redist calibrate``: measures the machine profile."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="file to write; default: the user's own"
)
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
    Measure what copies and messages take on this machine, for the model of costs, also on GPUs where every rank can
    use one. Run it on as many ranks on each node as programs will have, and on two nodes or more for what moves between
    nodes:

    \b
    mpiexec -n 12 dace-redist calibrate
    """  # noqa: D301 (click reads the backspace)
    from mpi4py import MPI

    from dace_redist.mpi.launch import check_launcher
    from dace_redist.selection.paths import profile_path
    from dace_redist.tuning.calibrate import calibrate as measure

    check_launcher(MPI.COMM_WORLD)
    made = measure(output=output, limit_seconds=limit_seconds, progress=not quiet)
    if MPI.COMM_WORLD.rank == 0:
        click.echo(f"{made}\nwritten to {profile_path(output)}")
