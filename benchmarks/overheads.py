"""
Overheads of the package besides data movement: compilation, first use, start of a process, small calls.

Each figure is a ratio to the cost without the package, both measured alternately in one run; the median of the ratios
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

import click
from launching import launch

RANKS = 2
#: Names of the rows; what they compare; the largest ratio (or number of seconds) that is acceptable.
ROWS = {
    "compile": ("compile a program with one redistribution: Auto, to stock DaCe's node", 1.0),
    "distribute": ("distribute and compile gram_of_mttkrp on 4 ranks, to compiling one stock node", 1.5),
    "compile-anew": ("the same as compile, with DaCe's own caches empty", 1.0),
    "distribute-anew": ("the same as distribute, with DaCe's own caches empty", 1.5),
    "first-use": ("seconds until every strategy can be used on a new machine", 30.0),
    "start": ("start of a process to the first result, to importing mpi4py and NumPy", 1.5),
    "redistribute": ("redistribute(), to a call of a plan", 4.0),
    "redistribute-out": ("redistribute(out=), to a call of a plan", 4.0),
    "plan": ("a call of a plan, to MPI_Alltoallw with ready datatypes", 1.2),
}
_CALLS = ("redistribute", "redistribute-out", "plan")

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


def _part(name: str, ranks: int, environment: dict[str, str] | None = None) -> dict[str, list[float]]:
    """Run a part of this file on separate ranks; return its measurements, which it prints as JSON."""
    printed = _on_ranks(ranks, __file__, "--part", name, environment=environment)
    figures: dict[str, list[float]] = json.loads(printed.strip().splitlines()[-1])
    return figures


def _module(text: str, folder: str) -> Any:
    """DaCe reads a program from its file, so there has to be one."""
    import importlib.util

    path = Path(folder) / "written_program.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile(strategy: str | None) -> float:
    """Return the seconds to compile a program of one redistribution, DaCe's own or one with a strategy."""
    import dace_redist

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        sdfg = _module(_STOCK_PROGRAM, folder).move.to_sdfg()
        sdfg.build_folder = os.path.join(folder, "build")
        start = time.perf_counter()
        if strategy is not None:
            dace_redist.set_strategy(sdfg, strategy)
        sdfg.compile(return_program_handle=False)
        return time.perf_counter() - start


def _distribute_part() -> dict[str, list[float]]:
    import dace  # noqa: F401, loaded before the clock starts, as for the stock node
    from mpi4py import MPI

    import dace_redist
    import dace_redist.transformations

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        program = _module(_EINSUM_PROGRAM, folder).gram_of_mttkrp
        MPI.COMM_WORLD.Barrier()
        start = time.perf_counter()
        distributed = dace_redist.distribute(program, ranks=4, sizes={"I": 30, "J": 40, "K": 50, "R": 6})
        distributed.compile()
        MPI.COMM_WORLD.Barrier()
        seconds = time.perf_counter() - start
    return {"seconds": [seconds]} if MPI.COMM_WORLD.rank == 0 else {}


def _calls(comm: Any) -> dict[str, Callable[[], Any]]:
    """Return the small calls to compare."""
    import numpy as np
    from mpi4py import MPI

    import dace_redist

    shape, ranks = (16, 16), comm.size
    source = dace_redist.Distribution(shape, (ranks, 1))
    target = dace_redist.Distribution(shape, (1, ranks))
    A, B = np.ones(source.local_shape(comm.rank)), np.empty(target.local_shape(comm.rank))
    plan = dace_redist.plan(source, target, A.dtype, comm=comm)
    parts = [
        MPI.DOUBLE.Create_subarray(local, [16 // ranks] * 2, [r * 16 // ranks * (axis == 0), r * 16 // ranks * axis])
        for local, axis in ((A.shape, 1), (B.shape, 0))
        for r in range(ranks)
    ]
    for part in parts:
        part.Commit()
    sent = [A, [1] * ranks, [0] * ranks, parts[:ranks]]
    received = [B, [1] * ranks, [0] * ranks, parts[ranks:]]
    return {
        "plan": lambda: plan(A, out=B),
        "redistribute": lambda: dace_redist.redistribute(A, source, target, comm=comm),
        "redistribute-out": lambda: dace_redist.redistribute(A, source, target, comm=comm, out=B),
        "Alltoallw": lambda: comm.Alltoallw(sent, received),
    }


def _calls_part() -> dict[str, list[float]]:
    """Seconds per call, of batches of 200 calls, in an order drawn anew for each round."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    calls = _calls(comm)
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


_PARTS = {
    "stock": lambda: {"seconds": [_compile(None)]},
    "compile": lambda: {"seconds": [_compile("Auto")]},
    "distribute": _distribute_part,
    "calls": _calls_part,
}


def _ratios(first: list[float], second: list[float]) -> list[float]:
    return [a / b for a, b in zip(first, second, strict=True)]


def _measure_compile(repetitions: int, anew: bool) -> dict[str, list[float]]:
    """
    Measure the rows on compilation.

    :param anew: True to empty DaCe's own caches, of precompiled headers and recorded builds, before each program;
        otherwise a warm-up round fills them.
    """
    seconds: dict[str, list[float]] = {"stock": [], "compile": [], "distribute": []}
    with _new_cache(with_libraries=True) as environment:
        for _ in range(repetitions + (not anew)):
            for name in random.sample(list(seconds), len(seconds)):
                if anew:
                    shutil.rmtree(environment["DACE_BUILD_CACHE_DIR"], ignore_errors=True)
                for programs in Path(environment["DACE_REDIST_CACHE"]).glob("*/programs"):
                    shutil.rmtree(programs)
                seconds[name] += _part(name, 4 if name == "distribute" else 1, environment)["seconds"]
    stock = seconds.pop("stock")[-repetitions:]
    suffix = "-anew" if anew else ""
    return {name + suffix: _ratios(values[-repetitions:], stock) for name, values in seconds.items()}


def _measure_first_use() -> list[float]:
    program = "from dace_redist.native.cmake_build import ensure_library; ensure_library()"
    with _new_cache(with_libraries=False) as environment:
        start = time.perf_counter()
        _on_ranks(1, "-c", program, environment=environment)
        return [time.perf_counter() - start]


def _measure_start(repetitions: int) -> list[float]:
    ratios = []
    for _ in range(repetitions):
        seconds = []
        for program in (_IMPORTS, _FIRST_RESULT):
            start = time.perf_counter()
            _on_ranks(RANKS, "-c", program)
            seconds.append(time.perf_counter() - start)
        ratios.append(seconds[1] / seconds[0])
    return ratios


def _measure(rows: list[str], repetitions: int) -> dict[str, list[float]]:
    _on_ranks(1, "-m", "dace_redist.cli", "build")
    figures: dict[str, list[float]] = {}
    for anew, compiled in (False, {"compile", "distribute"}), (True, {"compile-anew", "distribute-anew"}):
        if compiled & set(rows):
            figures |= _measure_compile(repetitions, anew)
    if "first-use" in rows:
        figures["first-use"] = _measure_first_use()
    if "start" in rows:
        figures["start"] = _measure_start(3 * repetitions)
    if set(_CALLS) & set(rows):
        seconds = _part("calls", RANKS)
        for name in _CALLS:
            figures[name] = _ratios(seconds[name], seconds["Alltoallw" if name == "plan" else "plan"])
        for name, times in seconds.items():
            click.echo(f"{name}: {1e6 * statistics.median(times):.1f} microseconds", err=True)
    return {row: figures[row] for row in rows}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("rows", metavar="[ROW]...", nargs=-1, type=click.Choice(list(ROWS)))
@click.option("--repetitions", default=5, show_default=True, type=click.IntRange(min=1), help="of what is compiled")
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path), help="append a JSON line per row")
@click.option("--part", hidden=True, type=click.Choice(list(_PARTS)))
def main(rows: tuple[str, ...], repetitions: int, output: Path | None, part: str | None) -> None:
    """Measures what the package costs besides moving data."""
    if part is not None:
        figures = _PARTS[part]()
        if figures:
            print(json.dumps(figures))
        return
    measured = _measure(list(rows or ROWS), repetitions)
    for row, values in measured.items():
        what, limit = ROWS[row]
        median = statistics.median(values)
        verdict = "" if median <= limit else "  MISSED"
        click.echo(
            f"{row:18}{median:7.2f}  (at most {limit:g}; {min(values):.2f} to {max(values):.2f})  {what}{verdict}"
        )
        if output is not None:
            with output.open("a") as lines:
                lines.write(json.dumps({"row": row, "what": what, "limit": limit, "values": values}) + "\n")


if __name__ == "__main__":
    main()
