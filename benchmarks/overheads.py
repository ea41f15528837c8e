"""
Overheads of the package besides data movement: compilation, first use, start of a process, small calls.

Each figure is a ratio to the cost without the package, both measured alternately in one run, or seconds; the median
counts. The arrays of the small calls are 16 x 16 float64, from rows to columns.

    python benchmarks/overheads.py [--json FILE] [--repetitions 5] [ROW]...
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parent / folder) for folder in ("../tests", "einsum")]

import click
from on_ranks import on_ranks, part_on_ranks
from records import append, json_option

RANKS = 2
BATCH = 200  # calls that are timed as one
ROWS = {
    "compile": "compile a program with one redistribution: Auto, to stock DaCe's node",
    "distribute": "distribute and compile gram_of_mttkrp on 4 ranks, to compiling one stock node",
    "first-use": "seconds until every strategy can be used on a new machine",
    "import": "seconds of import dace_redist",
    "start": "start of a process to the first result, to importing mpi4py and NumPy",
    "redistribute": "redistribute(), to a call of a plan",
    "plan": "a call of a plan, to MPI_Alltoallw with ready datatypes",
    "make": "seconds of making and freeing a plan, 64 x 64 x 64 float64",
}
_CALLS = {"redistribute": "plan", "plan": "Alltoallw", "make": None}

_IMPORTS = "from mpi4py import MPI; import numpy"
_FIRST_RESULT = """\
from mpi4py import MPI
import numpy as np
import dace_redist
rows, columns = dace_redist.Distribution((16, 16), (2, 1)), dace_redist.Distribution((16, 16), (1, 2))
dace_redist.redistribute(np.ones((8, 16)), rows, columns, comm=MPI.COMM_WORLD)
"""


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
    on_ranks(ranks, *arguments, environment=environment)
    return time.perf_counter() - start


def _compile(strategy: str | None) -> dict[str, list[float]]:
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
        return {"seconds": [time.perf_counter() - start]}


def _distribute() -> dict[str, list[float]]:
    import dace.libraries.comm  # noqa: F401 (the stock program loads it before its clock starts)
    from einsum_kernels import gram_of_mttkrp
    from mpi4py import MPI

    import dace_redist
    import dace_redist.transformations

    with contextlib.redirect_stdout(io.StringIO()):
        MPI.COMM_WORLD.Barrier()
        start = time.perf_counter()
        dace_redist.distribute(gram_of_mttkrp, ranks=4, sizes={"I": 30, "J": 40, "K": 50, "R": 6}).compile()
        MPI.COMM_WORLD.Barrier()
        seconds = time.perf_counter() - start
    return {"seconds": [seconds]} if MPI.COMM_WORLD.rank == 0 else {}


def _calls() -> dict[str, list[float]]:
    """Return the seconds per call of 41 batches."""
    import numpy as np
    from mpi4py import MPI

    import dace_redist
    from dace_redist.measuring.comparison import Alltoallw
    from dace_redist.measuring.measure import measure

    comm, shape = MPI.COMM_WORLD, (16, 16)
    ranks = comm.size
    source, target = dace_redist.Distribution(shape, (ranks, 1)), dace_redist.Distribution(shape, (1, ranks))
    cubes = [dace_redist.Distribution((64, 64, 64), grid) for grid in ((ranks, 1, 1), (1, ranks, 1))]
    A, B = np.ones(source.local_shape(comm.rank)), np.empty(target.local_shape(comm.rank))
    plan = dace_redist.plan(source, target, A.dtype, comm=comm)
    alltoallw = Alltoallw(dace_redist.schedule(source, target, dtype=A.dtype), comm)
    calls: dict[str, Callable[[], Any]] = {
        "plan": lambda: plan(A, out=B),
        "redistribute": lambda: dace_redist.redistribute(A, source, target, comm=comm),
        "Alltoallw": lambda: alltoallw.run(A, B),
        "make": lambda: dace_redist.plan(*cubes, "float64", comm=comm).free(),
    }
    batches = {name: functools.partial(_repeated, call) for name, call in calls.items()}
    figures = measure(batches, comm, least=41, most=41)
    if comm.rank:
        return {}
    return {name: [seconds / BATCH for seconds in figure.seconds] for name, figure in figures.items()}


def _repeated(call: Callable[[], Any]) -> None:
    for _ in range(BATCH):
        call()


_PARTS: dict[str, Callable[[], dict[str, list[float]]]] = {
    "stock": lambda: _compile(None),
    "compile": lambda: _compile("Auto"),
    "distribute": _distribute,
    "calls": _calls,
}


def _ratios(first: list[float], second: list[float]) -> list[float]:
    return [a / b for a, b in zip(first, second, strict=True)]


def _measure_compile(repetitions: int) -> dict[str, list[float]]:
    """Return the rows on compilation; a warm-up round fills DaCe's own caches."""
    seconds: dict[str, list[float]] = {"stock": [], "compile": [], "distribute": []}
    with _new_cache(with_libraries=True) as environment:
        for _ in range(repetitions + 1):
            for name in random.sample(list(seconds), len(seconds)):
                for programs in Path(environment["DACE_REDIST_CACHE"]).glob("*/programs"):
                    shutil.rmtree(programs)
                seconds[name] += part_on_ranks(4 if name == "distribute" else 1, __file__, name, environment)["seconds"]
    stock = seconds.pop("stock")[1:]
    return {name: _ratios(values[1:], stock) for name, values in seconds.items()}


def _measure(rows: list[str], repetitions: int) -> dict[str, list[float]]:
    on_ranks(1, "-m", "dace_redist.cli", "build", "--no-gpu")
    figures: dict[str, list[float]] = {}
    if {"compile", "distribute"} & set(rows):
        figures |= _measure_compile(repetitions)
    if "first-use" in rows:
        program = "from dace_redist.native.cmake_build import ensure_library; ensure_library()"
        with _new_cache(with_libraries=False) as environment:
            figures["first-use"] = [_seconds(1, "-c", program, environment=environment)]
    if "import" in rows:
        clock = "import time; start = time.perf_counter(); import dace_redist; print(time.perf_counter() - start)"
        figures["import"] = [float(on_ranks(1, "-c", clock)) for _ in range(3 * repetitions)]
    if "start" in rows:
        pairs = [[_seconds(RANKS, "-c", text) for text in (_FIRST_RESULT, _IMPORTS)] for _ in range(3 * repetitions)]
        figures["start"] = [first / imports for first, imports in pairs]
    if set(_CALLS) & set(rows):
        seconds = part_on_ranks(RANKS, __file__, "calls")
        figures |= {name: _ratios(seconds[name], seconds[to]) if to else seconds[name] for name, to in _CALLS.items()}
    return {row: figures[row] for row in rows}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("rows", metavar="[ROW]...", nargs=-1, type=click.Choice(list(ROWS)))
@click.option("--repetitions", default=5, show_default=True, type=click.IntRange(min=1), help="of what is compiled")
@json_option("output")
@click.option("--part", hidden=True, type=click.Choice(list(_PARTS)))
def main(rows: tuple[str, ...], repetitions: int, output: Path | None, part: str | None) -> None:
    """Measure what the package costs besides moving data."""
    if part is not None:
        if figures := _PARTS[part]():
            print(json.dumps(figures))
        return
    for row, values in _measure(list(rows or ROWS), repetitions).items():
        click.echo(f"{row:14}{statistics.median(values):10.3g}  ({min(values):.3g} to {max(values):.3g})  {ROWS[row]}")
        append(output, {"row": row, "what": ROWS[row], "values": values})


if __name__ == "__main__":
    main()
