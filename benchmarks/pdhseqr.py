"""
Time that ScaLAPACK's ``pdhseqr`` spends in ``pdgemr2d``, by ScaLAPACK and by the library for preloading.

Its redistributions are so small that the library leaves them to ScaLAPACK: the ratio is the cost of deciding so. A
compiled program (pdhseqr.cpp) with the library preloaded runs ``pdhseqr`` by both in turn, in several processes. Each
call follows a barrier; its time is that of the slowest rank, and the median over the runs. The first call of a process
makes the library look up functions and the context.

    python benchmarks/pdhseqr.py [--ranks 2] [--size 1000] [--launches 6] [--library FILE] [--json FILE]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

import click
import numpy as np
import numpy.typing as npt
from launching import launch
from records import append, json_option
from redistribution import scalapack

from dace_redist.native.cmake_build import ensure_library
from dace_redist.native.toolchain import SCALAPACK, mpi_compiler

PROGRAM = Path(__file__).with_suffix(".cpp")
RUNS = 4  # in a launch: with more of them, the library would make plans


def _compiled(folder: str, scalapack_file: str) -> str:
    program = f"{folder}/{PROGRAM.stem}"
    library = scalapack_file if "/" in scalapack_file else f"-l:{scalapack_file}"
    subprocess.run([mpi_compiler(), "-O2", "-o", program, PROGRAM, library, "-ldl"], check=True)
    return program


def _seconds(ranks: int, *command: str) -> npt.NDArray[np.float64]:
    """Return an array [run, call] of each library; the last column is that of ``pdhseqr``."""
    code, printed = launch(ranks, ["env", *command], 600, environment={"OMP_NUM_THREADS": "1"})
    if code != 0:
        raise click.ClickException(f"{' '.join(command)} ended with code {code}:\n{printed}")
    runs = [[float(number) for number in line.split()] for line in printed.splitlines()]
    return np.array([[run[1:] for run in runs if run[0] == is_preloaded] for is_preloaded in (0, 1)])


@click.command(help=__doc__)
@click.option("--ranks", default=2, show_default=True, help="MPI processes")
@click.option("--size", default=1000, show_default=True, help="rows of the matrix")
@click.option("--launches", default=6, show_default=True, help=f"each with {RUNS} runs by each library")
@click.option("--library", help="to preload in place of the package's")
@json_option()
def main(ranks: int, size: int, launches: int, library: str | None, path: Path | None) -> None:
    preload, file = library or str(ensure_library(SCALAPACK)), scalapack.library_file()
    with tempfile.TemporaryDirectory() as folder:
        command = [f"LD_PRELOAD={preload}", _compiled(folder, file), str(size), str(RUNS), file]
        times = np.array([_seconds(ranks, *command) for _ in range(launches)])  # [launch, library, run, call]
    stock, ours = (np.median(times[:, which], axis=(0, 1)) for which in (0, 1))
    first = np.median(times[:, 1, 0, 0])  # the other runs have no such call
    with_first = ours[1:-1].sum() + first
    click.echo(
        f"{len(stock) - 1} calls: {1e3 * stock[:-1].sum():.3f} ms by ScaLAPACK, {1e3 * with_first:.3f} ms preloaded; "
        f"relative speed {stock[:-1].sum() / with_first:.3f}, without the first call "
        f"{stock[1:-1].sum() / ours[1:-1].sum():.3f}; pdhseqr {stock[-1] / ours[-1]:.3f}"
    )
    append(path, {"pdhseqr": size, "ranks": ranks, "seconds": times.tolist()})


if __name__ == "__main__":
    main()
