"""
Overheads of the package besides data movement: compilation, first use, start of a process, small calls.

Each figure is a ratio to the cost without the package, both measured alternately in one run, or seconds; the median
counts. The arrays of the small calls are 16 x 16 float64, from rows to columns.

    python benchmarks/overheads.py [--json FILE] [--repetitions 5] [ROW]...
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

import click
from launching import launch
from records import append, json_option

from dace_redist.mpi.launch import launched_rank

RANKS = 2
BATCH = 200  # calls that are timed as one

_IMPORTS = "from mpi4py import MPI; import numpy"
_FIRST_RESULT = """\
from mpi4py import MPI
import numpy as np
import dace_redist
rows, columns = dace_redist.Distribution((16, 16), (2, 1)), dace_redist.Distribution((16, 16), (1, 2))
dace_redist.redistribute(np.ones((8, 16)), rows, columns, comm=MPI.COMM_WORLD)
"""


def _on_ranks(ranks: int, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run Python on ranks and return its output; raise ClickException if it fails."""
    code, printed = launch(ranks, [sys.executable, *arguments], 600, environment=environment)
    if code != 0:
        raise click.ClickException(f"{' '.join(arguments)[:60]} ended with code {code}:\n{printed}")
    return printed


def _part_on_ranks(ranks: int, name: str, environment: Mapping[str, str] | None = None) -> Any:
    """Run one of the parts of this script on ranks; return what it prints as JSON."""
    return json.loads(_on_ranks(ranks, __file__, "--part", name, environment=environment).strip().splitlines()[-1])


@contextlib.contextmanager
def _new_cache(with_libraries: bool) -> Iterator[dict[str, str]]:
    """
    Return an environment with new cache folders, with or without the package's libraries, and without programs.

    Python keeps bytecode, as of an installed package. It orders sets alike in all processes: DaCe repeats the commands
    of an earlier build only if the flags of MPI, a set, come in the same order.
    """
    from dace_redist.native.toolchain import build_directory

    with tempfile.TemporaryDirectory(prefix="overheads-") as folder:
        if with_libraries:
            programs = shutil.ignore_patterns("programs", "tests", "*.lock")
            shutil.copytree(build_directory(), Path(folder) / build_directory().name, ignore=programs)
        python = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{folder}/bytecode", "PYTHONHASHSEED": "0"}
        yield {"DACE_REDIST_CACHE": folder, "DACE_BUILD_CACHE_DIR": f"{folder}/dace", **python}


def _seconds(ranks: int, *arguments: str, environment: dict[str, str] | None = None) -> float:
    start = time.perf_counter()
    _on_ranks(ranks, *arguments, environment=environment)
    return time.perf_counter() - start


def _compile(strategy: str | None) -> list[float]:
    """Return the seconds to set the strategy of a one-redistribution program and compile it in an empty folder."""
    import stock_programs

    import dace_redist

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        sdfg = stock_programs.plain.to_sdfg()
        sdfg.build_folder = os.path.join(folder, "build")
        start = time.perf_counter()
        if strategy is not None:
            dace_redist.set_strategy(sdfg, strategy)
        sdfg.compile(return_program_handle=False)
        return [time.perf_counter() - start]


def _calls() -> dict[str, list[float]]:
    """Return the seconds of 41 batches of each kind of call. Collective."""
    import numpy as np
    from mpi4py import MPI

    import dace_redist
    from dace_redist.timing.comparison import Alltoallw
    from dace_redist.timing.measure import measure

    comm, shape = MPI.COMM_WORLD, (16, 16)
    source, target = (dace_redist.Distribution(shape, grid) for grid in ((comm.size, 1), (1, comm.size)))
    A, B = np.ones(source.local_shape(comm.rank)), np.empty(target.local_shape(comm.rank))
    plan = dace_redist.plan(source, target, A.dtype, comm=comm)
    alltoallw = Alltoallw(dace_redist.schedule(source, target, dtype=A.dtype), comm)
    calls: dict[str, Callable[[], Any]] = {
        "plan": lambda: plan(A, out=B),
        "redistribute": lambda: dace_redist.redistribute(A, source, target, comm=comm),
        "Alltoallw": lambda: alltoallw.run(A, B),
    }
    batches = {name: partial(_repeated, call) for name, call in calls.items()}
    return {name: [*figure.seconds] for name, figure in measure(batches, comm, least=41, most=41).items()}


def _repeated(call: Callable[[], Any]) -> None:
    for _ in range(BATCH):
        call()


#: What this script does in processes of its own.
_PARTS: dict[str, Callable[[], Any]] = {
    "stock": lambda: _compile(None),
    "compile": lambda: _compile("Auto"),
    "calls": _calls,
}


def _ratios(first: list[float], second: list[float]) -> list[float]:
    return [a / b for a, b in zip(first, second, strict=True)]


def _compilations(repetitions: int) -> list[float]:
    """Return ratios of the seconds of each kind of program, by turns; a warm-up round fills DaCe's own caches."""
    seconds: dict[str, list[float]] = {"stock": [], "compile": []}
    with _new_cache(with_libraries=True) as environment:
        for _ in range(repetitions + 1):
            for part in random.sample(list(seconds), len(seconds)):
                for programs in Path(environment["DACE_REDIST_CACHE"]).glob("*/programs"):
                    shutil.rmtree(programs)
                seconds[part] += _part_on_ranks(1, part, environment)
    return _ratios(seconds["compile"][1:], seconds["stock"][1:])


def _first_use(_: int) -> list[float]:
    program = "from dace_redist.native.cmake_build import ensure_library; ensure_library()"
    with _new_cache(with_libraries=False) as environment:
        return [_seconds(1, "-c", program, environment=environment)]


def _starts(repetitions: int) -> list[float]:
    pairs = [[_seconds(RANKS, "-c", text) for text in (_FIRST_RESULT, _IMPORTS)] for _ in range(3 * repetitions)]
    return [first / imports for first, imports in pairs]


@cache
def _batches() -> dict[str, list[float]]:
    found: dict[str, list[float]] = _part_on_ranks(RANKS, "calls")
    return found


def _calls_to(name: str, reference: str, _: int) -> list[float]:
    return _ratios(_batches()[name], _batches()[reference])


#: Meaning of each row, and how its values are measured.
ROWS: dict[str, tuple[str, Callable[[int], list[float]]]] = {
    "compile": ("compile a program with one redistribution: Auto, to stock DaCe's node", _compilations),
    "first-use": ("seconds until every strategy can be used on a new machine", _first_use),
    "start": ("start of a process to the first result, to importing mpi4py and NumPy", _starts),
    "redistribute": ("redistribute(), to a call of a plan", partial(_calls_to, "redistribute", "plan")),
    "plan": ("a call of a plan, to MPI_Alltoallw with ready datatypes", partial(_calls_to, "plan", "Alltoallw")),
}


@click.command(help=__doc__)
@click.argument("rows", metavar="[ROW]...", nargs=-1, type=click.Choice(list(ROWS)))
@click.option("--repetitions", default=5, show_default=True, type=click.IntRange(min=1), help="of what is compiled")
@json_option("output")
@click.option("--part", hidden=True, type=click.Choice(list(_PARTS)))
def main(rows: tuple[str, ...], repetitions: int, output: Path | None, part: str | None) -> None:
    if part is not None:
        figures = _PARTS[part]()
        if launched_rank() == 0:
            print(json.dumps(figures))
        return
    _on_ranks(1, "-m", "dace_redist.cli", "build", "--no-gpu")
    for row in rows or ROWS:
        what, measured = ROWS[row]
        values = measured(repetitions)
        click.echo(f"{row:14}{statistics.median(values):10.3g}  ({min(values):.3g} to {max(values):.3g})  {what}")
        append(output, {"row": row, "what": what, "values": values})


if __name__ == "__main__":
    main()
