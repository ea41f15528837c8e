"""
Overheads of the package besides data movement: compilation, first use, start of a process, small calls.

Each figure is a ratio to the cost without the package, both measured alternately in one run, or seconds; the median
counts. The arrays of the small calls are 16 x 16 float64, from rows to columns.

    python benchmarks/overheads.py [--json FILE] [--repetitions 5] [ROW]...
"""

from __future__ import annotations

import contextlib
import importlib.util
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

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

import click
from launching import launch

RANKS = 2
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
_STOCK_PROGRAM = """\
import dace
import numpy as np


@dace.program
def move(A: dace.float64[32, 32]):
    quarters = dace.comm.Cart_create([2, 2])
    rows = dace.comm.Cart_create([4, 1])
    B = np.empty_like(A, shape=(16, 64))
    source = dace.comm.Subarray((64, 64), A, process_grid=quarters)
    target = dace.comm.Subarray((64, 64), B, process_grid=rows)
    dace.comm.Redistribute(A, source, B, target)
    return B
"""
_EINSUM_PROGRAM = """\
import dace
import numpy as np

I, J, K, R = (dace.symbol(name, dace.int64) for name in "IJKR")


@dace.program
def gram_of_mttkrp(X: dace.float64[I, J, K], B: dace.float64[J, R], C: dace.float64[K, R]):
    M = np.einsum("ijk,ja,ka->ia", X, B, C)
    return M.T @ M
"""


@contextlib.contextmanager
def _new_cache(with_libraries: bool) -> Iterator[dict[str, str]]:
    """Return an environment with new cache folders, with or without the package's libraries, and without programs."""
    from dace_redist.native.toolchain import build_directory

    with tempfile.TemporaryDirectory(prefix="overheads-") as folder:
        if with_libraries:
            programs = shutil.ignore_patterns("programs", "tests", "*.lock")
            shutil.copytree(build_directory(), Path(folder) / build_directory().name, ignore=programs)
        yield {"DACE_REDIST_CACHE": folder, "DACE_BUILD_CACHE_DIR": os.path.join(folder, "dace")}


def _on_ranks(ranks: int, *arguments: str, environment: dict[str, str] | None = None) -> str:
    code, printed = launch(ranks, [sys.executable, *arguments], 600, environment=environment)
    if code != 0:
        raise click.ClickException(f"{' '.join(arguments)[:60]} ended with code {code}:\n{printed}")
    return printed


def _seconds(ranks: int, *arguments: str, environment: dict[str, str] | None = None) -> float:
    start = time.perf_counter()
    _on_ranks(ranks, *arguments, environment=environment)
    return time.perf_counter() - start


def _part(name: str, ranks: int, environment: dict[str, str] | None = None) -> dict[str, list[float]]:
    """Run a part of this file on separate ranks; return its measurements, which it prints as JSON."""
    figures: dict[str, list[float]]
    figures = json.loads(_on_ranks(ranks, __file__, "--part", name, environment=environment).strip().splitlines()[-1])
    return figures


def _program(text: str, name: str, folder: str) -> Any:
    """Return a DaCe program, which DaCe reads from its file."""
    path = Path(folder) / "written_program.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def _compile(strategy: str | None) -> dict[str, list[float]]:
    """Return the seconds to set the strategy of a one-redistribution program and compile it in an empty folder."""
    import dace_redist

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        sdfg = _program(_STOCK_PROGRAM, "move", folder).to_sdfg()
        sdfg.build_folder = os.path.join(folder, "build")
        start = time.perf_counter()
        if strategy is not None:
            dace_redist.set_strategy(sdfg, strategy)
        sdfg.compile(return_program_handle=False)
        return {"seconds": [time.perf_counter() - start]}


def _distribute() -> dict[str, list[float]]:
    import dace  # noqa: F401, loaded before the clock starts, as for the stock node
    from mpi4py import MPI

    import dace_redist
    import dace_redist.transformations

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        program = _program(_EINSUM_PROGRAM, "gram_of_mttkrp", folder)
        MPI.COMM_WORLD.Barrier()
        start = time.perf_counter()
        dace_redist.distribute(program, ranks=4, sizes={"I": 30, "J": 40, "K": 50, "R": 6}).compile()
        MPI.COMM_WORLD.Barrier()
        seconds = time.perf_counter() - start
    return {"seconds": [seconds]} if MPI.COMM_WORLD.rank == 0 else {}


def _calls() -> dict[str, list[float]]:
    """Return the seconds per call, of batches of 200 calls, in an order drawn anew for each round."""
    import numpy as np
    from mpi4py import MPI

    import dace_redist

    comm, shape = MPI.COMM_WORLD, (16, 16)
    ranks = comm.size
    source, target = dace_redist.Distribution(shape, (ranks, 1)), dace_redist.Distribution(shape, (1, ranks))
    cubes = [dace_redist.Distribution((64, 64, 64), grid) for grid in ((ranks, 1, 1), (1, ranks, 1))]
    A, B = np.ones(source.local_shape(comm.rank)), np.empty(target.local_shape(comm.rank))
    plan = dace_redist.plan(source, target, A.dtype, comm=comm)
    parts = [
        MPI.DOUBLE.Create_subarray(local, [16 // ranks] * 2, [r * 16 // ranks * (axis == 0), r * 16 // ranks * axis])
        for local, axis in ((A.shape, 1), (B.shape, 0))
        for r in range(ranks)
    ]
    for part in parts:
        part.Commit()
    ones, zeros = [1] * ranks, [0] * ranks
    calls: dict[str, Callable[[], Any]] = {
        "plan": lambda: plan(A, out=B),
        "redistribute": lambda: dace_redist.redistribute(A, source, target, comm=comm),
        "Alltoallw": lambda: comm.Alltoallw([A, ones, zeros, parts[:ranks]], [B, ones, zeros, parts[ranks:]]),
        "make": lambda: dace_redist.plan(*cubes, "float64", comm=comm).free(),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    order = random.Random(1)
    for _ in range(41):
        for name in order.sample(sorted(calls), len(calls)):
            for _ in range(10):
                calls[name]()
            comm.Barrier()
            start = time.perf_counter()
            for _ in range(200):
                calls[name]()
            seconds[name].append((time.perf_counter() - start) / 200)
    return seconds if comm.rank == 0 else {}


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
                seconds[name] += _part(name, 4 if name == "distribute" else 1, environment)["seconds"]
    stock = seconds.pop("stock")[1:]
    return {name: _ratios(values[1:], stock) for name, values in seconds.items()}


def _measure(rows: list[str], repetitions: int) -> dict[str, list[float]]:
    _on_ranks(1, "-m", "dace_redist.cli", "build")
    figures: dict[str, list[float]] = {}
    if {"compile", "distribute"} & set(rows):
        figures |= _measure_compile(repetitions)
    if "first-use" in rows:
        program = "from dace_redist.native.cmake_build import ensure_library; ensure_library()"
        with _new_cache(with_libraries=False) as environment:
            figures["first-use"] = [_seconds(1, "-c", program, environment=environment)]
    if "import" in rows:
        clock = "import time; start = time.perf_counter(); import dace_redist; print(time.perf_counter() - start)"
        figures["import"] = [float(_on_ranks(1, "-c", clock)) for _ in range(3 * repetitions)]
    if "start" in rows:
        pairs = [[_seconds(RANKS, "-c", text) for text in (_FIRST_RESULT, _IMPORTS)] for _ in range(3 * repetitions)]
        figures["start"] = [first / imports for first, imports in pairs]
    if set(_CALLS) & set(rows):
        seconds = _part("calls", RANKS)
        figures |= {name: _ratios(seconds[name], seconds[to]) if to else seconds[name] for name, to in _CALLS.items()}
    return {row: figures[row] for row in rows}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("rows", metavar="[ROW]...", nargs=-1, type=click.Choice(list(ROWS)))
@click.option("--repetitions", default=5, show_default=True, type=click.IntRange(min=1), help="of what is compiled")
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path), help="append a JSON line per row")
@click.option("--part", hidden=True, type=click.Choice(list(_PARTS)))
def main(rows: tuple[str, ...], repetitions: int, output: Path | None, part: str | None) -> None:
    """Measure what the package costs besides moving data."""
    if part is not None:
        if figures := _PARTS[part]():
            print(json.dumps(figures))
        return
    for row, values in _measure(list(rows or ROWS), repetitions).items():
        click.echo(f"{row:14}{statistics.median(values):10.3g}  ({min(values):.3g} to {max(values):.3g})  {ROWS[row]}")
        if output is not None:
            with output.open("a") as lines:
                lines.write(json.dumps({"row": row, "what": ROWS[row], "values": values}) + "\n")


if __name__ == "__main__":
    main()
